# SPDX-License-Identifier: Apache-2.0
#
# The two commands are `make demo` and `make test`; both set up what they need in .venv and build/. PYTHON is the interpreter
# that .venv is made with (3.10 or newer).
PYTHON ?= python3
PROMPT ?= What is a lighthouse for? Answer in three sentences.
VENV := .venv/bin

.PHONY: help demo test bench bench-peers cuda asan tsan neon fuzz lint format clean

help:
	@echo "make demo [PROMPT=\"…\"]   build, install into .venv, and watch a language model answer"
	@echo "make test                every test; make cuda, asan, tsan, neon, fuzz: one stage of it"
	@echo "make bench               benchmarks (see bench/run.py --help); make bench-peers: against llama.cpp, built from PyPI"
	@echo "make lint, make format   check or fix the style;  make clean   remove what was built"

# The prompt goes through the environment, unexpanded: quotes and dollars in it are the user's.
demo: override export PROMPT := $(value PROMPT)
demo:
	@$(PYTHON) tests/environment.py demo
	@$(VENV)/lmnative run --stats smollm2-135m "$$PROMPT"

test:
	@$(PYTHON) tests/run.py

cuda asan tsan neon fuzz:
	@$(PYTHON) tests/run.py $@

bench:
	@$(PYTHON) tests/environment.py demo
	@$(VENV)/python -m pip install --quiet gguf
	@$(VENV)/python bench/run.py decode prefill batch long load --quick

# llama-cpp-python compiles llama.cpp for this machine, which takes some minutes.
bench-peers:
	@$(PYTHON) tests/environment.py demo
	@$(VENV)/python -m pip install --quiet gguf llama-cpp-python
	@$(VENV)/python bench/run.py decode prefill batch long load --peers --json build/bench.json

lint format:
	@$(PYTHON) tests/style.py $@

clean:
	rm -rf build dist .venv
