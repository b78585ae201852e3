# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python's low-level binding, so that no Python work stands between its steps."""

from __future__ import annotations

import ctypes
import time

import numpy as np

NAME = "llama.cpp"
INSTALL = "pip install llama-cpp-python"


def version() -> str:
    import llama_cpp

    return llama_cpp.__version__


class Session:
    """One context over `path`; `threads` for single tokens and batches alike."""

    def __init__(self, path: str, threads: int, context: int):
        import llama_cpp as api

        self.api = api
        self._log = api.llama_log_callback(lambda level, text, user: None)
        api.llama_log_set(self._log, ctypes.c_void_p())
        api.llama_backend_init()
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        params = api.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, params)
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))

    def reset(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def evaluate(self, ids) -> None:
        """One decode call over `ids`, appended to the context; the last position's logits are computed."""
        array = (self.api.llama_token * len(ids))(*ids)
        if self.api.llama_decode(self.context, self.api.llama_batch_get_one(array, len(ids))) != 0:
            raise RuntimeError("llama_decode failed")

    def logits(self) -> np.ndarray:
        pointer = self.api.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(pointer, (self.vocab,))

    def prefill_seconds(self, ids) -> float:
        self.reset()
        start = time.perf_counter()
        self.evaluate(ids)
        self.logits()
        return time.perf_counter() - start

    def decode_seconds(self, prompt, tokens: int) -> float:
        """Seconds of `tokens` greedy steps after the first token."""
        self.reset()
        self.evaluate(prompt)
        token = int(self.logits().argmax())
        start = time.perf_counter()
        for _ in range(tokens):
            self.evaluate([token])
            token = int(self.logits().argmax())
        return time.perf_counter() - start

    def close(self) -> None:
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)
