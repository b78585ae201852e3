# SPDX-License-Identifier: Apache-2.0
"""Layers: products, convolutions, pooling, normalisation, attention, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from lmnative.errors import UnsupportedError
from lmnative.graph import Value
from lmnative.torch_export.table import adder

TABLE: dict[Any, Any] = {}
_add = adder(TABLE)


def _pairs(value: Any, n: int) -> list[int]:
    """A setting for each of n dimensions."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    return [int(item) for item in (items * n if len(items) == 1 else items)]


@_add("linear", raw=True)
def _linear(c: Any, node: Any) -> Value:
    x, weight = c.resolve(node.args[0]), node.args[1]
    bias = c.resolve(node.args[2]) if len(node.args) > 2 else None
    fused = weight.name in c.tensors and x.dtype == "float32" and c.rank(weight) == 2 and c.rank(node.args[0]) > 1
    if fused and node.args[0] in c.varying:  # which takes the weight as it lies
        return c.g.op("lmnative.Linear", x, c.resolve(weight), bias, transposed=1)
    y = x @ c.g.transpose(c.resolve(weight), perm=[1, 0] if c.rank(weight) == 2 else [0])
    return y if bias is None else y + bias


@_add("matmul", "mm", "bmm", "mv", "dot")
def _matmul(c: Any, node: Any, a: Value, b: Value, *_: Any) -> Value:
    return a @ b


