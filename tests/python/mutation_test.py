# SPDX-License-Identifier: Apache-2.0
"""Damaged ONNX models through the whole library: errors or results, within limits (tests/stress/mutate_onnx.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lmnative
import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "stress"))
import mutate_onnx  # noqa: E402

MODEL = (TESTS / "onnx" / "relu_linear.onnx").read_bytes()
GRAPH, OUTPUT, NAME = 7, 12, 1


def only(fields, number):
    (found,) = (field for field in fields if field.number == number)
    return found


def test_a_few_mutations_of_every_model():
    script = TESTS / "stress" / "mutate_onnx.py"
    done = subprocess.run([sys.executable, script, "-n", "40", "--seed", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(sum(json.loads(line)["outcomes"].values()) == 40 for line in done.stdout.splitlines())


def test_files_are_written_as_they_were_read():
    assert mutate_onnx.write(mutate_onnx.parse(MODEL, "model")) == MODEL


def test_an_output_without_a_name():
    model = mutate_onnx.parse(MODEL, "model")
    only(only(only(model, GRAPH).value, OUTPUT).value, NAME).value = b""
    with pytest.raises(lmnative.CorruptError, match="left out"):
        lmnative.Session(mutate_onnx.write(model))
