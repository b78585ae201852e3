# SPDX-License-Identifier: Apache-2.0
"""The backend of the package onnx: its interface, and onnx's node tests against the list of those that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
TESTS = Path(__file__).resolve().parent.parent / "onnx"


def test_models_and_nodes():
    import lmnative.onnx_backend as backend

    a = np.array([[1, 0, 0, 0]], np.float32)
    model = onnx.load(TESTS / "relu_linear.onnx")
    want = [[0, 2, 3.5]]
    for inputs in ([a], a, {"A": a}):
        (c,) = backend.run_model(model, inputs)
        assert c.tolist() == want
    assert backend.prepare(model, threads=1).run([a])[0].tolist() == want
    node = onnx.helper.make_node("Concat", ["x", "y"], ["z"], axis=0)
    (z,) = backend.run_node(node, [np.ones(1, np.int64), np.zeros(2, np.int64)])
    assert z.tolist() == [1, 0, 0]
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="CUDA"):
        backend.prepare(model, "CUDA")
    with pytest.raises(ValueError, match="the model has 1"):
        backend.run_model(model, [a, a])


def test_without_onnx():
    code = "import sys; sys.modules['onnx'] = None; import lmnative; import lmnative.onnx_backend"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "pip install onnx" in done.stderr


def test_node_tests(note):
    if not onnx.__version__.startswith((TESTS / "known_failures.txt").read_text().split()[7]):
        pytest.skip(f"the list of failures is not that of onnx {onnx.__version__}")
    command = [sys.executable, "-W", "ignore", TESTS / "conformance.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    note(f"onnx {onnx.__version__}: {done.stdout.splitlines()[0] if done.stdout else 'no result'}")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
