# SPDX-License-Identifier: Apache-2.0
"""Graphs without a file: operators, constants without copies, subgraphs, errors."""

from __future__ import annotations

import gc
import weakref

import lmnative
import numpy as np
import pytest

X = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)


def evaluate(build, *arrays):
    """What build(graph, inputs…) computes of these arrays."""
    g = lmnative.Graph()
    inputs = [g.input(f"x{i}", array.dtype, array.shape) for i, array in enumerate(arrays)]
    g.output("y", build(g, *inputs))
    (y,) = g.session(threads=1).run(None, {f"x{i}": array for i, array in enumerate(arrays)})
    return y


def test_relu_of_a_linear_layer():
    generator = np.random.default_rng(7)
    a, b = (generator.standard_normal((16, 16)).astype(np.float32) for _ in range(2))
    bias = generator.standard_normal(16).astype(np.float32)
    g = lmnative.Graph()
    c = g.relu(g.matmul(g.input("A", "float32", (16, 16)), b) + bias)
    g.output("C", c)
    session = g.session(threads=1)
    want = np.maximum(a.astype(np.float64) @ b + bias, 0)
    assert c.shape == [16, 16] and c.dtype == "float32"
    assert np.allclose(session.run(["C"], {"A": a})[0], want, atol=1e-5)
    assert [(port.name, port.type, port.shape) for port in session.get_inputs()] == [("A", "tensor(float)", [16, 16])]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x + 1,
        lambda x: 1.5 - x,
        lambda x: x * X,
        lambda x: X / (x + 10.0),
        lambda x: -x,
        lambda x: x**2,
        lambda x: x @ X.T,
        lambda x: X.T @ x,
        lambda x: 2 * x - x / 4,
    ],
)
def test_operators_of_values(build):
    assert np.allclose(evaluate(lambda g, x: build(x), X), build(X), atol=1e-5)


def test_operators_by_name():
    want = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    for build in (
        lambda g, x: g.op("Softmax", x, axis=-1),
        lambda g, x: g.Softmax(x, axis=np.int64(1)),
        lambda g, x: g.softmax(x),
    ):
        assert np.allclose(evaluate(build, X), want, atol=1e-6)
    low, high = np.split(X, [1], 1)
    assert np.array_equal(evaluate(lambda g, x: g.split(x, [1, 3], axis=1, outputs=2)[1], X), high)
    assert np.array_equal(evaluate(lambda g, x: g.slice(x, [0], [1], [1]), X), low)
    assert evaluate(lambda g, x: g.cast(x, to="int32"), X).dtype == np.int32
    assert evaluate(lambda g, x: g.cast(x, to=np.float64), X).dtype == np.float64
    assert np.array_equal(evaluate(lambda g, x: g.clip(x, None, 2), X), np.minimum(X, 2))
    scaled = evaluate(lambda g, x: g.op("ai.onnx.ml.Scaler", x, offset=[1.0] * 4, scale=[2.0] * 4), X)
    assert np.array_equal(scaled, (X - 1) * 2)
    words = evaluate(lambda g, x: g.string_concat(x, g.constant(["!"])), np.array(["a", "b"], object))
    assert words.tolist() == ["a!", "b!"]


def test_sizes_with_names():
    g = lmnative.Graph()
    a, b = g.input("a", "float32", ("n", 4)), g.input("b", np.float32, ("n", None))
    total = g.reduce_sum(a, [1], keepdims=0)
    assert (a + 1).shape == ["n", 4] and total.shape == ["n"] and b.shape == ["n", None]
    g.output("total", total)
    g.output("joined", g.concat(a, b, axis=1))
    session = g.session()
    for rows in (1, 5):
        x, y = np.ones((rows, 4), np.float32), np.ones((rows, rows), np.float32)
        total, joined = session.run(None, {"a": x, "b": y})
        assert total.tolist() == [4.0] * rows and joined.shape == (rows, 4 + rows)


def test_constants_are_shared_and_kept():
    weight = np.ones(4, np.float32)
    alive = weakref.ref(weight)
    g = lmnative.Graph()
    g.output("y", g.input("x", "float32", (4,)) * weight)
    session = g.session(threads=1, optimize=False)
    weight *= 3  # which one must not: it shows that there is no copy
    del g, weight
    gc.collect()
    assert alive() is not None
    assert session.run(None, {"x": np.ones(4, np.float32)})[0].tolist() == [3.0] * 4
    del session
    gc.collect()
    assert alive() is None


