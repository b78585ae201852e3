# SPDX-License-Identifier: Apache-2.0
"""lmnative as one contender among others, what a model costs a step, and how answers are compared.

A peer is a module of peers/ with NAME, INSTALL (a command), version() (ImportError if it is not there), SUITES (those
it takes part in), LABELS (the models that it runs on, None: all), TOLERANCE if its logits are further off than
OFFSET_FREE_RMS, and a Session:

    Session(path, threads, context, sequences=1)   `context`: tokens a sequence; for "cuda" also device="cuda" and
                                   kv_tokens, the tokens of all sequences together
    prefill_seconds(ids)           computes a prompt from nothing, up to the choice of a token
    decode_seconds(prompt, n)      n greedy steps after the first token of the answer
    hold(prompts)                  computes prompts, one a sequence, and keeps them ("batch" and "long" only)
    held_seconds(n)                n greedy steps of all held sequences together, from where the prompts end
    logits()                       after the last prompt (of the first sequence), float32 [vocab]; or
    first_token()                  the token chosen there, for a peer that gives no logits
    close()
"""

from __future__ import annotations

import time
from collections import Counter

import harness
import lmnative
import numpy as np
from models.catalogue import FILE_TYPES

REST = 256  # tokens of a held prompt that may be computed again: less than that lies in pages that are not full
OFFSET_FREE_RMS = 0.25  # of the top-20 logits between contenders that quantise activations differently
KV_BYTES = 2  # an element of the cache is F16
FLOAT_TYPES = ("f16", "bf16", "f32")  # weights that are multiplied as floats, whatever activation_bits says


class Session:
    """As a peer's, and every answer is compared with the first one to the same prompt."""

    def __init__(
        self,
        path: str,
        threads: int,
        context: int,
        sequences: int = 1,
        keep_prompts: bool = False,
        activation_bits: int | None = 8,
        device: str = "cpu",
        kv_tokens: int | None = None,
    ):
        # Unless prompts are held, the same one comes again and again and is to be computed each time.
        self.llm = lmnative.LLM(
            path,
            threads=threads,
            context_tokens=context,
            kv_tokens=kv_tokens or context * sequences,
            max_sequences=sequences,
            prefix_cache=keep_prompts,
            inter_token_target=10.0,  # all sequences of a batch begin together, as a peer's do
            activation_bits=activation_bits,
            device=device,
        )
        self._answers: dict[tuple[int, ...], list[int]] = {}
        self._held: list[list[int]] = []

    def _compare(self, prompt: list[int], answer: list[int]) -> None:
        known = self._answers.setdefault(tuple(prompt), answer)
        length = min(len(known), len(answer))
        if known[:length] != answer[:length]:
            raise harness.CheckFailed("lmnative: the same request gave other tokens")
        if len(answer) > len(known):
            self._answers[tuple(prompt)] = answer

    def logits(self, prompt: list[int]) -> np.ndarray:
        """After `prompt`, float32 [vocab]."""
        return self.llm.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True, logits=True).logits[0]

    def prefill_seconds(self, ids: list[int]) -> float:
        start = time.perf_counter()
        out = self.llm.generate(ids, max_tokens=1, temperature=0, ignore_eos=True)
        seconds = time.perf_counter() - start
        if out.usage.cached_tokens != 0:
            raise harness.CheckFailed("prefill: a part of the prompt was not computed")
        self._compare(ids, out.token_ids)
        return seconds

    def decode_seconds(self, prompt: list[int], tokens: int) -> float:
        out = self.llm.generate(prompt, max_tokens=tokens + 1, temperature=0, ignore_eos=True)
        self._compare(prompt, out.token_ids)
        return out.usage.decode_seconds

    def hold(self, prompts: list[list[int]]) -> None:
        """Each is answered alone, which leaves it in the prefix cache."""
        self._held = prompts
        for prompt in prompts:
            self._compare(prompt, self.llm.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True).token_ids)

    def held_seconds(self, tokens: int) -> float:
        """Scaled to `tokens` for each sequence: counted from when all have begun until the first has ended, or over
        all of it where steps are so short that hardly any lie between."""
        options = {"max_tokens": tokens + 1, "temperature": 0, "ignore_eos": True}
        asked = time.perf_counter()
        requests = [self.llm.stream(prompt, **options) for prompt in self._held]
        for request in requests:
            request.next()
        start = time.perf_counter()
        begun = self.llm.stats()["generated_tokens"]
        requests[0].wait()
        seconds = time.perf_counter() - start
        counted = self.llm.stats()["generated_tokens"] - begun
        for request in requests:
            request.wait()
        if counted < tokens * len(requests) / 2:
            seconds, counted = time.perf_counter() - asked, (tokens + 1) * len(requests)
        for prompt, request in zip(self._held, requests, strict=True):
            for _ in request:
                pass
            if len(prompt) - request.usage.cached_tokens > REST:
                raise harness.CheckFailed("lmnative: a held prompt was computed again")
            self._compare(prompt, request.result().token_ids)
        return seconds * tokens * len(requests) / counted

    def close(self) -> None:
        self.llm.close()


