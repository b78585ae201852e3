# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: every long call stops before its end, and the LLM can be used again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import lmnative
import pytest
from conftest import wait_until


@contextlib.contextmanager
def interrupted_after(seconds: float, llm: lmnative.LLM, requests: int = 1):
    """Sends SIGINT to this process, expects KeyboardInterrupt, and that what ran did not run to its end."""
    before = llm.stats()
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
        timer.cancel()
    assert wait_until(lambda: llm.stats()["running"] == llm.stats()["waiting"] == 0)
    after = llm.stats()
    assert after["cancelled"] == before["cancelled"] + requests and after["finished"] == before["finished"]
    assert llm.generate("Once", max_tokens=2).token_ids


@pytest.fixture(scope="module")
def long_llm(model_path):
    with lmnative.LLM(model_path, threads=1) as llm:
        llm.generate("Once", max_tokens=1)  # which builds the tokenizer
        yield llm


def test_generate(long_llm):
    with interrupted_after(0.3, long_llm):
        long_llm.generate("Once", max_tokens=8000, ignore_eos=True)


def test_generate_of_a_list(long_llm):
    with interrupted_after(0.3, long_llm, requests=5):
        long_llm.generate(["Once"] * 5, max_tokens=8000, ignore_eos=True)


def test_a_long_prompt(long_llm):
    with interrupted_after(0.2, long_llm):
        long_llm.generate(list(range(100, 8100)), max_tokens=1)


def test_stream(long_llm):
    with interrupted_after(0.3, long_llm):
        for _ in long_llm.stream("Once", max_tokens=8000, ignore_eos=True):
            pass


def test_score(model_path):
    ids = list(range(100, 4600))
    with lmnative.LLM(model_path, threads=1, context_tokens=5000, prefill_chunk_tokens=64) as llm:
        with interrupted_after(0.2, llm):
            llm.score(ids)
        assert llm.stats()["prompt_tokens"] < len(ids), "the engine must not go on with what nobody waits for"


def test_loading(model_path):
    calls = 0

    def report(what, done, total):
        nonlocal calls
        calls += 1
        if calls == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lmnative.LLM(model_path, threads=1, context_tokens=64, progress=report)