def test_linear_layers_of_what_follows_from_shapes():
    """Computed when shapes are known, before any run, with the packed weights."""
    g = lmnative.Graph()
    x = g.input("x", "float32", ("rows", "columns"))
    weights = np.arange(20, dtype=np.float32).reshape(2, 10)
    sizes = g.unsqueeze(g.cast(g.shape(x), to="float32"), np.array([0]))
    g.output("y", g.relu(g.matmul(sizes, weights) + np.float32(-100)))
    session = g.session()
    for rows, columns in ((3, 4), (7, 2)):
        (y,) = session.run(None, {"x": np.zeros((rows, columns), np.float32)})
        assert np.array_equal(y, np.maximum(np.array([[rows, columns]], np.float32) @ weights - 100, 0))


def test_tensors_of_torch_are_constants():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weight = torch.arange(4.0)
    product = evaluate(lambda g, x: x * weight + g.constant(weight, name="w"), X)
    assert np.array_equal(product, X * weight.numpy() + weight.numpy())


def test_subgraphs():
    body = lmnative.Graph()
    body.input("i", "int64", ())
    go_on, x, factor = body.input("go_on", "bool", ()), body.input("x", "float32"), body.input("factor", "float32")
    body.output("go_on", body.identity(go_on))
    body.output("x", x * factor)
    body.output("seen", body.identity(x))
    g = lmnative.Graph()
    start, factor = g.input("x", "float32", (2,)), g.input("factor", "float32", ())
    last, seen = g.op("Loop", g.constant(3), None, start, factor, body=body, captures=1, outputs=2)
    g.output("last", last)
    g.output("seen", seen)
    last, seen = g.session(threads=1).run(None, {"x": np.array([1, 2], "f4"), "factor": np.array(3, "f4")})
    assert last.tolist() == [27, 54] and seen.tolist() == [[1, 2], [3, 6], [9, 18]]


def test_other_threads_go_on_while_a_session_is_made():
    import threading

    g = lmnative.Graph()
    x = g.input("x", "float32", (64, 64))
    for _ in range(300):
        x = g.relu(x @ np.eye(64, dtype=np.float32))
    g.output("y", x)
    refused = []

    def meddle():
        while not done.is_set():
            try:
                x.dtype  # noqa: B018
            except lmnative.InvalidArgumentError as error:
                refused.append(str(error))
                return

    done = threading.Event()
    thread = threading.Thread(target=meddle)
    thread.start()
    session = g.session(threads=1)
    done.set()
    thread.join()
    assert refused in ([], ["the graph is in use by another thread"])
    a = np.ones((64, 64), np.float32)
    assert np.array_equal(session.run(None, {"x": a})[0], a) and x.shape == [64, 64]


def test_errors_name_the_operator():
    g = lmnative.Graph()
    x = g.input("x", "float32", (3, 4))
    with pytest.raises(lmnative.NotFoundError, match="no operator 'Rleu'"):
        g.Rleu(x)
    with pytest.raises(lmnative.InvalidArgumentError, match=r"MatMul.*inner sizes differ"):
        x @ X
    with pytest.raises(lmnative.InvalidArgumentError, match=r"MatMul.*\[rows, 4\] times \[3, 4\]"):
        g.input("named", "float32", ("rows", 4)) @ X
    with pytest.raises(lmnative.InvalidArgumentError, match="Softmax.*'axes'"):
        g.softmax(x, axes=1)
    with pytest.raises(lmnative.InvalidArgumentError, match="'axis' is a string; it takes an integer"):
        g.softmax(x, axis="1")
    with pytest.raises(lmnative.InvalidArgumentError, match="another graph"):
        g.add(x, lmnative.Graph().input("y", "float32"))
    with pytest.raises(lmnative.InvalidArgumentError, match="'x' already"):
        g.input("x", "float32")
    with pytest.raises(lmnative.InvalidArgumentError, match="complex64"):
        g.input("z", np.complex64)
    with pytest.raises(lmnative.InvalidArgumentError, match=r"no outputs: add one before") as caught:
        g.session()
    assert "lmn_" not in str(caught.value)
    with pytest.raises(lmnative.NotFoundError, match="no operator 'Foo'"):
        g.op("Foo", x)
    with pytest.raises(TypeError, match="Foo: values are given one by one, not in a list"):
        g.op("Foo", [x])
    with pytest.raises(lmnative.InvalidArgumentError, match="'y' is not one of this operator, which has none"):
        g.relu(x, y=3)
    with pytest.raises(TypeError, match="no truth value"):
        bool(x)
    with pytest.raises(TypeError, match="attribute 'axis' is a object"):
        g.softmax(x, axis=object())
    with pytest.raises(AttributeError):
        g._private  # noqa: B018
