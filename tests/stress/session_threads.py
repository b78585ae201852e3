#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many threads on one session: right results, and memory that does not grow.

    python tests/stress/session_threads.py [-n 100000] [--threads 8] [--window MICROSECONDS]

Runs relu_linear.onnx on inputs of 1 to 4 rows, half by run() and half by run_async(). Prints a summary as JSON; exits
with 1 after a wrong result, or if the process grew by more than 8 MiB after the first tenth.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from pathlib import Path

import lmnative
import numpy as np

MODEL = Path(__file__).resolve().parent.parent / "onnx" / "relu_linear.onnx"
B = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
BIAS = np.array([-20, 0, 0.5], np.float32)
MOST_GROWTH = 8 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100_000, help="runs of all threads together")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--window", type=int, default=0, help="batch_window_us of the session")
    given = parser.parse_args()
    session = lmnative.Session(MODEL, threads=2, batch_window_us=given.window)
    cases = []
    for i in range(16):
        a = np.random.default_rng(i).integers(-9, 9, (1 + i % 4, 4)).astype(np.float32)
        cases.append(({"A": a}, np.maximum(a @ B + BIAS, 0).tobytes()))
    wrong: list[int] = []

    def work(thread: int, count: int) -> None:
        for i in range(count):
            feeds, want = cases[(thread + i) % len(cases)]
            run = session.run(None, feeds) if i % 2 == 0 else session.run_async(None, feeds).result(timeout=60)
            if run[0].tobytes() != want:
                wrong.append(i)

    def work_all(count: int) -> None:
        threads = [threading.Thread(target=work, args=(t, count // given.threads)) for t in range(given.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    began = time.monotonic()
    work_all(given.n // 10)
    before = resident()
    work_all(given.n - given.n // 10)
    growth = resident() - before
    print(json.dumps({
        "runs": given.n, "threads": given.threads, "wrong": len(wrong), "growth_kb": growth >> 10,
        "seconds": round(time.monotonic() - began, 1),
    }))  # fmt: skip
    return 1 if wrong or growth > MOST_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
