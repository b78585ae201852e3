# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI, which reads GGUF files of some types itself. It gives no logits: tokens are compared.

Its times are its own (PerfMetrics), without Python between steps. It converts a file anew at each opening, which takes
seconds, so it takes part in few results."""

from __future__ import annotations

import numpy as np

NAME = "OpenVINO GenAI"
INSTALL = "pip install openvino-genai"
SUITES = ("decode", "prefill")
LABELS = ("q4_0", "q8_0", "f16")


def version() -> str:
    import openvino_genai

    return openvino_genai.__version__.split("-")[0]


class Session:
    """A pipeline that computes every prompt from nothing."""

    def __init__(self, path: str, threads: int, context: int, sequences: int = 1):
        import openvino_genai as api

        scheduler = api.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        self.api = api
        self.pipeline = api.LLMPipeline(path, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads)
        self._first: int | None = None

    def _generate(self, ids, tokens: int):
        import openvino

        config = self.api.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        array = np.array([ids], np.int64)
        inputs = self.api.TokenizedInputs(openvino.Tensor(array), openvino.Tensor(np.ones_like(array)))
        out = self.pipeline.generate(inputs, config)
        self._first = out.tokens[0][0]
        return out.perf_metrics

    def first_token(self) -> int:
        return self._first

    def prefill_seconds(self, ids) -> float:
        return self._generate(ids, 1).get_ttft().mean / 1e3

    def decode_seconds(self, prompt, tokens: int) -> float:
        return self._generate(prompt, tokens + 1).get_tpot().mean / 1e3 * tokens

    def close(self) -> None:
        del self.pipeline
