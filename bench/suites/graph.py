# SPDX-License-Identifier: Apache-2.0
"""ONNX models through sessions: small ones in µs, real ones in ms.

    graph.tiny.c_bound      relu(A·B + bias) of 16x16, bound, from C (the peer: bound, from Python)
    graph.tiny.py_bound     the same from Python
    graph.tiny.py_numpy     the same, feeds and results are numpy arrays
    graph.mlp.bN            784-512-512-10, N rows
    graph.minilm.BxT        all-MiniLM-L6-v2, B texts of T tokens
    graph.minilm_int8.BxT   the same, dynamically quantised
    graph.resnet18          one image of 224x224
    graph.lstm.bN           two layers of 64 both ways, N sequences of 32 steps
    graph.silero_vad        a voice detector, 32 ms of sound at 16 kHz, where the package silero-vad is installed

From mlp on, runs are bound on both sides. Outputs are compared with the peer's, and with those of the graph as the file
has it where there is no peer. Floors: float32 products at the rate of the probe.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import harness
import lmnative
import numpy as np
from models import files, onnx_files

TOLERANCE = 1e-4  # of the largest output, for float32
# Of the root mean square, where activations are rounded to 8 bits as they come: an ulp before may become a step
# afterwards. The peer's optimiser moves its own results by up to 0.10.
INT8_TOLERANCE = 0.15

MINILM_SIZES = ((1, 16), (1, 128), (8, 128))
MINILM_LAYERS, MINILM_WIDTH, MINILM_INNER = 6, 384, 1536


def minilm_products(batch: int, tokens: int) -> int:
    per_token = 4 * MINILM_WIDTH**2 + 2 * MINILM_WIDTH * MINILM_INNER + 2 * tokens * MINILM_WIDTH
    return batch * tokens * MINILM_LAYERS * per_token


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def minilm_feeds(batch: int, tokens: int) -> dict:
    from models import minilm

    return minilm.inputs(batch, tokens, padded=batch > 1)


def silero_file() -> Path | None:
    """Its file, found without importing the package, which loads torch."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = sorted((Path(spec.submodule_search_locations[0]) / "data").glob("silero_vad.onnx"))
    return found[0] if found else None


def silero_feeds() -> dict:
    sound = 0.1 * uniform(1, 576)
    return {"input": sound, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


# result -> file, feeds, products, tolerance
Case = tuple[str, Callable[[], dict], int, float]


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for n in (1, 32):
        products = n * (784 * 512 + 512 * 512 + 512 * 10)
        found[f"graph.mlp.b{n}"] = ("mlp", lambda n=n: {"x": uniform(n, 784)}, products, TOLERANCE)
    for name, tolerance in (("minilm", TOLERANCE), ("minilm_int8", INT8_TOLERANCE)):
        for batch, tokens in MINILM_SIZES:
            feeds = lambda batch=batch, tokens=tokens: minilm_feeds(batch, tokens)  # noqa: E731
            products = minilm_products(batch, tokens)
            found[f"graph.{name}.{batch}x{tokens}"] = (name, feeds, products, tolerance)
    found["graph.resnet18"] = ("resnet18", lambda: {"image": uniform(1, 3, 224, 224)}, 1_814_073_344, TOLERANCE)
    for n in (1, 16):
        products = n * 32 * 2 * 4 * 64 * (40 + 64 + 128 + 64)
        found[f"graph.lstm.b{n}"] = ("lstm", lambda n=n: {"x": uniform(n, 32, 40)}, products, TOLERANCE)
    found["graph.silero_vad"] = ("silero_vad", silero_feeds, 0, TOLERANCE)
    return found


def check(name: str, ours: list, theirs: list, tolerance: float) -> None:
    """Of the largest output, or of the root mean square where rounding decides."""
    measure = rms if tolerance == INT8_TOLERANCE else largest
    if len(ours) != len(theirs):
        raise harness.CheckFailed(f"{name}: {len(ours)} outputs, expected {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            raise harness.CheckFailed(f"{name}: output {i} is {a.shape}, expected {b.shape}")
        error, size = measure(np.asarray(a, np.float64) - b), measure(b)
        if not error <= tolerance * max(size, 1e-6):
            raise harness.CheckFailed(f"{name}: output {i} differs by {error:.3g} of {size:.3g}")


def largest(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0.0))


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.square(x, dtype=np.float64).mean()))


