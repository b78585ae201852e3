# SPDX-License-Identifier: Apache-2.0
"""Graphs written down operator by operator, as an alternative to ONNX files.

    g = lmnative.Graph()
    a = g.input("A", "float32", (16, 16))
    g.output("C", g.relu(a @ b + bias))  # b and bias: arrays
    session = g.session(threads=1)
    (c,) = session.run(None, {"A": x})

Operators, their attributes and their meaning are ONNX's, of the newest operator set. Each is checked, and the types of
its results are inferred, when it is added: an error names the operator and the operand.
"""

from __future__ import annotations

from lmnative import _lmnative
from lmnative.errors import InvalidArgumentError

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from lmnative.session import Session

# Attributes that are an element type, and ONNX's numbers for those.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "softmax_precision", "stash_type")
_ONNX_NUMBER = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "string": 8, "bool": 9, "f16": 10, "f64": 11,
    "u32": 12, "u64": 13, "bf16": 16, "f8e4m3fn": 17, "f8e4m3fnuz": 18, "f8e5m2": 19, "f8e5m2fnuz": 20, "u4": 21,
    "i4": 22, "f4e2m1": 23, "f8e8m0": 24, "u2": 25, "i2": 26,
}  # fmt: skip


class Value:
    """A value of a graph. `+`, `-`, `*`, `/`, `@`, `**` and unary `-` add a node; the other operand may be a value, an
    array or a number."""

    __slots__ = ("graph", "id")
    __array_ufunc__ = None  # an array on the left leaves the operator to the value

    def __init__(self, graph: Graph, id: int) -> None:
        """Made by a graph."""
        self.graph = graph
        self.id = id

    @property
    def dtype(self) -> str:
        """Type of the elements, as numpy or ml_dtypes call it."""
        from lmnative.session_values import NUMPY_NAME

        return NUMPY_NAME[self.graph._handle.value(self.id)[2]]

    @property
    def shape(self) -> list[int | str | None] | None:
        """Sizes: a number, a name, or None for one that is not known. None instead of a list: the rank is not known."""
        return self.graph._handle.value(self.id)[3]

    def __repr__(self) -> str:
        return f"Value({self.dtype}, {self.shape})"

    def __bool__(self) -> bool:
        raise TypeError("a value of a graph has no truth value before a session runs; Where and If choose by one")

    def __add__(self, other: Any) -> Value:
        return self.graph.op("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.op("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.graph.op("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", other, self)

    def __pow__(self, other: Any) -> Value:
        return self.graph.op("Pow", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)


class Graph:
    """A graph under construction. For one thread at a time.

    Every operator is a method: `g.Relu(x)`, or in lower case, `g.relu(x)`, `g.layer_normalization(x, scale, bias)`.
    """

    def __init__(self) -> None:
        """An empty graph."""
        self._handle = _lmnative.Graph()
        self._literals: dict[tuple[str, str | None], int] = {}  # numbers and lists among operands, which are one each

    def input(self, name: str, dtype: Any, shape: Iterable[int | str | None] | None = None) -> Value:
        """A tensor that is given to every run.

        Args:
            name: Its name in feeds.
            dtype: "float32", numpy.float32, torch.float32, …
            shape: Sizes, outermost first: a number; a name for a size that differs from run to run and is the same
                wherever the name stands; None for one without a name. None: any shape.
        """
        return Value(self, self._handle.input(name, _dtype(dtype), None if shape is None else list(shape)))

    def constant(self, value: Any, dtype: Any = None, name: str = "") -> Value:
        """A constant: an array of numpy, torch or anything else that speaks DLPack, which is used where it lies if it
        is compact (do not change it afterwards) and kept alive; a number; a string, or a list.

        Args:
            value: The elements.
            dtype: Of numbers and lists; default: int64 for integers, float32 for other numbers.
            name: For messages.
        """
        return Value(self, self._handle.constant(name, _tensor(value, None if dtype is None else _dtype(dtype))))

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node.

        Args:
            name: ONNX's name of the operator ("Relu", "ai.onnx.ml.Scaler"); upper and lower case are the same.
            inputs: Values; arrays and lists, which become constants; numbers, which become constants of the type of the
                first value; None for optional ones that are left out.
            outputs: How many outputs the node has.
            attributes: int, float, str, lists of them, arrays, graphs; an element type may be given by name.

        Returns:
            The output, a tuple of them if `outputs` is not 1.

        Raises:
            NotFoundError, InvalidArgumentError: no such operator; operands or attributes that it does not take.
        """
        for value in inputs:
            if isinstance(value, (list, tuple)) and any(isinstance(item, Value) for item in value):
                raise TypeError(f"{name}: values are given one by one, not in a {type(value).__name__}")
        first = next((value for value in inputs if isinstance(value, Value)), None)
        ids = [self._operand(value, first) for value in inputs]
        made = self._handle.node(name, ids, {key: _attribute(key, item) for key, item in attributes.items()}, outputs)
        values = tuple(Value(self, id) for id in made)
        return values[0] if outputs == 1 else values

    def output(self, name: str, value: Value) -> None:
        """Makes a value an output of the graph, after those there are."""
        self._handle.output(name, self._operand(value, None))

    def session(self, **options: Any) -> Session:
        """The graph as it is now, optimised and ready to run. Options are those of Session."""
        from lmnative.session import Session

        return Session(self, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        op = name.replace("_", "") if name.islower() else name

        def add(*inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            return self.op(op, *inputs, outputs=outputs, **attributes)

        return add

    def _operand(self, value: Any, first: Value | None) -> int:
        if value is None:
            return _lmnative.GRAPH_ABSENT
        if isinstance(value, Value):
            if value.graph is not self:
                raise InvalidArgumentError("a value of another graph; a graph takes from outside what are its inputs")
            return value.id
        if not isinstance(value, (bool, int, float, list, tuple)):
            return self.constant(value).id
        dtype = first.dtype if first is not None and not isinstance(value, (list, tuple)) else None
        key = (repr(value), dtype)
        if key not in self._literals:
            self._literals[key] = self.constant(value, dtype).id
        return self._literals[key]


def _dtype(dtype: Any) -> str:
    """The library's name of an element type."""
    from lmnative.session_values import FROM_NUMPY, ONNX_NAME

    name = str(getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or dtype).removeprefix("torch.")
    if name in ONNX_NAME:
        return name
    aliases = {"str": "string", "str_": "string", "float": "f32", "int": "i64"}
    found = aliases.get(name) or FROM_NUMPY.get(name)
    if found is None:
        known = ", ".join("string" if known == "object" else known for known in FROM_NUMPY)
        raise InvalidArgumentError(f"element type {name!r} is not known; known: {known}")
    return found


def _tensor(value: Any, dtype: str | None) -> _lmnative.SessionValue:
    import numpy as np

    from lmnative.session_values import tensor_value

    if dtype is None and isinstance(value, (bool, int, float, list, tuple)):
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
    elif dtype is not None and isinstance(value, np.ndarray):
        raise InvalidArgumentError("an array has its element type; `dtype` is for numbers and lists")
    return tensor_value(value, dtype or "", "the constant")


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, Graph):
        return value._handle
    if isinstance(value, (int, float, str)) and not (isinstance(value, str) and name in _TYPE_ATTRIBUTES):
        return value
    if name in _TYPE_ATTRIBUTES:
        return _ONNX_NUMBER[_dtype(value)]
    if isinstance(value, (list, tuple)):
        return list(value)
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"attribute {name!r} is a {type(value).__name__}")
    return _tensor(value, None)
