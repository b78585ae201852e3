# SPDX-License-Identifier: Apache-2.0
"""Layer norms, RMS norms and Gelu as exporters of older operator sets write them, against PyTorch.

One operator each in the graph that runs, and the same results with the optimiser and without it.
"""

from __future__ import annotations

import io

import lmnative
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch)")
pytest.importorskip("onnx", reason="onnx is not installed (pip install onnx)")

pytestmark = pytest.mark.filterwarnings("ignore")


class RmsNorm(torch.nn.Module):
    def __init__(self, columns: int, narrow: bool = False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.narrow = narrow

    def forward(self, x):
        h = x.float() if self.narrow else x
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (h.to(x.dtype) if self.narrow else h)


class KerasNorm(torch.nn.Module):
    """Keras' LayerNormalization on TensorFlow: x * factor + (beta - mean * factor)."""

    def __init__(self, columns: int):
        super().__init__()
        self.gamma, self.beta = (torch.nn.Parameter(torch.randn(columns)) for _ in range(2))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        distance = x - mean
        factor = torch.reciprocal(torch.sqrt((distance * distance).mean(-1, keepdim=True) + 1e-3)) * self.gamma
        return x * factor + (self.beta - mean * factor)


def exported(module, x, opset: int) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, opset_version=opset, dynamo=False, input_names=["x"],
                      dynamic_axes={"x": {0: "rows"}})  # fmt: skip
    return file.getvalue()


def layer_norm(columns: int):
    module = torch.nn.LayerNorm(columns)
    torch.nn.init.normal_(module.weight)
    torch.nn.init.normal_(module.bias)
    return module


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (layer_norm, "LayerNormalization"),
        (lambda n: torch.nn.LayerNorm((5, n), elementwise_affine=True), "LayerNormalization"),
        (lambda n: torch.nn.LayerNorm(n, elementwise_affine=False), "LayerNormalization"),
        (KerasNorm, "LayerNormalization"),
        (RmsNorm, "RMSNormalization"),
        (lambda n: torch.nn.GELU(), "Gelu"),
        (lambda n: torch.nn.GELU(approximate="tanh"), "Gelu"),
    ],
)
@pytest.mark.parametrize("opset", [11, 16])
def test_one_operator(make, operator, opset):
    torch.manual_seed(3)
    module = make(48).eval()
    model = exported(module, torch.randn(2, 5, 48), opset)
    session, plain = lmnative.Session(model), lmnative.Session(model, optimize=False)
    nodes = [line for line in session.graph().splitlines() if line.startswith("%")]
    assert len(nodes) == 1 and f" = {operator}(x" in nodes[0]
    assert operator not in plain.graph(False)
    for rows in (1, 7):
        x = torch.randn(rows, 5, 48) * 3 + 1
        want = module(x).detach().numpy()
        for one in (session, plain):
            (y,) = one.run(None, {"x": x.numpy()})
            assert y.shape == want.shape and np.abs(y - want).max() <= 1e-5 * max(1.0, np.abs(want).max())


def test_half_precision_is_normalised_in_float32():
    torch.manual_seed(4)
    module = RmsNorm(48, narrow=True).half().eval()
    x = (torch.randn(3, 5, 48) * 3).half()
    session = lmnative.Session(exported(module, x, 16))
    nodes = [line for line in session.graph().splitlines() if line.startswith("%")]
    assert len(nodes) == 1 and "f16[rows, 5, 48] = RMSNormalization(x" in nodes[0]
    (y,) = session.run(None, {"x": x.numpy()})
    want = module.float()(x.float()).detach().numpy()
    assert y.dtype == np.float16 and np.abs(y.astype(np.float32) - want).max() <= 2e-3 * np.abs(want).max()
