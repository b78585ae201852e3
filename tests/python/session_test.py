# SPDX-License-Identifier: Apache-2.0
"""Sessions: ONNX Runtime's calling convention, every kind of value in and out, bindings, threads, errors."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import lmnative
import numpy as np
import pytest

MODEL = Path(__file__).resolve().parent.parent / "onnx" / "relu_linear.onnx"
B = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
BIAS = np.array([-20, 0, 0.5], np.float32)


def expected(a):
    return np.maximum(a @ B + BIAS, 0)


@pytest.fixture(scope="module")
def session():
    return lmnative.Session(MODEL, threads=1)


@pytest.fixture
def a():
    return np.arange(-8, 12, dtype=np.float32).reshape(5, 4)  # sums of products are exact


def one_node(op, inputs, outputs, *, opset=21, domain="", initializers=(), **attributes):
    """A session of one node; inputs and outputs: name -> (onnx type, shape) or a ready ValueInfoProto."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import helper

    def ports(given):
        return [v if not isinstance(v, tuple) else helper.make_tensor_value_info(k, *v) for k, v in given.items()]

    node = helper.make_node(op, [*inputs, *(i.name for i in initializers)], list(outputs), domain=domain, **attributes)
    graph = helper.make_graph([node], "g", ports(inputs), ports(outputs), list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=10)
    onnx.checker.check_model(model)
    return lmnative.Session(model.SerializeToString(), threads=1)


def test_runs(session, a):
    (c,) = session.run(None, {"A": a})
    assert isinstance(c, np.ndarray) and c.dtype == np.float32 and c.flags.writeable
    assert np.array_equal(c, expected(a))
    again = session.run(["C", "C"], {"A": a}, None)
    assert len(again) == 2 and np.array_equal(again[1], expected(a))
    (empty,) = session.run(("C",), {"A": a[:0]})
    assert empty.shape == (0, 3)


def test_ports(session):
    (port,) = session.get_inputs()
    assert (port.name, port.type, port.shape) == ("A", "tensor(float)", ["rows", 4])
    (port,) = session.get_outputs()
    assert (port.name, port.type, port.shape) == ("C", "tensor(float)", ["rows", 3])
    assert "rows" in repr(port)
    assert session.threads == 1


def test_sources(a):
    data = MODEL.read_bytes()
    for source in (str(MODEL), data, bytearray(data), memoryview(data)):
        assert np.array_equal(lmnative.Session(source, threads=2).run(None, {"A": a})[0], expected(a))


def test_the_graph_as_text(session):
    plain = lmnative.Session(MODEL, optimize=False, threads=1).graph()
    assert "MatMul(A, B)" in plain and "Relu(" in plain and "output C" in plain
    assert "output C" in session.graph(optimized=True)


def test_feeds_of_any_kind(session, a):
    class Old:  # a producer from before DLPack 1.0
        def __dlpack__(self, stream=None):
            return a.__dlpack__()

        def __dlpack_device__(self):
            return a.__dlpack_device__()

    wide = np.repeat(a, 2, axis=1)
    unaligned = np.frombuffer(b"x" + a.tobytes(), np.float32, offset=1).reshape(a.shape)
    odd = np.zeros(5, np.dtype([("x", np.int8), ("a", np.float32, (4,))]))  # strides of 17 bytes
    odd["a"] = a
    views = [np.asfortranarray(a), wide[:, ::2], a[::-1][::-1], unaligned, odd["a"], a.astype(">f4")]
    for feed in (*views, a.tolist(), Old()):
        assert np.array_equal(session.run(None, {"A": feed})[0], expected(a))
    read_only = a.copy()
    read_only.flags.writeable = False
    assert np.array_equal(session.run(None, {"A": read_only})[0], expected(a))


def test_torch(session, a):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert np.array_equal(session.run(None, {"A": torch.from_numpy(a)})[0], expected(a))
    assert np.array_equal(session.run(None, {"A": torch.from_numpy(a).T.contiguous().T})[0], expected(a))
    with pytest.raises(lmnative.InvalidArgumentError, match="input 'A' cannot be lent"):
        session.run(None, {"A": torch.from_numpy(a).requires_grad_()})
    negated = torch.complex(torch.zeros(5, 4), -torch.from_numpy(a)).conj().imag
    assert negated.is_neg() and np.array_equal(session.run(None, {"A": negated})[0], expected(a))
    with pytest.raises(lmnative.InvalidArgumentError, match="contiguous|resolve_neg"):
        session.bind({"A": negated}, {"C": torch.zeros(5, 3)})
    c = torch.zeros(5, 3)
    binding = session.bind({"A": torch.from_numpy(a)}, {"C": c})
    a += 1
    binding.run()
    assert np.array_equal(c.numpy(), expected(a))


