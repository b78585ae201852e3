# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python's low-level binding, so that no Python work stands between its steps."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from pathlib import Path

import numpy as np

NAME = "llama.cpp"
INSTALL = "pip install llama-cpp-python"
SUITES = ("decode", "prefill", "batch", "long", "load", "cuda")
LABELS = None
BATCH = 512  # tokens in one call at most


def version() -> str:
    import llama_cpp

    return llama_cpp.__version__


def library() -> tuple[Path, Path]:
    """libllama.so, and the folder of its headers, which are of the same build."""
    import llama_cpp

    package = Path(llama_cpp.__file__).parent
    return package / "lib" / "libllama.so", package.parent / "include"


def build_first_token(folder: str) -> Path:
    """The C program first_token of this peer. ImportError where the package holds no headers."""
    shared, headers = library()
    if not (shared.exists() and (headers / "llama.h").exists()):
        raise ImportError(f"{NAME} without {headers / 'llama.h'}")
    program = Path(folder) / "llama_cpp_first_token"
    source = Path(__file__).with_name("llama_cpp_first_token.c")
    paths = [f"-Wl,-rpath,{shared.parent}", f"-Wl,-rpath-link,{shared.parent}"]
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-o", program, source, f"-I{headers}", shared, *paths], check=True
    )
    return program


class Session:
    """One context over `path`; `threads` for single tokens and batches alike."""

    def __init__(
        self,
        path: str,
        threads: int,
        context: int,
        sequences: int = 1,
        device: str = "cpu",
        kv_tokens: int | None = None,
    ):
        import llama_cpp as api

        if device != "cpu" and not api.llama_supports_gpu_offload():
            raise RuntimeError(f"llama.cpp was built without GPUs: CMAKE_ARGS=-DGGML_CUDA=on {INSTALL}")

        self.api = api
        self._log = api.llama_log_callback(lambda level, text, user: None)
        api.llama_log_set(self._log, ctypes.c_void_p())
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        if device != "cpu":
            model_params.n_gpu_layers = 1000  # all
        self.model = api.llama_model_load_from_file(path.encode(), model_params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not read {path}")
        params = api.llama_context_default_params()
        params.n_ctx = -(-context // 256) * 256 * sequences
        if kv_tokens is not None:
            params.n_ctx = -(-kv_tokens // 256) * 256
            params.kv_unified = True  # one that any sequence may take more of than its share
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            api.llama_model_free(self.model)
            raise RuntimeError(f"llama.cpp makes no context of {params.n_ctx} tokens for {path}")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.memory = api.llama_get_memory(self.context)
        self._batch = api.llama_batch_init(max(BATCH, sequences), 0, 1)
        self._lengths: list[int] = []  # of the held prompts
        self._first: list[int] = []  # tokens after them
        self._logits: np.ndarray | None = None

    def reset(self) -> None:
        self.api.llama_memory_clear(self.memory, True)

    def _evaluate(self, tokens, sequences, positions, wanted) -> None:
        """One decode call: token i of a sequence at a position, logits where wanted."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = positions[i]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequences[i]
            batch.logits[i] = wanted[i]
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def _append(self, ids, sequence: int) -> None:
        """`ids` as the whole of a sequence; the logits of the last one are computed."""
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            last = start + len(part) == len(ids)
            wanted = [False] * (len(part) - 1) + [last]
            self._evaluate(part, [sequence] * len(part), range(start, start + len(part)), wanted)

    def _row(self, i: int) -> np.ndarray:
        """The logits of token i of the last call, which the next one overwrites."""
        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, i), (self.vocab,))

    def logits(self) -> np.ndarray:
        return self._logits

    def prefill_seconds(self, ids) -> float:
        self.reset()
        start = time.perf_counter()
        self._append(ids, 0)
        self._row(-1).argmax()
        seconds = time.perf_counter() - start
        self._logits = self._row(-1).copy()
        return seconds

    def decode_seconds(self, prompt, tokens: int) -> float:
        self.hold([prompt])
        return self.held_seconds(tokens)

    def hold(self, prompts) -> None:
        self.reset()
        self._lengths, self._first = [len(p) for p in prompts], []
        for i, prompt in enumerate(prompts):
            self._append(prompt, i)
            self._first.append(int(self._row(-1).argmax()))
            if i == 0:
                self._logits = self._row(-1).copy()

    def held_seconds(self, tokens: int) -> float:
        sequences = range(len(self._lengths))
        for i in sequences:
            self.api.llama_memory_seq_rm(self.memory, i, self._lengths[i], -1)
        chosen = self._first
        wanted = [True] * len(chosen)
        start = time.perf_counter()
        for step in range(tokens):
            self._evaluate(chosen, sequences, [length + step for length in self._lengths], wanted)
            chosen = [int(self._row(i).argmax()) for i in sequences]
        return time.perf_counter() - start

    def close(self) -> None:
        self.api.llama_batch_free(self._batch)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)
