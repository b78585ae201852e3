# SPDX-License-Identifier: Apache-2.0
"""Writes seed files for the fuzz target of sessions into a folder. Usage: make_session_corpus.py FOLDER

The seeds of the reader (make_onnx_corpus.py), relu_linear.onnx, and, where the package onnx is installed, the smallest
of its node tests for each combination of operators.
"""

import importlib.util
import pathlib
import shutil
import sys

import make_onnx_corpus

MAX_BYTES = 2048
SMALL_MODEL = pathlib.Path(__file__).resolve().parent.parent / "onnx" / "relu_linear.onnx"


def node_tests():
    from onnx.backend.test.case import node

    smallest = {}
    for case in node.collect_testcases(None):
        operators = frozenset(each.op_type for each in case.model.graph.node)
        model = case.model.SerializeToString()
        if len(model) < len(smallest.get(operators, (None, bytes(MAX_BYTES)))[1]):
            smallest[operators] = (case.name, model)
    return smallest.values()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in make_onnx_corpus.seeds():
        (folder / name).write_bytes(content)
    shutil.copy(SMALL_MODEL, folder)
    if importlib.util.find_spec("onnx") is not None and not (folder / "test_relu").exists():  # they take some seconds
        for name, content in node_tests():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
