# SPDX-License-Identifier: Apache-2.0
"""CTranslate2 with int8 weights and activations. It reads its own format only: the file's weights are dequantised and
quantised to its int8, so that what it computes does not depend on the file's type."""

from __future__ import annotations

import os
import tempfile
import time

import lmnative
import numpy as np

NAME = "CTranslate2 int8"
INSTALL = "pip install ctranslate2 gguf"
SUITES = ("decode", "prefill", "batch")
LABELS = ("q4_1", "q8_0")
TOLERANCE = 0.75  # of logits, RMS: one scale for a whole row of weights, and of inputs; 0.43 after 512 tokens


def version() -> str:
    # Its idle threads spin this long (ms; 200 by default), on the CPUs of whoever is measured next.
    os.environ.setdefault("KMP_BLOCKTIME", "20")
    if lmnative.build_info()["cpu_target"] == "avx2":  # the same instructions for everybody; both read this when loaded
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX2")
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import ctranslate2
    import gguf  # noqa: F401  dequantises

    return ctranslate2.__version__


def convert(path: str, folder: str) -> list[str]:
    """Writes `path`, of architecture llama, as a CTranslate2 model; returns its vocabulary."""
    from ctranslate2 import specs
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    model = lmnative.Model(path)
    info = model.info
    if info.architecture != "llama":
        raise RuntimeError(f"{path}: architecture {info.architecture} is not converted")
    types = {t.name: GGMLQuantizationType[t.type.upper()] for t in model.tensors}

    def weight(name: str) -> np.ndarray:
        return np.ascontiguousarray(dequantize(np.from_dlpack(model.tensor(f"{name}.weight")), types[f"{name}.weight"]))

    spec = specs.TransformerDecoderModelSpec.from_config(
        info.layer_count,
        info.head_count,
        activation=specs.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=True,  # as GGUF files of this architecture are
        rotary_base=model.metadata.get("llama.rope.freq_base", 10000.0),
        num_heads_kv=info.head_count_kv,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weight("token_embd")
    decoder.layer_norm.gamma = weight("output_norm")
    decoder.projection.weight = weight("output" if "output.weight" in types else "token_embd")
    for i, layer in enumerate(decoder.layer):
        block = f"blk.{i}."
        layer.self_attention.layer_norm.gamma = weight(block + "attn_norm")
        qkv = [weight(f"{block}attn_{x}") for x in "qkv"]
        layer.self_attention.linear[0].weight = np.concatenate(qkv)
        layer.self_attention.linear[1].weight = weight(block + "attn_output")
        layer.ffn.layer_norm.gamma = weight(block + "ffn_norm")
        layer.ffn.linear_0.weight = weight(block + "ffn_gate")
        layer.ffn.linear_0_noact.weight = weight(block + "ffn_up")
        layer.ffn.linear_1.weight = weight(block + "ffn_down")
    tokens = model.metadata["tokenizer.ggml.tokens"]
    spec.register_vocabulary(tokens)
    spec.config.layer_norm_epsilon = model.metadata["llama.attention.layer_norm_rms_epsilon"]
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = tokens[0]
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(folder)
    return tokens


class Session:
    """A generator over a converted copy of the file."""

    def __init__(self, path: str, threads: int, context: int, sequences: int = 1):
        import ctranslate2

        with tempfile.TemporaryDirectory() as folder:
            self._tokens = convert(path, folder)
            self._generator = ctranslate2.Generator(folder, compute_type="int8", inter_threads=1, intra_threads=threads)
        self._prompts: list[list[int]] = []
        self._checked: list[int] = []

    def _generate(self, prompts, tokens: int, callback=None) -> None:
        texts = [[self._tokens[i] for i in ids] for ids in prompts]
        self._generator.generate_batch(
            texts,
            max_length=tokens,
            min_length=tokens,
            end_token=[],
            include_prompt_in_result=False,
            callback=callback,
        )

    def logits(self) -> np.ndarray:
        return np.array(self._generator.forward_batch([self._checked]))[0, -1]

    def prefill_seconds(self, ids) -> float:
        self._checked = ids
        start = time.perf_counter()
        self._generate([ids], 1)
        return time.perf_counter() - start

    def decode_seconds(self, prompt, tokens: int) -> float:
        self.hold([prompt])
        return self.held_seconds(tokens)

    def hold(self, prompts) -> None:
        self._prompts = prompts
        self._checked = prompts[0]

    def held_seconds(self, tokens: int) -> float:
        """Computes the prompts again, and counts from the first token of all."""
        times: dict[int, float] = {}

        def callback(step) -> bool:
            times[step.step] = time.perf_counter()  # the last sequence of each step stays
            return False

        self._generate(self._prompts, tokens + 1, callback)
        return times[max(times)] - times[min(times)]

    def close(self) -> None:
        del self._generator