@_add("addmm")
def _addmm(c: Any, node: Any, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    return c.g.gemm(a, b, bias, alpha=float(alpha), beta=float(beta))


@_add("baddbmm")
def _baddbmm(c: Any, node: Any, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    product = a @ b
    return (bias if beta == 1 else bias * beta) + (product if alpha == 1 else product * alpha)


@_add("einsum")
def _einsum(c: Any, node: Any, equation: str, operands: list[Value], **_: Any) -> Value:
    return c.g.einsum(*operands, equation=equation.replace(" ", ""))


@_add("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv(c: Any, node: Any, x: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0,
          dilation: Any = 1, groups: int = 1) -> Value:  # fmt: skip
    n = c.rank(node.args[1]) - 2
    attributes: dict[str, Any] = {
        "strides": _pairs(stride, n),
        "dilations": _pairs(dilation, n),
        "group": groups,
        "kernel_shape": c.sizes(node.args[1])[2:],
    }
    if isinstance(padding, str):
        attributes["auto_pad"] = "VALID" if padding == "valid" else "SAME_UPPER"
    else:
        attributes["pads"] = _pairs(padding, n) * 2
    batched = c.rank(node.args[0]) == n + 2
    y = c.g.conv(x if batched else c.g.unsqueeze(x, [0]), weight, bias, **attributes)
    return y if batched else c.g.squeeze(y, [0])


@_add("convolution", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _convolution(c: Any, node: Any, x: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0,
                 *rest: Any) -> Value:  # fmt: skip
    if node.target is torch.ops.aten.convolution.default:
        dilation, transposed, output_padding, groups = rest
    else:
        output_padding, groups, dilation = [*rest, *(0, 1, 1)[len(rest) :]]
        transposed = True
    if not transposed:
        return _conv(c, node, x, weight, bias, stride, padding, dilation, groups)
    n = c.rank(node.args[1]) - 2
    return c.g.op(
        "ConvTranspose", x, weight, bias, strides=_pairs(stride, n), pads=_pairs(padding, n) * 2,
        dilations=_pairs(dilation, n), output_padding=_pairs(output_padding, n), group=groups,
        kernel_shape=c.sizes(node.args[1])[2:],
    )  # fmt: skip


@_add("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(c: Any, node: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False) -> Value:  # fmt: skip
    n = c.rank(node.args[0]) - 2
    return c.g.op(
        "MaxPool", x, kernel_shape=_pairs(kernel, n), strides=_pairs(stride or kernel, n),
        pads=_pairs(padding, n) * 2, dilations=_pairs(dilation, n), ceil_mode=int(ceil_mode),
    )  # fmt: skip


@_add("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average_pool(c: Any, node: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
                  ceil_mode: bool = False, count_include_pad: bool = True, divisor: Any = None) -> Value:  # fmt: skip
    if divisor is not None:
        raise UnsupportedError(f"{node.target}: divisor_override")
    n = c.rank(node.args[0]) - 2
    return c.g.op(
        "AveragePool", x, kernel_shape=_pairs(kernel, n), strides=_pairs(stride or kernel, n),
        pads=_pairs(padding, n) * 2, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
    )  # fmt: skip


@_add("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d")
def _adaptive_average_pool(c: Any, node: Any, x: Value, output: Any) -> Value:
    n = c.rank(node) - 2
    wanted, given = _pairs(output, n), c.sizes(node.args[0])[2:]
    if all(size == 1 for size in wanted):
        return c.g.op("GlobalAveragePool", x)
    if any(not isinstance(size, int) or size % want for size, want in zip(given, wanted, strict=True)):
        raise UnsupportedError(f"{node.target} from sizes {given} to {wanted}: only whole windows are supported")
    kernel = [size // want for size, want in zip(given, wanted, strict=True)]
    return c.g.op("AveragePool", x, kernel_shape=kernel, strides=kernel)


@_add("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(c: Any, node: Any, x: Value, output: Any) -> list[Any]:
    if any(size != 1 for size in _pairs(output, c.rank(node.args[0]) - 2)):
        raise UnsupportedError(f"{node.target} to {output}: only 1 is supported")
    return [c.g.op("GlobalMaxPool", x), None]


@_add("upsample_nearest2d.vec", "upsample_bilinear2d.vec", "upsample_nearest1d.vec")
def _upsample(c: Any, node: Any, x: Value, size: Any, *rest: Any) -> Value:
    linear = node.target is torch.ops.aten.upsample_bilinear2d.vec
    factors = rest[-1]
    mode = "half_pixel" if linear and not rest[0] else "align_corners" if linear else "asymmetric"
    settings = {
        "mode": "linear" if linear else "nearest",
        "coordinate_transformation_mode": mode,
        "nearest_mode": "floor",
    }
    if factors is not None:
        return c.g.resize(x, None, np.array([1, 1, *factors], np.float32), **settings)
    outer = c.g.shape(x, start=0, end=2)
    sizes = c.g.concat(outer, c.ints(size), axis=0)
    return c.g.resize(x, None, None, sizes, **settings)


@_add("pixel_shuffle")
def _pixel_shuffle(c: Any, node: Any, x: Value, factor: int) -> Value:
    return c.g.op("DepthToSpace", x, blocksize=factor, mode="CRD")


def _filled(c: Any, like: Any, value: float, shape: list[int]) -> Value:
    return c.g.constant(np.full(shape, value, c.dtype(like)))


@_add("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "native_batch_norm")
def _batch_norm(c: Any, node: Any, x: Value, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    tuple_result = node.target is not torch.ops.aten.batch_norm.default
    if node.target is torch.ops.aten._native_batch_norm_legit_no_training.default:
        training, epsilon = False, rest[1]
    else:
        training, epsilon = rest[0], rest[2]
    if training or mean is None:
        raise UnsupportedError(f"{node.target} in training, or without running statistics")
    channels = [c.sizes(node.args[0])[1]]
    scale = _filled(c, node.args[0], 1, channels) if weight is None else weight
    shift = _filled(c, node.args[0], 0, channels) if bias is None else bias
    y = c.g.op("BatchNormalization", x, scale, shift, mean, var, epsilon=float(epsilon))
    return [y] if tuple_result else y


@_add("layer_norm")
def _layer_norm(c: Any, node: Any, x: Value, shape: list[int], weight: Any = None, bias: Any = None,
                epsilon: float = 1e-5, *_: Any) -> Value:  # fmt: skip
    scale = _filled(c, node.args[0], 1, shape) if weight is None else weight
    return c.g.op("LayerNormalization", x, scale, bias, axis=-len(shape), epsilon=float(epsilon))


@_add("rms_norm")
def _rms_norm(c: Any, node: Any, x: Value, shape: list[int], weight: Any = None, epsilon: Any = None) -> Value:
    epsilon = torch.finfo(node.meta["val"].dtype).eps if epsilon is None else epsilon
    scale = _filled(c, node.args[0], 1, shape) if weight is None else weight
    return c.g.op("RMSNormalization", x, scale, axis=-len(shape), epsilon=float(epsilon))


@_add("group_norm")
def _group_norm(c: Any, node: Any, x: Value, groups: int, weight: Any = None, bias: Any = None,
                epsilon: float = 1e-5, *_: Any) -> Value:  # fmt: skip
    channels = [c.sizes(node.args[0])[1]]
    scale = _filled(c, node.args[0], 1, channels) if weight is None else weight
    shift = _filled(c, node.args[0], 0, channels) if bias is None else bias
    return c.g.op("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=float(epsilon))


@_add("instance_norm")
def _instance_norm(c: Any, node: Any, x: Value, weight: Any, bias: Any, mean: Any, var: Any, from_input: bool,
                   momentum: float, epsilon: float, *_: Any) -> Value:  # fmt: skip
    channels = [c.sizes(node.args[0])[1]]
    scale = _filled(c, node.args[0], 1, channels) if weight is None else weight
    shift = _filled(c, node.args[0], 0, channels) if bias is None else bias
    if not from_input:
        return c.g.op("BatchNormalization", x, scale, shift, mean, var, epsilon=float(epsilon))
    return c.g.op("InstanceNormalization", x, scale, shift, epsilon=float(epsilon))


@_add("softmax.int", "_softmax", "log_softmax.int", "_log_softmax")
def _softmax(c: Any, node: Any, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    op = "LogSoftmax" if "log" in str(node.target) else "Softmax"
    return c.g.op(op, c.cast(x, c.dtype(node)), axis=dim)


@_add("embedding")
def _embedding(c: Any, node: Any, weight: Value, ids: Value, *_: Any) -> Value:
    return c.g.gather(weight, ids, axis=0)


@_add("scaled_dot_product_attention")
def _attention(c: Any, node: Any, q: Value, k: Value, v: Value, mask: Any = None, dropout: float = 0,
               is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Value:  # fmt: skip
    head_dim = c.sizes(node.args[0])[-1]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    if c.rank(node.args[0]) == 4:
        return c.g.attention(q, k, v, mask, is_causal=int(is_causal), scale=float(scale))
    if is_causal or enable_gqa:
        raise UnsupportedError(f"{node.target} of {c.rank(node.args[0])} dimensions, causal or with grouped heads")
    rank = c.rank(node.args[1])
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = (q * scale) @ c.g.transpose(k, perm=order)
    if mask is not None:
        scores = scores + mask if mask.dtype != "bool" else c.g.where(mask, scores, c.cast(-math.inf, scores.dtype))
    return c.g.softmax(scores, axis=-1) @ v


# Reductions -----------------------------------------------------------------------------------------

_REDUCTIONS = {
    "mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
    "max": "ReduceMax", "min": "ReduceMin", "logsumexp": "ReduceLogSumExp",
}  # fmt: skip


def _reduction(op: str) -> Any:
    def convert(c: Any, node: Any, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
        x = c.cast(x, c.dtype(node))
        dims = [dims] if isinstance(dims, int) else dims
        return c.g.op(op, x, list(dims) if dims else None, keepdims=int(keepdim))

    return convert


for _name, _op in _REDUCTIONS.items():
    _add(_name, f"{_name}.dim", f"{_name}.dim_IntList", f"{_name}.dim_int")(_reduction(_op))
for _name in ("max", "min"):
    TABLE.pop(getattr(torch.ops.aten, _name).dim, None)


@_add("max.dim", "min.dim")
def _extreme(c: Any, node: Any, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    name = "Max" if node.target is torch.ops.aten.max.dim else "Min"
    value = c.g.op(f"Reduce{name}", x, [dim], keepdims=int(keepdim))
    return [value, c.g.op(f"Arg{name}", x, axis=dim, keepdims=int(keepdim))]


@_add("argmax", "argmin")
def _arg(c: Any, node: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    op = "ArgMax" if node.target is torch.ops.aten.argmax.default else "ArgMin"
    if dim is None:
        return c.g.squeeze(c.g.op(op, c.g.reshape(x, [-1]), axis=0), [0])
    return c.g.op(op, x, axis=dim, keepdims=int(keepdim))


@_add("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def _truth(c: Any, node: Any, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    op = "ReduceMax" if "any" in str(node.target) else "ReduceMin"
    dims = [dims] if isinstance(dims, int) else dims
    return c.g.op(op, c.cast(x, "bool"), list(dims) if dims else None, keepdims=int(keepdim))


@_add("var.correction", "std.correction", "var.dim", "std.dim", "var_mean.correction")
def _variance(c: Any, node: Any, x: Value, dims: Any = None, *rest: Any, correction: Any = None,
              keepdim: bool = False) -> Any:  # fmt: skip
    if rest:
        correction, keepdim = int(rest[0]), rest[1] if len(rest) > 1 else keepdim
    correction = 1 if correction is None else correction
    axes = [dims] if isinstance(dims, int) else list(dims or range(c.rank(node.args[0])))
    count = 1
    for axis in axes:
        size = c.sizes(node.args[0])[axis]
        if not isinstance(size, int):
            raise UnsupportedError(f"{node.target} over a size that differs from run to run")
        count *= size
    mean = c.g.reduce_mean(x, axes, keepdims=1)
    off = x - mean
    total = c.g.reduce_sum(off * off, axes, keepdims=int(keepdim)) / (count - correction)
    if node.target is torch.ops.aten.var_mean.correction:
        return [total, mean if keepdim else c.g.squeeze(mean, axes)]
    return total if "var" in str(node.target) else c.g.sqrt(total)


@_add("cumsum")
def _cumsum(c: Any, node: Any, x: Value, dim: int, **_: Any) -> Value:
    return c.g.op("CumSum", c.cast(x, c.dtype(node)), c.g.constant(dim, "int64"))


@_add("topk")
def _topk(c: Any, node: Any, x: Value, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    return c.g.op("TopK", x, c.ints([k]), axis=dim, largest=int(largest), sorted=int(ordered), outputs=2)


@_add("sort", "argsort")
def _sort(c: Any, node: Any, x: Value, dim: int = -1, descending: bool = False) -> Any:
    size = c.g.shape(x, start=dim, end=dim + 1) if dim != -1 else c.g.shape(x, start=-1)
    both = c.g.op("TopK", x, size, axis=dim, largest=int(descending), sorted=1, outputs=2)
    return both[1] if node.target is torch.ops.aten.argsort.default else both


@_add("linalg_vector_norm", "norm.ScalarOpt_dim")
def _norm(c: Any, node: Any, x: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    if order not in (1, 2):
        raise UnsupportedError(f"{node.target} of order {order}")
    dims = [dims] if isinstance(dims, int) else dims
    return c.g.op(f"ReduceL{int(order)}", x, list(dims) if dims else None, keepdims=int(keepdim))
