# SPDX-License-Identifier: Apache-2.0
"""Element by element: arithmetic, comparisons, activations, conversions, masks."""

from __future__ import annotations

import math
from typing import Any

import torch

from lmnative.graph import Value
from lmnative.torch_export.table import adder

TABLE: dict[Any, Any] = {}
_add = adder(TABLE)

_UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs",
    "neg": "Neg", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "erf": "Erf", "sign": "Sign",
    "sgn": "Sign", "reciprocal": "Reciprocal", "isnan": "IsNaN", "isinf": "IsInf", "hardswish": "HardSwish",
    "mish": "Mish", "silu": "Swish",
}  # fmt: skip
_BINARY = {
    "mul": "Mul", "maximum": "Max", "minimum": "Min", "pow": "Pow", "fmod": "Mod", "eq": "Equal", "lt": "Less",
    "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
}  # fmt: skip
_LOGICAL = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def common(c: Any, node: Any, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands in the type that PyTorch computes in."""
    examples = [argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument for argument in node.args[:2]]
    dtype = str(torch.result_type(*examples)).removeprefix("torch.")
    return c.cast(a, dtype), c.cast(b, dtype)


def _unary(op: str) -> Any:
    def convert(c: Any, node: Any, x: Value, **_: Any) -> Value:
        return c.g.op(op, x if op in ("IsNaN", "IsInf", "Abs", "Neg", "Sign", "Relu") else c.cast(x, c.dtype(node)))

    return convert


def _binary(op: str) -> Any:
    def convert(c: Any, node: Any, a: Any, b: Any) -> Value:
        if op in ("And", "Or", "Xor"):
            return c.g.op(op, c.cast(a, "bool"), c.cast(b, "bool"))
        a, b = common(c, node, a, b)
        if op in _LOGICAL and a.dtype == "bool":
            return c.g.op(_LOGICAL[op], a, b)
        if a.dtype == "bool" and op not in _COMPARISONS:  # a product of truths
            return c.g.op("And", a, b)
        if a.dtype == "bool" and op != "Equal":
            a, b = c.cast(a, "int32"), c.cast(b, "int32")
        return c.g.op(op, a, b, fmod=1) if op == "Mod" else c.g.op(op, a, b)

    return convert


for _name, _op in _UNARY.items():
    _add(_name)(_unary(_op))
for _name, _op in _BINARY.items():
    _add(_name, f"{_name}.Tensor", f"{_name}.Scalar", f"{_name}.Tensor_Tensor", f"{_name}.Tensor_Scalar",
         f"{_name}.Scalar_Tensor")(_binary(_op))  # fmt: skip


@_add("add.Tensor", "add.Scalar")
def _plus(c: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
    a, b = common(c, node, a, b)
    if a.dtype == "bool":
        return c.g.op("Or", a, b)
    return a + (b if alpha == 1 else b * alpha)


@_add("sub.Tensor", "sub.Scalar")
def _minus(c: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
    a, b = common(c, node, a, b)
    return a - (b if alpha == 1 else b * alpha)


@_add("rsub.Scalar", "rsub.Tensor")
def _reverse_minus(c: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
    a, b = common(c, node, a, b)
    return b - (a if alpha == 1 else a * alpha)


@_add("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "floor_divide")
def _divide(c: Any, node: Any, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if node.target is torch.ops.aten.floor_divide.default:
        rounding_mode = "floor"
    dtype = c.dtype(node)
    if rounding_mode is None:
        return c.cast(a, dtype) / c.cast(b, dtype)
    if dtype.startswith("int") and rounding_mode == "floor":  # ONNX's division of integers truncates
        a, b = c.cast(a, dtype), c.cast(b, dtype)
        rest = c.g.mod(a, b)  # of the sign of b
        return (a - rest) / b
    quotient = c.cast(a, dtype) / c.cast(b, dtype)
    if dtype.startswith(("int", "uint")):
        return quotient
    return c.g.floor(quotient) if rounding_mode == "floor" else _trunc(c, node, quotient)


@_add("remainder.Tensor", "remainder.Scalar")
def _remainder(c: Any, node: Any, a: Any, b: Any) -> Value:
    a, b = common(c, node, a, b)
    return c.g.mod(a, b) if a.dtype.startswith("int") else a - c.g.floor(a / b) * b


@_add("ne.Tensor", "ne.Scalar")
def _not_equal(c: Any, node: Any, a: Any, b: Any) -> Value:
    return c.g.op("Not", c.g.equal(*common(c, node, a, b)))


@_add("logical_not", "bitwise_not")
def _not(c: Any, node: Any, x: Value) -> Value:
    logical = node.target is torch.ops.aten.logical_not.default or x.dtype == "bool"
    return c.g.op("Not", c.cast(x, "bool")) if logical else c.g.op("BitwiseNot", x)


@_add("trunc")
def _trunc(c: Any, node: Any, x: Value) -> Value:
    return c.g.sign(x) * c.g.floor(c.g.abs(x))


@_add("rsqrt")
def _rsqrt(c: Any, node: Any, x: Value) -> Value:
    return c.g.reciprocal(c.g.sqrt(c.cast(x, c.dtype(node))))


@_add("square")
def _square(c: Any, node: Any, x: Value) -> Value:
    return x * x


@_add("log1p")
def _log1p(c: Any, node: Any, x: Value) -> Value:
    return c.g.log(x + 1)


@_add("expm1")
def _expm1(c: Any, node: Any, x: Value) -> Value:
    return c.g.exp(x) - 1


@_add("log2")
def _log2(c: Any, node: Any, x: Value) -> Value:
    return c.g.log(x) * (1 / math.log(2))


@_add("gelu")
def _gelu(c: Any, node: Any, x: Value, approximate: str = "none") -> Value:
    return c.g.gelu(x, approximate=approximate)


@_add("leaky_relu")
def _leaky_relu(c: Any, node: Any, x: Value, negative_slope: float = 0.01) -> Value:
    return c.g.op("LeakyRelu", x, alpha=float(negative_slope))


@_add("elu")
def _elu(c: Any, node: Any, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    y = c.g.elu(x if input_scale == 1 else x * input_scale, alpha=float(alpha))
    return y if scale == 1 else y * scale


@_add("softplus")
def _softplus(c: Any, node: Any, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return c.g.softplus(x) if beta == 1 else c.g.softplus(x * beta) / beta


@_add("hardsigmoid")
def _hardsigmoid(c: Any, node: Any, x: Value) -> Value:
    return c.g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@_add("prelu", "_prelu_kernel")
def _prelu(c: Any, node: Any, x: Value, weight: Value) -> Value:
    if c.rank(node.args[0]) > 2 and c.rank(node.args[1]) == 1:
        weight = c.g.unsqueeze(weight, list(range(1, c.rank(node.args[0]) - 1)))
    return c.g.op("PRelu", x, weight)


@_add("glu")
def _glu(c: Any, node: Any, x: Value, dim: int = -1) -> Value:
    a, b = c.g.split(x, axis=dim, num_outputs=2, outputs=2)
    return a * c.g.sigmoid(b)


@_add("clamp", "clamp.Tensor", "hardtanh", "relu6", "clamp_min", "clamp_max", "clamp_min.Tensor", "clamp_max.Tensor")
def _clamp(c: Any, node: Any, x: Value, low: Any = None, high: Any = None, **named: Any) -> Value:
    name = node.target._schema.name.removeprefix("aten::")
    low, high = named.get("min", named.get("min_val", low)), named.get("max", named.get("max_val", high))
    if name == "hardtanh":
        low, high = -1 if low is None else low, 1 if high is None else high
    elif name == "relu6":
        low, high = 0, 6
    elif name == "clamp_max":
        low, high = None, low
    dtype = c.dtype(node)
    x = c.cast(x, dtype)
    if low is not None:
        x = c.g.max(x, c.cast(low, dtype))
    return x if high is None else c.g.min(x, c.cast(high, dtype))


@_add("to.dtype", "_to_copy", "type_as")
def _to(c: Any, node: Any, x: Value, *_: Any, **__: Any) -> Value:
    return c.cast(x, c.dtype(node))


@_add("clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy", "lift_fresh", "dropout", "native_dropout",
      "alpha_dropout", "feature_dropout")  # fmt: skip
def _same(c: Any, node: Any, x: Value, *_: Any, **__: Any) -> Any:
    return x


@_add("copy")
def _copy(c: Any, node: Any, to: Value, source: Value, *_: Any) -> Value:
    return c.g.expand(c.cast(source, c.dtype(node)), c.g.shape(to))


@_add("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(c: Any, node: Any, condition: Value, a: Any, b: Any) -> Value:
    return c.g.where(condition, c.cast(a, c.dtype(node)), c.cast(b, c.dtype(node)))


@_add("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: Any, node: Any, x: Value, mask: Value, value: Any) -> Value:
    return c.g.where(mask, c.cast(value, c.dtype(node)), x)


@_add("tril", "triu")
def _triangle(c: Any, node: Any, x: Value, diagonal: Any = 0) -> Value:
    upper = int(node.target is torch.ops.aten.triu.default)
    return c.g.trilu(x, c.cast(diagonal, "int64"), upper=upper)