def repeated(run: Callable[[], object], seconds: float) -> Callable[[], float]:
    """Gives the seconds of one run, the median of about `seconds` of them."""
    run()
    start = time.perf_counter()
    run()
    count = max(3, min(20_000, int(seconds / max(time.perf_counter() - start, 1e-7))))
    inner = max(1, count // 50)  # a clock is read around so many

    def measure() -> float:
        times = []
        for _ in range(max(3, count // inner)):
            start = time.perf_counter()
            for _ in range(inner):
                run()
            times.append((time.perf_counter() - start) / inner)
        return sorted(times)[len(times) // 2]

    return measure


def run(context: harness.Context, suite: str) -> None:
    folder = context.catalogue.folder
    peers = context.peers(["onnx_runtime"])
    wanted = {name: case for name, case in cases().items() if context.is_wanted(name)}
    tiny_names = ("graph.tiny.c_bound", "graph.tiny.py_bound", "graph.tiny.py_numpy")
    try:
        if any(context.is_wanted(name) for name in tiny_names):
            tiny(context, str(onnx_files.ensure("tiny", folder)), peers)
    except files.CannotMake as reason:
        for name in tiny_names:
            context.leave_out(name, str(reason))
    for name, (file, feeds, products, tolerance) in wanted.items():
        try:
            path = silero_file() if file == "silero_vad" else onnx_files.ensure(file, folder)
            if path is None:
                raise files.CannotMake("pip install --no-deps silero-vad")
            one(context, name, str(path), feeds(), products, tolerance, peers)
        except files.CannotMake as reason:
            context.leave_out(name, str(reason))


def one(context, name: str, path: str, feeds: dict, products: int, tolerance: float, peers: list) -> None:
    session = lmnative.Session(path, threads=context.threads)
    binding = session.bind(feeds)
    runs = {"lmnative": binding.run}
    results = [binding.outputs[port.name] for port in session.get_outputs()]
    binding.run()
    versions = {}
    for peer in peers:
        theirs = peer.Session(path, context.threads)
        check(name, results, theirs.run(feeds), tolerance)
        runs[peer.NAME] = theirs.bind(feeds)
        versions[peer.NAME] = peer.version()
    if not peers:
        plain = lmnative.Session(path, threads=1, optimize=False)
        check(name, results, plain.run(None, feeds), tolerance)
    before = context.probe()
    seconds = 0.15 if context.quick else 0.5
    contenders = {who: repeated(run, seconds) for who, run in runs.items()}
    samples = harness.alternate(contenders, 5 if context.quick else 11)
    after = context.probe()
    flops = max(before["fma_gflop_s"], after["fma_gflop_s"]) * 1e9
    check(name, results, session.run(None, feeds), tolerance)  # of the last run, by another road
    samples = {who: [1e3 * s for s in values] for who, values in samples.items()}
    floor = 2e3 * products / flops if products else None
    context.add(name, "ms", "lower", samples, floor, versions)


def tiny(context: harness.Context, path: str, peers: list) -> None:
    """Small enough that the call is what costs."""
    feeds = {"A": np.full((16, 16), 0.5, np.float32), "B": np.full((16, 16), 0.5, np.float32)}
    feeds["bias"] = np.full(16, 0.5, np.float32)
    expected = np.full((16, 16), 4.5, np.float32)
    session = lmnative.Session(path, threads=context.threads)
    binding = session.bind(feeds)
    binding.run()
    for results in ([binding.outputs["C"]], session.run(None, feeds)):
        check("graph.tiny", results, [expected], 1e-6)
    theirs = {peer.NAME: peer.Session(path, context.threads) for peer in peers}
    versions = {peer.NAME: peer.version() for peer in peers}
    bound = {name: peer.bind(feeds) for name, peer in theirs.items()}
    seconds, rounds = (0.05, 5) if context.quick else (0.2, 15)

    def add(name: str, runs: dict[str, Callable[[], float]]) -> None:
        if context.is_wanted(name):
            samples = harness.alternate(runs, rounds)
            samples = {who: [1e6 * s for s in values] for who, values in samples.items()}
            context.add(name, "µs", "lower", samples, versions=versions)

    with tempfile.TemporaryDirectory() as folder:
        program = harness.build_client("session_bound", folder)

        def c_bound() -> float:
            words = [program, path, str(context.threads), "20000", "9"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                raise harness.CheckFailed(f"graph.tiny.c_bound: {done.stderr.strip()}")
            microseconds, total = map(float, done.stdout.split())
            if total != float(expected.sum()):
                raise harness.CheckFailed(f"graph.tiny.c_bound: the sum is {total}")
            return microseconds / 1e6

        peer_bound = {name: repeated(run, seconds) for name, run in bound.items()}
        add("graph.tiny.c_bound", {"lmnative": c_bound, **peer_bound})
        add("graph.tiny.py_bound", {"lmnative": repeated(binding.run, seconds), **peer_bound})
        numpy_runs = {name: repeated(lambda peer=peer: peer.run(feeds), seconds) for name, peer in theirs.items()}
        ours = repeated(lambda: session.run(None, feeds), seconds)
        add("graph.tiny.py_numpy", {"lmnative": ours, **numpy_runs})
