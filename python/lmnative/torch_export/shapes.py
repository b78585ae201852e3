# SPDX-License-Identifier: Apache-2.0
"""Shapes, indexing, and tensors that are made: what moves elements and computes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lmnative.errors import UnsupportedError
from lmnative.graph import Value
from lmnative.torch_export.table import adder

TABLE: dict[Any, Any] = {}
_add = adder(TABLE)

_END = 2**63 - 1


@_add("sym_size.int")
def _size(c: Any, node: Any, x: Value, dim: int) -> Any:
    known = c.sizes(node.args[0])[dim]
    if isinstance(known, int):
        return known
    return c.g.squeeze(c.g.shape(x, start=dim, end=None if dim == -1 else dim + 1) if dim != -1
                       else c.g.shape(x, start=dim), [0])  # fmt: skip


@_add("view", "reshape", "_unsafe_view")
def _view(c: Any, node: Any, x: Value, shape: list[Any]) -> Value:
    return c.reshape(node, x, c.sizes(node.args[0]), shape)


@_add("flatten.using_ints")
def _flatten(c: Any, node: Any, x: Value, start: int = 0, end: int = -1) -> Value:
    rank = c.rank(node.args[0])
    if rank == 0:
        return c.g.reshape(x, [1])
    start, end = start % rank, end % rank
    return c.g.reshape(x, [*[0] * start, -1, *c.sizes(node)[start + 1 :]]) if all(
        isinstance(size, int) for size in c.sizes(node)[start + 1 :]
    ) else c.reshape(node, x, c.sizes(node.args[0]), [
        *(_size(c, node, x, d) for d in range(start)), -1, *(_size(c, node, x, d) for d in range(end + 1, rank))
    ])  # fmt: skip


@_add("permute")
def _permute(c: Any, node: Any, x: Value, dims: list[int]) -> Value:
    rank = c.rank(node)
    return c.g.transpose(x, perm=[dim % rank for dim in dims])


@_add("transpose.int", "t", "numpy_T", "mT")
def _transpose(c: Any, node: Any, x: Value, a: int = -2, b: int = -1) -> Value:
    order = list(range(c.rank(node)))
    if len(order) < 2:
        return x
    order[a], order[b] = order[b], order[a]
    return c.g.transpose(x, perm=order)


@_add("unsqueeze")
def _unsqueeze(c: Any, node: Any, x: Value, dim: int) -> Value:
    return c.g.unsqueeze(x, [dim])


@_add("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(c: Any, node: Any, x: Value, dims: Any = None) -> Value:
    sizes = c.sizes(node.args[0])
    dims = range(len(sizes)) if dims is None else [dims] if isinstance(dims, int) else dims
    dims = [dim for dim in dims if sizes[dim] == 1]
    return c.g.squeeze(x, dims) if dims else x


@_add("expand", "broadcast_to")
def _expand(c: Any, node: Any, x: Value, shape: list[Any], **_: Any) -> Value:
    shape = [1 if isinstance(size, int) and size == -1 else size for size in shape]  # which keeps the size there is
    return c.g.expand(x, c.ints(shape))


@_add("expand_as")
def _expand_as(c: Any, node: Any, x: Value, other: Value) -> Value:
    return c.g.expand(x, c.g.shape(other))


@_add("repeat")
def _repeat(c: Any, node: Any, x: Value, counts: list[Any]) -> Value:
    more = len(counts) - c.rank(node.args[0])
    return c.g.tile(c.g.unsqueeze(x, list(range(more))) if more else x, c.ints(counts))


@_add("cat")
def _cat(c: Any, node: Any, tensors: list[Value], dim: int = 0) -> Value:
    dtype = c.dtype(node)
    ranks = [c.rank(one) for one in node.args[0]]
    kept = [t for t, rank in zip(tensors, ranks, strict=True) if rank == max(ranks)]  # PyTorch skips empty vectors
    return c.g.concat(*(c.cast(one, dtype) for one in kept), axis=dim)


@_add("stack")
def _stack(c: Any, node: Any, tensors: list[Value], dim: int = 0) -> Value:
    return c.g.concat(*(c.g.unsqueeze(one, [dim]) for one in tensors), axis=dim)


@_add("split_with_sizes", "split.sizes")
def _split(c: Any, node: Any, x: Value, sizes: list[Any], dim: int = 0) -> Any:
    parts = c.g.op("Split", x, c.ints(sizes), axis=dim, outputs=len(sizes))
    return [parts] if len(sizes) == 1 else parts


@_add("split.Tensor", "chunk", "unbind.int", "unsafe_chunk")
def _pieces(c: Any, node: Any, x: Value, *rest: Any, **named: Any) -> Any:
    results = node.meta["val"]
    unbind = node.target is torch.ops.aten.unbind.int
    dim = named.get("dim", rest[-1] if rest and (unbind or len(rest) > 1) else 0)
    sizes = [1] * len(results) if unbind else [one.shape[dim] for one in results]
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError(f"{node.target} along a size that differs from run to run")
    parts = _split(c, node, x, sizes, dim)
    return [c.g.squeeze(part, [dim]) for part in parts] if unbind else parts


@_add("select.int")
def _select(c: Any, node: Any, x: Value, dim: int, index: Any) -> Value:
    return c.g.gather(x, c.cast(index, "int64"), axis=dim)


@_add("slice.Tensor", "narrow")
def _slice(c: Any, node: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    if node.target is torch.ops.aten.narrow.default:
        end = start + end
    start, end = 0 if start is None else start, _END if end is None else end
    if start == 0 and isinstance(end, int) and end == _END and step == 1 and isinstance(start, int):
        return x
    return c.g.slice(x, c.ints([start]), c.ints([end]), [dim], [step])


@_add("slice_scatter")
def _slice_scatter(c: Any, node: Any, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None,
                   step: int = 1) -> Value:  # fmt: skip
    start, end = 0 if start is None else start, _END if end is None else end
    if start == 0 and end == _END and step == 1 and isinstance(start, int):
        return source
    rank = c.rank(node)
    if step != 1 or not isinstance(start, int) or not isinstance(end, int) or start < 0 or (end < 0):
        raise UnsupportedError(f"{node.target} with steps, or with ends that differ from run to run")
    before = c.g.slice(x, [0], [start], [dim % rank])
    after = c.g.slice(x, [end], [_END], [dim % rank])
    return c.g.concat(before, source, after, axis=dim)


@_add("select_scatter")
def _select_scatter(c: Any, node: Any, x: Value, source: Value, dim: int, index: int) -> Value:
    if not isinstance(index, int) or index < 0:
        raise UnsupportedError(f"{node.target} at an index from the end, or one that differs from run to run")
    return _slice_scatter(c, node, x, c.g.unsqueeze(source, [dim]), dim, index, index + 1)


@_add("index_select")
def _index_select(c: Any, node: Any, x: Value, dim: int, index: Value) -> Value:
    return c.g.gather(x, index, axis=dim)


@_add("gather")
def _gather(c: Any, node: Any, x: Value, dim: int, index: Value, **_: Any) -> Value:
    return c.g.op("GatherElements", x, index, axis=dim)


@_add("scatter.src")
def _scatter(c: Any, node: Any, x: Value, dim: int, index: Value, source: Value) -> Value:
    return c.g.op("ScatterElements", x, index, source, axis=dim)


@_add("scatter.value")
def _scatter_value(c: Any, node: Any, x: Value, dim: int, index: Value, value: Any) -> Value:
    source = c.g.expand(c.cast(value, c.dtype(node)), c.g.shape(index))
    return c.g.op("ScatterElements", x, index, source, axis=dim)


@_add("index_put")
def _index_put(c: Any, node: Any, x: Value, indices: list[Any], value: Value, accumulate: bool = False) -> Value:
    if any(one is None or one.dtype == "bool" for one in indices):
        raise UnsupportedError(f"{node.target} with masks, or with indices that are not the first ones")
    places = _tuples(c, indices)
    shape = c.g.shape(places, end=-1)  # without the dimension of the tuples; the rest of x follows
    if len(indices) < c.rank(node):
        shape = c.g.concat(shape, c.g.shape(x, start=len(indices)), axis=0)
    reduction = "add" if accumulate else "none"
    return c.g.op("ScatterND", x, places, c.g.expand(c.cast(value, c.dtype(node)), shape), reduction=reduction)


def _tuples(c: Any, indices: list[Value]) -> Value:
    """Indices of neighbouring dimensions, broadcast, as the last dimension of one tensor."""
    total = indices[0]
    for one in indices[1:]:
        total = total + one * 0  # the shape that all indices have together
    shape = c.g.shape(total)
    return c.g.concat(*(c.g.unsqueeze(c.g.expand(one, shape), [-1]) for one in indices), axis=-1)


@_add("index.Tensor")
def _index(c: Any, node: Any, x: Value, indices: list[Any]) -> Value:
    used = [dim for dim, one in enumerate(indices) if one is not None]
    if len(used) == 1 and indices[used[0]].dtype != "bool":
        return c.g.gather(x, indices[used[0]], axis=used[0])
    if used != list(range(len(used))) or any(indices[dim].dtype == "bool" for dim in used):
        raise UnsupportedError(f"{node.target} with masks, or with several indices that are not the first ones")
    return c.g.op("GatherND", x, _tuples(c, indices[: len(used)]))


@_add("flip")
def _flip(c: Any, node: Any, x: Value, dims: list[int]) -> Value:
    n = len(dims)
    return c.g.slice(x, [-1] * n, [-_END] * n, list(dims), [-1] * n)


@_add("constant_pad_nd", "pad")
def _pad(c: Any, node: Any, x: Value, pads: list[int], *rest: Any, **named: Any) -> Value:
    mode = "constant"
    if node.target is torch.ops.aten.pad.default:
        mode = rest[0] if rest else named.get("mode", "constant")
        rest = rest[1:]
    value = rest[0] if rest else named.get("value", 0)
    rank = c.rank(node)
    more = rank - len(pads) // 2
    begin = [0] * more + list(pads[-2::-2])
    end = [0] * more + list(pads[::-2])
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    fill = c.cast(value or 0, c.dtype(node)) if mode == "constant" else None
    return c.g.pad(x, c.ints(begin + end), fill, mode=names[mode])


# Tensors that are made ------------------------------------------------------------------------------


def _made(c: Any, node: Any, shape: list[Any], value: Any) -> Value:
    dtype = c.dtype(node)
    if isinstance(value, Value) or any(isinstance(size, Value) for size in shape):
        return c.g.expand(c.cast(value, dtype), c.ints(shape) if shape else c.empty())
    if dtype in ("bfloat16",):
        return c.g.expand(c.cast(value, dtype), c.ints(shape) if shape else c.empty())
    return c.g.constant(np.full(shape, value, dtype))


@_add("full", "new_full")
def _full(c: Any, node: Any, *arguments: Any, **_: Any) -> Value:
    shape, value = arguments[-2:]
    return _made(c, node, shape, value)


@_add("zeros", "new_zeros", "empty.memory_format", "new_empty")
def _zeros(c: Any, node: Any, *arguments: Any, **_: Any) -> Value:
    return _made(c, node, arguments[-1], 0)


@_add("ones", "new_ones")
def _ones(c: Any, node: Any, *arguments: Any, **_: Any) -> Value:
    return _made(c, node, arguments[-1], 1)


@_add("full_like", "zeros_like", "ones_like", "empty_like", "fill.Scalar", "zero")
def _like(c: Any, node: Any, x: Value, value: Any = None, **_: Any) -> Value:
    value = int("ones" in str(node.target)) if value is None else value
    sizes = c.sizes(node)
    if all(isinstance(size, int) for size in sizes):
        return _made(c, node, sizes, value)
    return c.g.expand(c.cast(value, c.dtype(node)), c.g.shape(x))


@_add("scalar_tensor")
def _scalar(c: Any, node: Any, value: Any, **_: Any) -> Value:
    return c.cast(value, c.dtype(node))


@_add("arange", "arange.start", "arange.start_step")
def _arange(c: Any, node: Any, *arguments: Any, **_: Any) -> Value:
    start, end, step = {1: (0, *arguments, 1), 2: (*arguments, 1), 3: arguments}[len(arguments)]
    dtype = c.dtype(node)
    counted = dtype if dtype in ("float32", "float64", "int32", "int64") else "int64"
    return c.cast(c.g.range(*(c.cast(one, counted) for one in (start, end, step))), dtype)
