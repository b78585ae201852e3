# SPDX-License-Identifier: Apache-2.0
"""load.first_token: milliseconds from process start to the first generated token in a C program, with the file in the
page cache; load.peak_rss: that process's peak, MiB. The floor is reading the file once and writing it once packed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import harness
import lmnative


def run(context: harness.Context, suite: str) -> None:
    if not (context.is_wanted("load.first_token") or context.is_wanted("load.peak_rss")):
        return
    rounds = 5 if context.quick else 15
    Path(context.model).read_bytes()  # into the page cache
    with tempfile.TemporaryDirectory() as folder:
        programs = {"lmnative": harness.build_client("first_token", folder)}
        versions = {}
        for peer in context.peers(["llama_cpp"]):
            try:
                programs[peer.NAME] = peer.build_first_token(folder)
                versions[peer.NAME] = peer.version()
            except (ImportError, subprocess.CalledProcessError) as error:
                context.leave_out(f"load of {peer.NAME}", str(error))
        rss: dict[str, list[float]] = {name: [] for name in programs}
        tokens: dict[str, set[int]] = {name: set() for name in programs}

        def milliseconds(name: str) -> float:
            start = time.perf_counter()
            done = subprocess.run([programs[name], context.model, str(context.threads)], capture_output=True, text=True)
            elapsed = (time.perf_counter() - start) * 1e3
            if done.returncode != 0:
                reason = done.stderr.strip() or f"exit status {done.returncode}"
                raise harness.CheckFailed(f"load: {reason}") if name == "lmnative" else RuntimeError(reason)
            token, peak_kib = (int(x) for x in done.stdout.split())
            tokens[name].add(token)
            rss[name].append(peak_kib / 1024)
            return elapsed

        samples = harness.alternate(
            {name: partial(milliseconds, name) for name in programs},
            rounds,
            lambda name, reason: context.leave_out(f"load of {name}", reason),
        )
    llm = lmnative.LLM(context.model, threads=context.threads)
    token = llm.generate("The capital of France is", max_tokens=1, temperature=0).token_ids[0]
    llm.close()
    for name in samples:
        if tokens[name] != {token}:
            raise harness.CheckFailed(f"load: first tokens {sorted(tokens[name])} of {name} in C, {token} in Python")
    memory = {name: rss[name][1:] for name in samples}  # alternate() warms up, too
    size = os.path.getsize(context.model)
    floor = 2 * size / context.machine["read_gb_s"] / 1e6
    context.add("load.first_token", "ms", "lower", samples, floor, versions)
    context.add("load.peak_rss", "MiB", "lower", memory, size / 2**20, versions)
