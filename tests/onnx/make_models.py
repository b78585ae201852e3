#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes relu_linear.onnx, the small model of the tests that do without the package onnx: C = ReLU(A·B + bias)."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

B = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
BIAS = np.array([-20, 0, 0.5], np.float32)


def main() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["A", "B"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["C"]),
        ],
        "relu_linear",
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("C", TensorProto.FLOAT, ["rows", 3])],
        [numpy_helper.from_array(B, "B"), numpy_helper.from_array(BIAS, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    Path(__file__).with_name("relu_linear.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
