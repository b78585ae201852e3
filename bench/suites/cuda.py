# SPDX-License-Identifier: Apache-2.0
"""Language models on the first NVIDIA device, with the shape of Llama 3.1 8B and random weights.

cuda.copy_gb_s: bytes a second that its memory reads and writes in a copy (micro/cuda_copy.cu), by which the limit of
decoding is reckoned. cuda.decode.bN.TYPE and cuda.prefill.N.TYPE: tokens a second, as in the suites batch and prefill.
cuda.host_gap.TYPE: µs in which the device has nothing to do between two steps of one answer; cuda.launches_per_step:
kernels and recordings that the host starts for one. These two are counted by torch.profiler and need torch.

cuda.product.f16: TFLOP/s of a session whose products of float16 matrices have the same sizes in every run, by our
kernel and by cuBLASLt, where it is found (cuda/README.md)."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from pathlib import Path

import contenders
import harness
import lmnative
import numpy as np
from models import files
from suites.language_model import PROMPT, Match, prompt_ids

DEVICE = "cuda"
LABELS = ("llama8b.q4_k_m", "llama8b.bf16")
BATCHES = (1, 8, 64)
PREFILLS = (512, 4096)
DECODE_TOKENS = 96
PROFILED_TOKENS = 64
# Rows, columns of the square matrix, and products one after the other: 1.1 TFLOP for 16 MB that go to the device.
PRODUCT, PRODUCT_ROWS, PRODUCT_COLUMNS, PRODUCT_COUNT = "cuda.product.f16", 2048, 4096, 16
LT_LIBRARY = "LMN_CUBLAS_LT_LIBRARY"


def run(context: harness.Context, suite: str) -> None:
    try:
        lmnative.LLM(context.model, device=DEVICE, context_tokens=64).close()
        copy_gb_s = probe(context)
    except (lmnative.Error, OSError, subprocess.CalledProcessError) as error:
        context.leave_out("cuda", str(getattr(error, "stderr", None) or error).strip())
        return
    labels = (contenders.main_type(lmnative.Model(context.model)),) if context.model_given else LABELS
    for label in labels:
        if any(context.is_wanted(name) for name in names(label)):
            try:
                measure(context, label, copy_gb_s)
            except files.CannotMake as reason:
                context.leave_out(f"cuda.*.{label}", str(reason))
    if context.is_wanted(PRODUCT):
        products(context)


def names(label: str) -> list[str]:
    kinds = [f"decode.b{n}" for n in BATCHES] + [f"prefill.{n}" for n in PREFILLS] + ["host_gap", "launches_per_step"]
    return [f"cuda.{kind}.{label}" for kind in kinds]


def probe(context: harness.Context) -> float:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "cuda_copy"
        source = harness.BENCH / "micro" / "cuda_copy.cu"
        subprocess.run([nvcc, "-O2", "-o", program, source], check=True, capture_output=True, text=True)
        shown = [subprocess.run([program], check=True, capture_output=True, text=True).stdout for _ in range(3)]
    measured = [json.loads(text) for text in shown]
    context.machine |= {"gpu": measured[0]["gpu"], "copy_gb_s": max(one["copy_gb_s"] for one in measured)}
    context.add("cuda.copy_gb_s", "GB/s", "higher", {"lmnative": [one["copy_gb_s"] for one in measured]})
    return context.machine["copy_gb_s"]


def measure(context: harness.Context, label: str, copy_gb_s: float) -> None:
    tokens = 32 if context.quick else DECODE_TOKENS
    sequences, spare = max(BATCHES), 32
    match = Match(
        context,
        "cuda",
        label,
        max(PREFILLS) + spare,
        sequences,
        activation_bits=None,  # what is the default there
        device=DEVICE,
        kv_tokens=max(max(PREFILLS) + spare, sequences * (PROMPT + tokens + spare)),
    )
    try:
        rounds = 3 if context.quick else 7
        tokenizer = match.ours.llm.tokenizer
        ids = prompt_ids(tokenizer, PROMPT + sequences)
        prompts = [ids[i : i + PROMPT] for i in range(sequences)]
        cost, starts = match.cost, itertools.count(max(ids) + 1)
        for n in BATCHES:
            name = f"cuda.decode.b{n}.{label}"
            if not context.is_wanted(name):
                continue
            for prompt in prompts[:n]:
                match.ours.decode_seconds(prompt, tokens)  # alone: what the batch must repeat
            hold = methodcaller("hold", prompts[:n])
            hold(match.ours)
            match.prepare(prompts[0], name, hold)
            read = cost.bytes / n + cost.kv_bytes * (PROMPT + tokens / 2)
            report(match, name, methodcaller("held_seconds", tokens), rounds, n * tokens, copy_gb_s * 1e9 / read, read)
        for n in PREFILLS:
            name = f"cuda.prefill.{n}.{label}"
            if context.is_wanted(name):
                # Nothing of a prompt may be there already: each begins with another token.
                prompt = prompt_ids(tokenizer, n)
                prompt[0] = next(starts)
                match.prepare(prompt, name, methodcaller("prefill_seconds", prompt))
                fresh = partial(prefill_seconds, ([start, *prompt[1:]] for start in starts))
                report(match, name, fresh, rounds, n, None, cost.bytes / n)
        if any(context.is_wanted(name) for name in names(label)[-2:]):
            profile(context, match.ours, prompts[0], label)
    finally:
        match.close()


def prefill_seconds(prompts, session) -> float:
    return session.prefill_seconds(next(prompts))


def report(
    match: Match,
    name: str,
    run: Callable[[object], float],
    rounds: int,
    tokens: int,
    floor: float | None,
    read: float,
) -> None:
    """run(session) gives seconds of `tokens` tokens, each of which reads `read` bytes."""
    runs = {who: partial(run, session) for who, session in {"lmnative": match.ours, **match.peers}.items()}
    seconds = harness.alternate(runs, rounds, partial(match.drop, name))
    samples = {who: [tokens / s for s in values] for who, values in seconds.items()}
    rate = statistics.median(samples["lmnative"])
    figures = {
        "bytes_per_token": round(read),
        "gb_s": round(read * rate / 1e9, 2),
        "gop_s": round(2 * match.cost.macs * rate / 1e9, 1),
    }
    match.context.add(name, "tok/s", "higher", samples, floor, match.versions, figures)


def profile(context: harness.Context, session: contenders.Session, prompt: list[int], label: str) -> None:
    gap_name, launches_name = names(label)[-2:]
    try:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as torch_profile
    except ImportError:
        context.leave_out(f"{gap_name}, {launches_name}", "it takes torch's profiler: pip install torch")
        return
    session.decode_seconds(prompt, PROFILED_TOKENS)  # everything has been recorded by now
    with torch_profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        session.decode_seconds(prompt, PROFILED_TOKENS)
    events = profiler.profiler.kineto_results.events()
    # (begin, end, name) in ns
    on_device = sorted(
        (e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in events if e.device_type().name == "CUDA"
    )
    launches = sorted(e.start_ns() for e in events if e.name().startswith(("cudaLaunchKernel", "cudaGraphLaunch")))
    # A step ends with its token on the way to the host.
    ends = [i for i, event in enumerate(on_device[:-1]) if "DtoH" in event[2]]
    if len(ends) < PROFILED_TOKENS // 2 or not launches:
        context.leave_out(f"{gap_name}, {launches_name}", "torch's profiler does not show the device's work")
        return
    ends = ends[len(ends) // 4 :]  # past the prompt
    gaps = [(on_device[i + 1][0] - on_device[i][1]) / 1000 for i in ends]
    marks = [bisect.bisect(launches, on_device[i][1]) for i in ends]
    per_step = [float(after - before) for before, after in itertools.pairwise(marks)]
    context.add(gap_name, "us", "lower", {"lmnative": gaps})
    context.add(launches_name, "launches", "lower", {"lmnative": per_step})


@contextlib.contextmanager
def lt_library(wanted: bool) -> Iterator[None]:
    """Sessions that first run meanwhile look for cuBLASLt, or do without."""
    before = os.environ.get(LT_LIBRARY)
    if not wanted:
        os.environ[LT_LIBRARY] = "0"
    try:
        yield
    finally:
        os.environ.pop(LT_LIBRARY, None)
        if before is not None:
            os.environ[LT_LIBRARY] = before


def products(context: harness.Context) -> None:
    numbers = np.random.default_rng(1)
    graph = lmnative.Graph()
    made = graph.input("x", "float16", (PRODUCT_ROWS, PRODUCT_COLUMNS))
    # Values keep their size from product to product.
    factor = numbers.uniform(-1, 1, (PRODUCT_COLUMNS, PRODUCT_COLUMNS)) * (3 / PRODUCT_COLUMNS) ** 0.5
    weight = graph.constant(factor.astype(np.float16))
    for _ in range(PRODUCT_COUNT):
        made = made @ weight
    graph.output("lengths", graph.op("ReduceL2", made, [1]))  # little goes back to the host
    feeds = {"x": numbers.uniform(-1, 1, (PRODUCT_ROWS, PRODUCT_COLUMNS)).astype(np.float16)}
    sessions, lengths = {}, {}
    for who, wanted in (("lmnative", False), ("cublas_lt", True)):
        session = graph.session(device=DEVICE)
        with lt_library(wanted):
            lengths[who] = session.run(None, feeds)[0].astype(np.float64)
        if wanted and session.places["cublas_lt"] != PRODUCT_COUNT:
            context.leave_out(f"{PRODUCT} by cublas_lt", "it was not found, or has nothing for these products")
            continue
        if not np.array_equal(session.run(None, feeds)[0], lengths[who]):
            raise harness.CheckFailed(f"{PRODUCT}: two runs of {who} differ")
        if np.abs(lengths[who] / lengths["lmnative"] - 1).max() > 0.01:  # 16 roundings to 11 bits
            raise harness.CheckFailed(f"{PRODUCT}: {who} gives something else")
        sessions[who] = session
    rounds = 5 if context.quick else 15
    runs = {who: partial(run_seconds, session, feeds) for who, session in sessions.items()}
    flop = 2e-12 * PRODUCT_ROWS * PRODUCT_COLUMNS**2 * PRODUCT_COUNT
    seconds = harness.alternate(runs, rounds)
    context.add(PRODUCT, "TFLOP/s", "higher", {who: [flop / s for s in values] for who, values in seconds.items()})


def run_seconds(session: lmnative.Session, feeds: dict) -> float:
    start = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - start
