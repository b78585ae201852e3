# SPDX-License-Identifier: Apache-2.0
"""memory.pair.SIZE: ns to free the oldest of 16 live objects and allocate one, in one thread; memory.pair.256.c_abi:
the same through lmn_pool_alloc and lmn_pool_free; memory.cross.4096: ns of both threads for an object that one
allocates and another frees; memory.trace: ns an event of a recorded run; memory.trace.fragmentation: % of what its
allocations got and did not ask for.

Measured is the C++ pool that the engine uses, compiled from this tree; every byte is checked before anything is timed.
Floors: a pair of the same loop with an array of addresses for an allocator.

memory.trace is a run of SmolLM2-135M with torch, each operator allocating its result: 170,646 events of 64 bytes to
0.6 MB (micro/memory_torch_run.py). memory.trace.engine is everything that this library, its tests' C client and the C++
library allocate in a run that opens the default model, builds the engine and answers: 244,356 events, most of them
small nodes of containers, which a pool of 64-byte classes is not made for. Recorded with micro/memory_recorder.c.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import tempfile
from pathlib import Path

import harness
import lmnative

MICRO = harness.BENCH / "micro"
TRACES = ("memory_llm.trace.xz", "memory_engine.trace.xz")


def build(folder: Path) -> Path:
    root = harness.BENCH.parent
    program = folder / "memory_bench"
    sources = [
        MICRO / "memory.cc",
        *sorted((root / "cpp/memory").glob("*.cc")),
        *sorted((root / "cpp/core").glob("*.cc")),
    ]
    flags = ["-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-fno-semantic-interposition"]
    includes = [f"-I{root / 'cpp'}", f"-I{root / 'include'}"]
    command = [os.environ.get("CXX", "c++"), *flags, *includes, *sources, "-o", program, "-lpthread", "-ldl"]
    subprocess.run(command, check=True)
    return program


def run(context: harness.Context, suite: str) -> None:
    peers = {peer.NAME: peer for peer in context.peers(["malloc", "mimalloc"])}
    words = [f"c_abi={lmnative.get_library()}"]
    words += [f"mimalloc={peers['mimalloc'].library()}"] if "mimalloc" in peers else []
    words += ["malloc"] if "malloc" in peers else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = [folder / trace.removesuffix(".xz") for trace in TRACES]
        for packed, trace in zip(TRACES, traces, strict=True):
            trace.write_bytes(lzma.decompress((MICRO / packed).read_bytes()))
        rounds = "9" if context.quick else "31"
        done = subprocess.run([build(folder), rounds, *traces, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise harness.CheckFailed(done.stderr.strip())
    results = json.loads(done.stdout)
    floor = min(results.pop("floor")["lmnative"])
    versions = {name: peer.version() for name, peer in peers.items()}
    for name, samples in results.items():
        unit = "%" if name.endswith("fragmentation") else "ns"
        context.add(name, unit, "lower", samples, floor if ".pair." in name else None, versions)
