# SPDX-License-Identifier: Apache-2.0
"""What the engine costs around the model, with null models through the C ABI (macro/host.c).

host.step.bN: µs of a decode step of N answers, from its begin to the next one's, without the plan (p50 of the steps of
one run); the vocabulary has 256 tokens, and 49152 where the name says so. host.first_token: µs from submit to the token
in the hands of a client that waits in lmn_request_next; host.first_news: that sleeps on the engine's descriptor.
host.inter_token.beside: how an answer of the real model fares beside a prompt of 4,000 tokens (macro/inter_token.c):
the 99th percentile of the time between its tokens, over that of the same answer alone.
host.tokens_per_s.b256: engine and client together on one CPU. host.allocs_per_step: heap allocations of the whole
process in steady steps, the most of all runs. Every token is compared with the reference before a figure is taken."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import harness

VOCAB = 256
REAL_VOCAB = 49152  # SmolLM2's
STEPS = {  # (vocabulary, answers) -> steps of a run
    (VOCAB, 1): 20_000,
    (VOCAB, 64): 5_000,
    (VOCAB, 256): 2_000,
    (REAL_VOCAB, 1): 5_000,
    (REAL_VOCAB, 64): 1_000,
    (REAL_VOCAB, 256): 300,
}
LEAST_STEPS = 1_000  # of a run whose allocations are counted
BESIDE_TOKENS = 4_000  # of the prompt beside an answer


def ask(program: Path, *arguments: object, cpu: int | None = None) -> dict[str, float]:
    """One run of the program; on one CPU if `cpu` is given."""
    limit = None if cpu is None else (lambda: os.sched_setaffinity(0, {cpu}))
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, preexec_fn=limit, check=False
    )
    if done.returncode != 0:
        raise harness.CheckFailed(f"host {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def run(context: harness.Context, suite: str) -> None:
    rounds = 3 if context.quick else 9
    tokens = 2_000 if context.quick else 10_000  # first tokens in a round
    cpu = max(os.sched_getaffinity(0))
    steps: dict[str, list[float]] = {}
    allocations: list[float] = []
    rates, slowdowns = [], []
    latencies = {name: {"p50": [], "p99": []} for name in ("first_token", "first_news")}
    with tempfile.TemporaryDirectory() as folder:
        program = harness.build_client("host", folder)
        for _ in range(rounds):
            for (vocab, batch), count in STEPS.items():
                got = ask(program, "steps", vocab, batch, count)
                suffix = "" if vocab == VOCAB else f".v{vocab}"
                steps.setdefault(f"host.step.b{batch}{suffix}", []).append(got["step_us_p50"])
                if got["steps"] >= LEAST_STEPS:
                    allocations.append(got["allocations"] / got["steps"])
            rates.append(ask(program, "steps", VOCAB, 256, 4_000, cpu=cpu)["tokens_per_s"])
            for name in latencies:
                got = ask(program, name, VOCAB, tokens)
                for percentile, values in latencies[name].items():
                    values.append(got[percentile])
        beside = harness.build_client("inter_token", folder)
        for _ in range(1 if context.quick else 3):
            got = ask(beside, context.model, context.threads, BESIDE_TOKENS)
            slowdowns.append(got["beside_p99"] / got["alone_p99"])
    for name, values in steps.items():
        context.add(name, "us", "lower", {"lmnative": values})
    for name, by_percentile in latencies.items():
        for percentile, values in by_percentile.items():
            context.add(f"host.{name}.{percentile}", "us", "lower", {"lmnative": values})
    context.add("host.inter_token.beside", "ratio", "lower", {"lmnative": slowdowns})
    context.add("host.tokens_per_s.b256", "tok/s", "higher", {"lmnative": rates})
    context.add("host.allocs_per_step", "allocations", "lower", {"lmnative": [max(allocations)]})
