# SPDX-License-Identifier: Apache-2.0
"""Models of Keras 3 through its ONNX exporter, against Keras. Its backend is torch here; TensorFlow's needs tf2onnx."""

from __future__ import annotations

import os

import lmnative
import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
for _module in ("torch", "onnxscript", "keras"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install torch keras onnxscript")
import keras  # noqa: E402
from keras import layers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def check(model, tmp_path, *shape, batches=(1, 4)):
    generator = np.random.default_rng(3)
    model(np.zeros((1, *shape), np.float32))  # the exporter wants a model that was called
    path = tmp_path / "model.onnx"
    model.export(str(path), format="onnx", verbose=False)
    session = lmnative.Session(path, threads=1)
    (port,) = session.get_inputs()
    for batch in batches:
        x = generator.standard_normal((batch, *shape)).astype(np.float32)
        (y,) = session.run(None, {port.name: x})
        want = np.asarray(model.predict(x, verbose=0))
        assert y.shape == want.shape and np.abs(y - want).max() <= 1e-4


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(5)


def test_dense(tmp_path):
    model = keras.Sequential([
        layers.Input((12,)), layers.Dense(32, activation="relu"), layers.Dropout(0.5),
        layers.Dense(16, activation="gelu"), layers.Dense(4, activation="softmax"),
    ])  # fmt: skip
    check(model, tmp_path, 12)


def test_convolutions(tmp_path):
    x = inputs = layers.Input((16, 16, 3))
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Add()([x, layers.SeparableConv2D(8, 3, padding="same")(x)])
    x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(5, activation="sigmoid")(x))
    check(model, tmp_path, 16, 16, 3)


def test_a_model_on_torch_is_a_module_of_torch():
    import torch

    model = keras.Sequential([layers.Input((12,)), layers.Dense(8, activation="gelu"), layers.LayerNormalization()])
    x = np.random.default_rng(4).standard_normal((3, 12)).astype(np.float32)
    session = lmnative.from_torch(model.eval(), torch.zeros(3, 12), threads=1)
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    assert np.abs(y - model.predict(x, verbose=0)).max() <= 1e-4


def test_attention(tmp_path):
    x = inputs = layers.Input((6, 16))
    x = layers.Add()([x, layers.MultiHeadAttention(2, 8)(x, x)])
    model = keras.Model(inputs, layers.Dense(3)(x))
    check(model, tmp_path, 6, 16)