def test_results_own_their_memory(a):
    session = lmnative.Session(MODEL, threads=1)
    (first,) = session.run(None, {"A": a})
    kept = first.copy()
    for _ in range(5):
        session.run(None, {"A": a * 2})
    del session
    gc.collect()
    assert np.array_equal(first, kept)


def test_results_share_nothing_with_feeds():
    session = one_node("Identity", {"x": (1, [None])}, {"y": (1, [None])})
    x = np.ones(3, np.float32)
    (y,) = session.run(None, {"x": x})
    x[:] = 2
    assert y.tolist() == [1, 1, 1]


def test_binding(session, a):
    c = np.empty((5, 3), np.float32)
    binding = session.bind({"A": a}, {"C": c})
    for step in range(3):
        a += step
        binding.run()
        assert np.array_equal(c, expected(a))
    made = session.bind({"A": a})
    assert np.array_equal(made.outputs["C"], expected(a)) and made.inputs["A"] is a
    a -= 3
    made.run()
    assert np.array_equal(made.outputs["C"], expected(a))


def test_binding_outlives_its_session(a):
    binding = lmnative.Session(MODEL, threads=2).bind({"A": a.copy()})
    gc.collect()
    binding.run()
    assert np.array_equal(binding.outputs["C"], expected(a))


def test_feeds_have_names(session, a):
    for run in (session.run, session.run_async):
        with pytest.raises(TypeError, match="feeds is ndarray; it maps names"):
            run(None, a)


def test_bindings_refuse_what_they_would_copy(session, a):
    c = np.empty((5, 3), np.float32)
    for inputs, outputs, text in (
        ({"A": np.asfortranarray(a)}, {"C": c}, "input 'A' must be a compact array"),
        ({"A": a}, {"C": np.empty((5, 6), np.float32)[:, ::2]}, "output 'C' must be a compact array"),
        ({"A": a}, {"C": np.broadcast_to(np.float32(0), (5, 3))}, "output 'C'"),
        ({"A": a}, {"C": np.empty((5, 4), np.float32)}, r"output 'C' is f32\[5, 4\]"),
        ({"A": a}, {"D": c}, "no value for output 'C'"),
        ({"A": a}, {"C": c, "D": c}, "there is no output 'D'"),
        ({}, {"C": c}, "no value for input 'A'"),
    ):
        with pytest.raises(lmnative.InvalidArgumentError, match=text):
            session.bind(inputs, outputs)
    shared = np.zeros(a.size + c.size - 1, np.float32)  # one element is both's
    overlapping = {"A": shared[: a.size].reshape(a.shape)}, {"C": shared[a.size - 1 :].reshape(5, 3)}
    with pytest.raises(lmnative.InvalidArgumentError, match="output 'C' overlaps input 'A' in memory"):
        session.bind(*overlapping)
    frozen = c.copy()
    frozen.flags.writeable = False
    with pytest.raises(lmnative.InvalidArgumentError, match="read-only"):
        session.bind({"A": a}, {"C": frozen})
    with pytest.raises(TypeError, match="input 'A'"):
        session.bind({"A": a.tolist()}, {"C": c})


@pytest.mark.parametrize(
    ("feeds", "error", "text"),
    [
        ({}, lmnative.InvalidArgumentError, "no value for input 'A'"),
        ({"A": None}, lmnative.InvalidArgumentError, "input 'A' is None"),
        (
            {"A": np.zeros((1, 4), np.float32), "Z": 1},
            lmnative.InvalidArgumentError,
            "no input 'Z'; the inputs are 'A'",
        ),
        ({"A": np.zeros((1, 4))}, lmnative.InvalidArgumentError, "input 'A' is f64"),
        ({"A": np.zeros((1, 5), np.float32)}, lmnative.InvalidArgumentError, "input 'A' is f32"),
        ({"A": np.zeros(4, np.float32)}, lmnative.InvalidArgumentError, "input 'A' is f32"),
        ({"A": np.zeros((1,) * 9, np.float32)}, lmnative.InvalidArgumentError, "input 'A' has 9 dimensions; 8 at most"),
        ({"A": np.zeros((1, 4), complex)}, TypeError, "input 'A' is an array of complex128"),
        ({"A": "text"}, TypeError, "input 'A'"),
        ({"A": object()}, TypeError, "input 'A'"),
    ],
)
def test_wrong_feeds(session, feeds, error, text):
    with pytest.raises(error, match=text):
        session.run(None, feeds)


