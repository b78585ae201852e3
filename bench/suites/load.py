# SPDX-License-Identifier: Apache-2.0
"""load.first_token: milliseconds from process start to the first generated token in a C program, with the file in the
page cache; load.peak_rss: that process's peak, MiB. The floor is reading the file once and writing it once packed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import harness
import lmnative


def run(context: harness.Context, suite: str) -> None:
    rounds = 5 if context.quick else 15
    Path(context.model).read_bytes()  # into the page cache
    with tempfile.TemporaryDirectory() as folder:
        program = harness.build_client("first_token", folder)
        milliseconds, rss = [], []
        expected = None
        for _ in range(rounds + 1):
            start = time.perf_counter()
            done = subprocess.run([program, context.model, str(context.threads)], check=True, capture_output=True)
            milliseconds.append((time.perf_counter() - start) * 1e3)
            token, peak_kib = (int(x) for x in done.stdout.split())
            rss.append(peak_kib / 1024)
            if expected is not None and token != expected:
                raise harness.CheckFailed(f"load: first token {token}, before it was {expected}")
            expected = token
    llm = lmnative.LLM(context.model, threads=context.threads)
    token = llm.generate("The capital of France is", max_tokens=1, temperature=0).token_ids[0]
    llm.close()
    if token != expected:
        raise harness.CheckFailed(f"load: first token {expected} in C, {token} in Python")
    floor = 2 * os.path.getsize(context.model) / context.machine["read_gb_s"] / 1e6
    context.add("load.first_token", "ms", "lower", {"lmnative": milliseconds[1:]}, floor)
    context.add("load.peak_rss", "MiB", "lower", {"lmnative": rss[1:]}, os.path.getsize(context.model) / 2**20)
