# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU. PyTorch and ONNX order the gates differently, so the weights of these layers are copied.

torch.export would unroll these layers, which fixes the number of steps. So while it traces a module, they are operators
of their own (`whole_layers`), which stay whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lmnative.graph import Value
from lmnative.torch_export.table import adder

TABLE: dict[Any, Any] = {}
_add = adder(TABLE)

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # input output forget cell; update reset hidden


def _weights(c: Any, op: str, nodes: list[Any], biases: bool, directions: int) -> tuple[Any, Any, Any]:
    """W, R and B of one layer."""

    def gates(tensor: Any) -> Any:
        parts = tensor.chunk(len(_GATES[op]), 0)
        return torch.cat([parts[i] for i in _GATES[op]], 0)

    step = 4 if biases else 2
    per_direction = [
        [gates(c.tensor(node)) for node in nodes[d * step : (d + 1) * step]] for d in range(directions)
    ]  # w_ih w_hh b_ih b_hh
    w, r = (torch.stack([group[i] for group in per_direction]) for i in range(2))
    b = torch.stack([torch.cat(group[2:]) for group in per_direction]) if biases else None
    return w.contiguous(), r.contiguous(), b


def _layers(c: Any, node: Any, op: str) -> list[Value]:
    x, state, parameters, biases, layers, _, _, bidirectional, batch_first = node.args
    states = [c.resolve(one) for one in (state if op == "LSTM" else [state])]  # [layers × directions, batch, hidden]
    directions = 2 if bidirectional else 1
    y = c.resolve(x)
    if batch_first:
        y = c.g.transpose(y, perm=[1, 0, 2])
    step = directions * (4 if biases else 2)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        w, r, b = _weights(c, op, parameters[layer * step : (layer + 1) * step], biases, directions)
        first = [
            one if layers == 1 else c.g.slice(one, [layer * directions], [(layer + 1) * directions], [0])
            for one in states
        ]
        extra = {"linear_before_reset": 1} if op == "GRU" else {}
        outputs = c.g.op(
            op, y, w, r, b, None, *first, hidden_size=r.shape[-1], outputs=1 + len(states),
            direction="bidirectional" if bidirectional else "forward", **extra,
        )  # fmt: skip
        y = c.g.transpose(outputs[0], perm=[0, 2, 1, 3])  # [steps, directions, batch, hidden]
        y = c.g.reshape(y, [0, 0, -1])
        for kept, end in zip(ends, outputs[1:], strict=True):
            kept.append(end)
    if batch_first:
        y = c.g.transpose(y, perm=[1, 0, 2])
    return [y, *(kept[0] if layers == 1 else c.g.concat(*kept, axis=0) for kept in ends)]


@_add("lstm.input", raw=True)
def _lstm(c: Any, node: Any) -> list[Value]:
    return _layers(c, node, "LSTM")


@_add("gru.input", raw=True)
def _gru(c: Any, node: Any) -> list[Value]:
    return _layers(c, node, "GRU")


_ARGUMENTS = "Tensor[] params, bool biases, int layers, float dropout, bool train, bool both, bool batch_first"


@torch.library.custom_op(
    "lmnative::lstm", mutates_args=(), schema=f"(Tensor x, Tensor[] hx, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)"
)
def _whole_lstm(x, hx, params, *rest):
    return tuple(one.clone() for one in torch.lstm(x, hx, params, *rest))


@torch.library.custom_op(
    "lmnative::gru", mutates_args=(), schema=f"(Tensor x, Tensor hx, {_ARGUMENTS}) -> (Tensor, Tensor)"
)
def _whole_gru(x, hx, params, *rest):
    return tuple(one.clone() for one in torch.gru(x, hx, params, *rest))


def _like(x: Any, state: Any, both: bool) -> Any:
    return x.new_empty(*x.shape[:-1], state.shape[-1] * (2 if both else 1))


@_whole_lstm.register_fake
def _(x, hx, params, biases, layers, dropout, train, both, batch_first):
    return _like(x, hx[0], both), torch.empty_like(hx[0]), torch.empty_like(hx[1])


@_whole_gru.register_fake
def _(x, hx, params, biases, layers, dropout, train, both, batch_first):
    return _like(x, hx, both), torch.empty_like(hx)


TABLE[torch.ops.lmnative.lstm.default] = _lstm
TABLE[torch.ops.lmnative.gru.default] = _gru

_patching = threading.Lock()


class _Functions:
    """What torch.nn calls its C functions by, but for layers that are being traced. All others run as ever."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._original, name)
        if name not in ("lstm", "gru"):
            return original

        def call(*arguments: Any) -> Any:
            packed = not isinstance(arguments[2], (list, tuple))  # sequences of several lengths
            projected = name == "lstm" and not packed and arguments[1][0].shape[-1] != arguments[1][1].shape[-1]
            traced = type(arguments[0]) not in (torch.Tensor, torch.nn.Parameter)
            if packed or projected or not traced:
                return original(*arguments)
            whole = torch.ops.lmnative.lstm if name == "lstm" else torch.ops.lmnative.gru
            return whole(arguments[0], arguments[1], *arguments[2:])

        return call


@contextmanager
def whole_layers() -> Iterator[None]:
    """While this lasts, tracing keeps these layers whole."""
    rnn = torch.nn.modules.rnn
    with _patching:
        original = rnn._VF
        rnn._VF = _Functions(original)
        try:
            yield
        finally:
            rnn._VF = original
