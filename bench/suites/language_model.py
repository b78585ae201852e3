# SPDX-License-Identifier: Apache-2.0
"""decode.b1.TYPE and prefill.512.TYPE: one sequence, all contenders on the same file, prompt and thread count.

Floors: a decode step reads every weight once, so bytes over bandwidth; a prefill does 2 operations per weight and
token, with 16-bit integer products, which run at twice the float rate of the probe.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter

import harness
import lmnative
import numpy as np

# English text of any kind: what matters is its length and that everybody gets the same ids.
TEXT = (
    "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. "
    "Every evening its keeper climbed the stairs, counted them, and wrote the number into a ledger, although "
    "it had never changed. "
) * 40
DECODE_TOKENS = 128
OFFSET_FREE_RMS = 0.25  # of the top-20 logits between contenders that quantise activations differently


def weight_bytes_and_macs(model: lmnative.Model) -> tuple[int, int, str]:
    """Bytes read and products done per decoded token, and the type most weights have."""
    bytes_read = macs = 0
    types: Counter[str] = Counter()
    names = {t.name for t in model.tensors}
    for tensor in model.tensors:
        if len(tensor.shape) < 2 or (tensor.name == "token_embd.weight" and "output.weight" in names):
            continue
        bytes_read += tensor.bytes
        macs += int(np.prod(tensor.shape))
        types[tensor.type] += int(np.prod(tensor.shape)) if tensor.name.startswith("blk.") else 0
    return bytes_read, macs, types.most_common(1)[0][0]


def check_against(peer_logits: np.ndarray, our_logits: np.ndarray, name: str) -> None:
    top = np.argsort(our_logits)[-20:]
    difference = peer_logits[top] - our_logits[top]
    rms = float(np.sqrt(np.mean((difference - difference.mean()) ** 2)))
    if not rms < OFFSET_FREE_RMS:
        raise harness.CheckFailed(f"{name}: top-20 logits differ by {rms:.3f} RMS (allowed {OFFSET_FREE_RMS})")


def run(context: harness.Context, suite: str) -> None:
    model = lmnative.Model(context.model)
    bytes_read, macs, type_name = weight_bytes_and_macs(model)
    # The same prompt comes again and again, and is to be computed each time.
    llm = lmnative.LLM(context.model, threads=context.threads, context_tokens=2048, prefix_cache=False)
    sessions = {
        peer.NAME: (peer, peer.Session(context.model, context.threads, 2048)) for peer in context.peers(["llama_cpp"])
    }
    versions = {name: peer.version() for name, (peer, _) in sessions.items()}
    ids = llm.tokenizer.encode(TEXT)
    rounds = 3 if context.quick else 7
    prompt = ids[:512] if suite == "prefill" else ids[:32]

    our_logits = np.from_dlpack(llm.score(prompt))[-1]
    for name, (_, session) in sessions.items():
        session.prefill_seconds(prompt)
        check_against(session.logits(), our_logits, f"{suite} of {name}")

    if suite == "prefill":

        def ours() -> float:
            start = time.perf_counter()
            out = llm.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True)
            seconds = time.perf_counter() - start
            if out.usage.cached_tokens != 0:
                raise harness.CheckFailed("prefill: a part of the prompt was not computed")
            return len(prompt) / seconds

        contenders = {"lmnative": ours}
        for name, (_, session) in sessions.items():
            contenders[name] = lambda s=session: len(prompt) / s.prefill_seconds(prompt)
        head = int(np.prod(next(t for t in model.tensors if t.name in ("output.weight", "token_embd.weight")).shape))
        floor = 2 * context.machine["fma_gflop_s"] * 1e9 / (2 * (macs - head))
        label = f"prefill.512.{type_name}"
    else:
        reference = llm.generate(prompt, max_tokens=DECODE_TOKENS + 1, temperature=0, ignore_eos=True).token_ids

        def ours() -> float:
            out = llm.generate(prompt, max_tokens=DECODE_TOKENS + 1, temperature=0, ignore_eos=True)
            if out.token_ids != reference:
                raise harness.CheckFailed("decode: the same request gave other tokens")
            return DECODE_TOKENS / out.usage.decode_seconds

        contenders = {"lmnative": ours}
        for name, (_, session) in sessions.items():
            contenders[name] = lambda s=session: DECODE_TOKENS / s.decode_seconds(prompt, DECODE_TOKENS)
        floor = context.machine["read_gb_s"] * 1e9 / bytes_read
        label = f"decode.b1.{type_name}"
    samples = harness.alternate(contenders, rounds)
    context.add(label, "tok/s", "higher", samples, floor, versions)
    if suite == "decode":
        print(
            f"bench: {label}: {bytes_read / 1e6:.1f} MB a token, "
            f"{bytes_read * statistics.median(samples['lmnative']) / 1e9:.1f} GB/s of "
            f"{context.machine['read_gb_s']} GB/s",
            file=sys.stderr,
        )
    llm.close()
    for _, session in sessions.values():
        session.close()