def test_wrong_names_of_outputs(session, a):
    with pytest.raises(lmnative.InvalidArgumentError, match="no output 'D'; the outputs are 'C'"):
        session.run(["D"], {"A": a})
    with pytest.raises(TypeError, match="list of names"):
        session.run("C", {"A": a})


def test_wrong_files(tmp_path):
    with pytest.raises(lmnative.NotFoundError, match="nothing_here"):
        lmnative.Session(tmp_path / "nothing_here.onnx")
    for path, folder in ((f"{MODEL}\0", None), (MODEL, "\0")):
        with pytest.raises(lmnative.InvalidArgumentError, match="holds a NUL byte"):
            lmnative.Session(path, base_folder=folder)
    with pytest.raises(lmnative.CorruptError):
        lmnative.Session(b"\xff" * 100)
    with pytest.raises(lmnative.InvalidArgumentError, match="threads"):
        lmnative.Session(MODEL, threads=-1)
    with pytest.raises(TypeError, match="threads"):
        lmnative.Session(MODEL, threads=1.5)


def test_a_limit_of_memory(a):
    session = lmnative.Session(MODEL, threads=1, max_arena_bytes=1, optimize=False)
    with pytest.raises(lmnative.OutOfMemoryError, match="max_arena_bytes allows it 1$"):
        session.run(None, {"A": a})


def test_threads(a):
    session = lmnative.Session(MODEL, threads=2, max_shapes=2)
    wrong = []

    def work(rows):
        feed = np.random.default_rng(rows).integers(-9, 9, (rows, 4)).astype(np.float32)
        for _ in range(200):
            if not np.array_equal(session.run(None, {"A": feed})[0], expected(feed)):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_is_told(a):
    session = lmnative.Session(MODEL, threads=2)
    session.run(None, {"A": a})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            session.run(None, {"A": a})
        except lmnative.ClosedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_strings():
    session = one_node("StringConcat", {"a": (8, [None]), "b": (8, [1])}, {"y": (8, [None])})
    assert session.get_inputs()[0].type == "tensor(string)"
    for a in (np.array(["x", "é\0"], object), np.array(["x", "é\0z"]), ["x", "é\0z"]):
        (y,) = session.run(None, {"a": a, "b": np.array([b"!"], object)})
        assert y.dtype == object and y.tolist() == [f"{item}!" for item in np.asarray(a).tolist()]
    with pytest.raises(TypeError, match="input 'a' must be an array of strings"):
        session.run(None, {"a": np.array([1, 2], object), "b": ["!"]})


def test_types_that_numpy_lacks():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    session = one_node("Identity", {"x": (16, [3])}, {"y": (16, [3])})
    x = np.array([1, -2.5, 3e38], ml_dtypes.bfloat16)
    (y,) = session.run(None, {"x": x})
    assert y.dtype == x.dtype and np.array_equal(y, x)
    (y,) = session.run(None, {"x": x.view(np.uint16)})  # the bits
    assert np.array_equal(y, x)
    binding = session.bind({"x": x}, {"y": np.zeros(3, np.uint16)})
    binding.run()
    assert np.array_equal(binding.outputs["y"].view(x.dtype), x)
    for kind, dtype in ((17, "float8_e4m3fn"), (22, "int4"), (21, "uint4"), (23, "float4_e2m1fn")):
        session = one_node("Identity", {"x": (kind, [3])}, {"y": (kind, [3])}, opset=23)
        x = np.array([1, 0, 2], getattr(ml_dtypes, dtype))
        (y,) = session.run(None, {"x": x})
        assert y.dtype == x.dtype and np.array_equal(y, x)


def test_bfloat16_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    session = one_node("Identity", {"x": (16, [2])}, {"y": (16, [2])})
    x = torch.tensor([1.5, -2], dtype=torch.bfloat16)
    (y,) = session.run(None, {"x": x})
    assert np.asarray(y).view(np.uint16).tolist() == x.view(torch.uint16).tolist()


