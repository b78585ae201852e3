# SPDX-License-Identifier: Apache-2.0
"""Functions of TensorFlow through tf2onnx, against TensorFlow."""

from __future__ import annotations

import os

import lmnative
import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for _module in ("tensorflow", "tf2onnx"):
    pytest.importorskip(_module, reason=f"{_module} is not installed: pip install tensorflow-cpu tf2onnx")
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def dice():
    return np.random.default_rng(7)


def variable(dice, *shape):
    return tf.Variable((dice.standard_normal(shape) * 0.3).astype(np.float32))


def check(function, dice, *shape, batches=(1, 4), tolerance=1e-5):
    """`shape`: of one row of the only argument."""
    signature = [tf.TensorSpec([None, *shape], tf.float32, name="x")]
    model, _ = tf2onnx.convert.from_function(tf.function(function, signature), signature, opset=17)
    session = lmnative.Session(model.SerializeToString(), threads=1)
    for batch in batches:
        x = dice.standard_normal((batch, *shape)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        want = function(tf.constant(x)).numpy()
        assert y.shape == want.shape and np.abs(y - want).max() <= tolerance * max(np.abs(want).max(), 1)


def test_convolution_norm_and_product(dice):
    filters, weights = variable(dice, 3, 3, 3, 8), variable(dice, 8, 5)
    mean, offset, scale = (variable(dice, 8) for _ in range(3))
    variance = tf.Variable(dice.uniform(0.5, 2, 8).astype(np.float32))

    def model(x):
        y = tf.nn.conv2d(x, filters, 2, "SAME")
        y = tf.nn.batch_normalization(y, mean, variance, offset, scale, 1e-3)
        y = tf.nn.max_pool2d(tf.nn.relu(y), 2, 2, "VALID")
        return tf.nn.softmax(tf.reduce_mean(y, [1, 2]) @ weights)

    check(model, dice, 16, 16, 3)


def test_recurrent_layers_of_keras(dice):
    tf.keras.utils.set_random_seed(7)
    # A GRU as Keras makes it by default becomes a Loop, one that resets before the product a GRU.
    model = tf.keras.Sequential([
        tf.keras.layers.Input((10, 6)),
        tf.keras.layers.GRU(8, return_sequences=True),
        tf.keras.layers.GRU(7, return_sequences=True, reset_after=False),
        tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(5)),
        tf.keras.layers.Dense(3),
    ])  # fmt: skip
    check(lambda x: model(x), dice, 10, 6)


def test_a_gru_written_down(dice):
    gates, candidate = variable(dice, 10, 12), variable(dice, 10, 6)

    def model(x):
        h = tf.zeros([tf.shape(x)[0], 6])
        for t in tf.range(5):
            z, r = tf.split(tf.sigmoid(tf.concat([x[:, t], h], 1) @ gates), 2, 1)
            h = z * h + (1 - z) * tf.tanh(tf.concat([x[:, t], r * h], 1) @ candidate)
        return h

    check(model, dice, 5, 4)


def test_attention_and_layer_norm(dice):
    query, key, value = (variable(dice, 16, 16) for _ in range(3))

    def heads(x, weights):
        return tf.transpose(tf.reshape(x @ weights, [tf.shape(x)[0], 6, 2, 8]), [0, 2, 1, 3])

    def model(x):
        scores = tf.matmul(heads(x, query), heads(x, key), transpose_b=True) / 8**0.5
        y = tf.transpose(tf.nn.softmax(scores) @ heads(x, value), [0, 2, 1, 3])
        y = x + tf.reshape(y, tf.shape(x))
        mean, variance = tf.nn.moments(y, -1, keepdims=True)
        return tf.nn.gelu((y - mean) * tf.math.rsqrt(variance + 1e-6), approximate=True)  # tf2onnx has no Erfc

    check(model, dice, 6, 16)


def test_indices_and_ragged_steps(dice):
    table = variable(dice, 12, 4)

    def model(x):
        best = tf.math.top_k(x, 3)
        rows = tf.gather(table, best.indices)
        picked = tf.where(rows > 0, rows, tf.exp(rows) - 1) * best.values[..., None]
        return tf.concat([tf.reduce_sum(picked, 1), tf.cumsum(x, 1)[:, ::5], tf.one_hot(tf.argmax(x, 1), 12)], 1)

    check(model, dice, 12)
