# SPDX-License-Identifier: Apache-2.0
"""Damaged ONNX models through the whole library: errors or results, within limits (tests/stress/mutate_onnx.py)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import lmnative
import numpy as np
import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "stress"))
import mutate_onnx  # noqa: E402

MODEL = (TESTS / "onnx" / "relu_linear.onnx").read_bytes()
GRAPH, OUTPUT, NAME = 7, 12, 1


def only(fields, number):
    (found,) = (field for field in fields if field.number == number)
    return found


def test_a_few_mutations_of_small_models(tmp_path):
    command = [sys.executable, TESTS / "stress" / "mutate_onnx.py", "-n", "40", "--seed", "2", "--models-dir", tmp_path]
    for name in ("relu_linear", "lstm", "silero_vad", "magika"):
        command += ["--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(sum(json.loads(line)["outcomes"].values()) == 40 for line in done.stdout.splitlines())


def test_files_are_written_as_they_were_read():
    assert mutate_onnx.write(mutate_onnx.parse(MODEL, "model")) == MODEL


def test_an_output_without_a_name():
    model = mutate_onnx.parse(MODEL, "model")
    only(only(only(model, GRAPH).value, OUTPUT).value, NAME).value = b""
    with pytest.raises(lmnative.CorruptError, match="left out"):
        lmnative.Session(mutate_onnx.write(model))


def test_weights_in_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(mutate_onnx, "LARGE_TENSOR", 8)
    with (tmp_path / mutate_onnx.WEIGHTS).open("wb") as file:
        model = mutate_onnx.without_large_weights(mutate_onnx.parse(MODEL, "model"), file)
    feeds = {"A": np.array([[1, -2, 3, 0.5]], np.float32)}
    (want,) = lmnative.Session(MODEL).run(None, feeds)
    session = lmnative.Session(mutate_onnx.write(model), base_folder=tmp_path)
    assert np.array_equal(session.run(None, feeds)[0], want)

    tensors = [s[i].value for s, i in mutate_onnx.walk(model) if mutate_onnx.is_external(s[i])]
    assert len(tensors) == 2
    for tensor in tensors:
        mutate_onnx.change_weights(tensor, tmp_path, random.Random(1))
    assert not np.array_equal(lmnative.Session(mutate_onnx.write(model)).run(None, feeds)[0], want)


def test_attributes_of_another_type():
    # An older operator set, whose operators are rewritten before anything looks at their types.
    helper = pytest.importorskip("onnx.helper", reason="onnx is not installed: pip install onnx")
    for version in (11, 17):
        node = helper.make_node("Softmax", ["x"], ["y"], axis=1.0)
        with pytest.raises(lmnative.InvalidArgumentError, match="'axis' is a number; it takes an integer"):
            lmnative.Session(onnx_model(helper, [node], version))


def test_a_function_is_given_a_graph():
    helper = pytest.importorskip("onnx.helper", reason="onnx is not installed: pip install onnx")
    branch = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "b", [], [value(helper, "b")])
    inner = helper.make_node("If", ["c"], ["y"])
    for name in ("then_branch", "else_branch"):
        inner.attribute.add(name=name, ref_attr_name="branch", type=5)
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x", "c"], ["y"], [inner], imports, ["branch"])
    constant = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", 9, [], [True]))
    node = helper.make_node("F", ["x", "c"], ["y"], domain="own", branch=branch)
    with pytest.raises(lmnative.Error, match="graph"):
        lmnative.Session(onnx_model(helper, [constant, node], 17, functions=[function]))


def value(helper, name):
    return helper.make_tensor_value_info(name, 1, [2, 3])


def onnx_model(helper, nodes, version, functions=()):
    graph = helper.make_graph(nodes, "g", [value(helper, "x")], [value(helper, "y")])
    imports = [helper.make_opsetid("", version), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8).SerializeToString()