def test_sequences_and_optionals():
    pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import helper

    tensor = helper.make_tensor_type_proto(1, None)
    sequence = helper.make_sequence_type_proto(tensor)
    optional = helper.make_optional_type_proto(tensor)
    x = [np.ones(2, np.float32), np.zeros((1, 3), np.float32)]

    def port(name, kind):
        return {name: helper.make_value_info(name, kind)}

    session = one_node("Identity", port("x", sequence), port("y", sequence))
    assert session.get_inputs()[0].type == "seq(tensor(float))"
    (y,) = session.run(None, {"x": x})
    x[0][:] = 7  # what came out stays
    assert [item.tolist() for item in y] == [[1, 1], [[0, 0, 0]]]
    assert session.run(None, {"x": []}) == [[]]
    with pytest.raises(TypeError, match="input 'x' must be a list"):
        session.run(None, {"x": x[0]})

    session = one_node("OptionalHasElement", port("x", optional), {"y": (9, [])})
    assert session.get_inputs()[0].type == "optional(tensor(float))"
    for feeds, there in (({"x": x[0]}, True), ({"x": None}, False), ({}, False)):
        assert session.run(None, feeds)[0].item() is there


def test_devices(a):
    session = lmnative.Session(MODEL, device="cpu")
    session.run(None, {"A": a})
    assert session.places["device"] == session.places["cublas_lt"] == 0 < session.places["cpu"]
    with pytest.raises(lmnative.UnsupportedError, match="cuda:1000"):  # on no machine
        lmnative.Session(MODEL, device="cuda:1000")
    with pytest.raises(lmnative.InvalidArgumentError, match='device is "gpu"'):
        lmnative.Session(MODEL, device="gpu")
    with pytest.raises(TypeError, match="device must be a str, not int"):
        lmnative.Session(MODEL, device=0)


def test_async_runs(a):
    with_batches = lmnative.Session(MODEL, batch_window_us=2000, max_batch=8)
    assert with_batches.batches
    for session in (lmnative.Session(MODEL, threads=1), with_batches):
        feeds = [np.random.default_rng(i).integers(-9, 9, (1 + i % 3, 4)).astype(np.float32) for i in range(40)]
        futures = [session.run_async(["C"], {"A": feed}) for feed in feeds]
        for feed, future in zip(feeds, futures, strict=True):
            (result,) = future.result(timeout=60)
            assert np.array_equal(result, expected(feed))
        with pytest.raises(lmnative.InvalidArgumentError, match="'A' is f32"):
            session.run_async(None, {"A": np.zeros((1, 5), np.float32)}).result(timeout=60)

    async def gather():
        runs = (with_batches.run_async(None, {"A": a}) for _ in range(5))
        return await asyncio.gather(*(future_to_coroutine(run) for run in runs))

    async def future_to_coroutine(future):
        return await future

    for (result,) in asyncio.run(gather()):
        assert np.array_equal(result, expected(a))


def test_the_session_may_go_while_runs_are_in_flight(a):
    future = lmnative.Session(MODEL, threads=1).run_async(None, {"A": a})
    gc.collect()
    assert np.array_equal(future.result(timeout=60)[0], expected(a))


def test_a_full_queue(a):
    session = lmnative.Session(MODEL, threads=1, max_queue=1)
    futures, refused = [], 0
    for _ in range(2000):
        try:
            futures.append(session.run_async(None, {"A": a}))
        except lmnative.QueueFullError:
            refused += 1
    assert refused > 0
    assert all(np.array_equal(future.result(timeout=60)[0], expected(a)) for future in futures)


def test_runners(a):
    for runner in ("auto", "lockstep", "graph"):
        session = lmnative.Session(MODEL, threads=2, runner=runner)
        assert np.array_equal(session.run(None, {"A": a})[0], expected(a))
        assert session.runners == {"lockstep": int(runner != "graph"), "graph": int(runner == "graph")}
    with pytest.raises(lmnative.InvalidArgumentError, match="'auto', 'lockstep', 'graph'"):
        lmnative.Session(MODEL, runner="best")
    for value in ("no", 0, None):
        with pytest.raises(TypeError, match="optimize must be True or False"):
            lmnative.Session(MODEL, optimize=value)


def test_bytes_that_are_no_text_are_shown_and_named():
    """String attributes of ONNX are bytes; texts and messages are UTF-8 all the same."""
    ports, strings = ({"x": (8, [1])}, {"y": (8, ["n"])}), np.array(["a"], object)
    session = one_node("StringNormalizer", *ports, locale=b"\xff\xb8\n")
    assert session.run(None, {"x": strings})[0].tolist() == ["a"]
    assert "locale=??\\x0a" in session.graph()
    with pytest.raises(lmnative.InvalidArgumentError, match=r"'\?\?'"):
        one_node("StringNormalizer", *ports, case_change_action=b"\xff\xb8").run(None, {"x": strings})