class Cost:
    """What a model's file makes a step cost."""

    def __init__(self, model: lmnative.Model):
        self.bytes = 0  # of weights that a step reads
        self._matrices: list[tuple[int, bool, bool, bool]] = []  # multiply-adds a row, of floats?, precise?, sampled?
        names = {t.name for t in model.tensors}
        info = model.info
        for tensor in model.tensors:
            if len(tensor.shape) < 2 or (tensor.name == "token_embd.weight" and "output.weight" in names):
                continue
            products = int(np.prod(tensor.shape))
            self.bytes += tensor.bytes
            in_last = not tensor.name.startswith("blk.") or tensor.name.startswith(f"blk.{info.layer_count - 1}.")
            reads_norm = tensor.name.split(".")[-2] in ("attn_q", "attn_k", "attn_v")
            is_float = tensor.type in FLOAT_TYPES
            self._matrices.append((products, is_float, in_last or reads_norm, in_last and not reads_norm))
        self.macs = sum(m[0] for m in self._matrices)  # multiply-adds a token that is sampled
        self.macs_without_logits = sum(m[0] for m in self._matrices if not m[3])
        self.kv_bytes = info.layer_count * info.head_count_kv * info.head_dim * 2 * KV_BYTES  # a token of context

    def float_macs(self, activation_bits: int = 8, logits: bool = True) -> float:
        """Multiply-adds of floats that take as long as those of a token. One vector instruction does twice as many of
        16-bit integers (madd_epi16, dpwssd) and four times as many of bytes (maddubs, dpbusd). q, k, v, the last layer
        and the output layer are always of 16 bits; a token without `logits` skips what follows the last attention."""
        total = 0.0
        for products, is_float, is_precise, is_sampled in self._matrices:
            if logits or not is_sampled:
                total += products / (1 if is_float else 4 if activation_bits == 8 and not is_precise else 2)
        return total


def main_type(model: lmnative.Model) -> str:
    """What the file calls itself, or the type that most weights have."""
    named = FILE_TYPES.get(model.metadata.get("general.file_type"))
    types: Counter[str] = Counter()
    for tensor in model.tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1:
            types[tensor.type] += int(np.prod(tensor.shape))
    return named or types.most_common(1)[0][0]


def check_against(peer, ours: np.ndarray, name: str, tolerance: float = OFFSET_FREE_RMS) -> None:
    """The peer's answer after the same prompt: its logits, or its token where it gives none."""
    top = np.argsort(ours)[-20:]
    if not hasattr(peer, "logits"):
        if peer.first_token() not in top[-3:]:
            raise harness.CheckFailed(f"{name}: the first token is {peer.first_token()}, likely are {top[:-4:-1]}")
        return
    difference = peer.logits()[top] - ours[top]
    rms = float(np.sqrt(np.mean((difference - difference.mean()) ** 2)))
    if not rms < tolerance:
        raise harness.CheckFailed(f"{name}: top-20 logits differ by {rms:.3f} RMS (allowed {tolerance})")
