# SPDX-License-Identifier: Apache-2.0
"""What the queue between clients and the engine costs.

queue.1p1c, queue.4p1c: million values per second, each producer at a level of its own. queue.1p1c.levels: one
producer goes round four levels. queue.wake.polling, .parked, .parked.awake: µs (p50) from push to an idle consumer's
start of work, when both poll, when both slept, and when only the consumer did: then an idle CPU has to be woken. The
floor is one word instead of a queue, and the bare system call where the consumer is parked.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import harness

ROOT = harness.BENCH.parent
PEERS = {  # contender -> the package that brings its header
    "moodycamel": "apt-get install libconcurrentqueue-dev",
    "moodycamel.tokens": "apt-get install libconcurrentqueue-dev",
    "boost.lockfree": "apt-get install libboost-dev",
}
WAKE_PEERS = ("moodycamel",)  # its BlockingConcurrentQueue; the others have no wait


def build(folder: str) -> Path:
    program = Path(folder) / "queue"
    sources = [harness.BENCH / "micro" / "queue.cc", ROOT / "cpp" / "parallel" / "event_count.cc"]
    flags = ["-std=c++20", "-O3", "-DNDEBUG", f"-I{ROOT / 'cpp'}"]
    subprocess.run([os.environ.get("CXX", "c++"), *flags, "-o", program, *sources, "-lpthread"], check=True)
    return program


def package_version(name: str) -> str:
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", name], capture_output=True, text=True)
    except OSError:
        return "?"
    return done.stdout if done.returncode == 0 else "?"


def run(context: harness.Context, suite: str) -> None:
    rounds = 5 if context.quick else 15
    values = 1_000_000 if context.quick else 4_000_000
    wakes = 1_000 if context.quick else 4_000
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)

        def call(*words: object) -> str:
            done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
            if done.returncode != 0:
                raise harness.CheckFailed(f"queue: {' '.join(map(str, words))}: {done.stderr.strip()}")
            return done.stdout

        versions = dict(line.split() for line in call("contenders").splitlines())
        for peer, command in PEERS.items():
            if versions.get(peer) == "?":
                versions[peer] = package_version(command.split()[-1])
        peers = []
        if context.args.peers:
            peers = [peer for peer in PEERS if peer in versions]
            context.absent |= {peer: command for peer, command in PEERS.items() if peer not in versions}

        def measure(names: list[str], *words: object) -> dict[str, list[float]]:
            mode, *rest = words
            return harness.alternate({name: lambda name=name: float(call(mode, name, *rest)) for name in names}, rounds)

        for result, mode, producers in (
            ("queue.1p1c", "throughput", 1),
            ("queue.4p1c", "throughput", 4),
            ("queue.1p1c.levels", "spread", 1),
        ):
            samples = measure(["lmnative", *peers], mode, producers, values)
            context.add(result, "M ops/s", "higher", samples, versions=versions)
        waiting = ["lmnative", "futex", *(peer for peer in peers if peer in WAKE_PEERS)]
        for kind in ("polling", "parked", "parked.awake"):
            samples = measure(waiting, "wake", kind, wakes)
            floor = harness.percentile(samples.pop("futex"), 50)
            context.add(f"queue.wake.{kind}", "µs", "lower", samples, floor, versions)
