# SPDX-License-Identifier: Apache-2.0
"""Drawings of graphs: well-formed, complete, from top to bottom, and without boxes on top of each other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import lmnative
import numpy as np
import pytest
from lmnative.drawing import draw
from lmnative.drawing.layout import lay_out
from lmnative.drawing.reading import read
from lmnative.drawing.svg import class_of

SVG = "{http://www.w3.org/2000/svg}"
MODEL = Path(__file__).resolve().parent.parent / "onnx" / "relu_linear.onnx"


def boxes_of(root):
    """(left, top, right, bottom, texts) of every box."""
    found = []
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        x, y, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height, [text.text for text in group.findall(f"{SVG}text")]))
    return found


def check(svg, boxes, edges):
    root = ElementTree.fromstring(svg)
    found, paths = boxes_of(root), root.findall(f"{SVG}path")
    assert (len(found), len(paths)) == (boxes, edges)
    width, height = float(root.get("width")), float(root.get("height"))
    for i, (left, top, right, bottom, _) in enumerate(found):
        assert left >= 0 and top >= 0 and right <= width and bottom <= height
        assert not any(left < r and l < right and top < b and t < bottom for l, t, r, b, _ in found[:i])  # noqa: E741
    for path in paths:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d"))]
        ys = [numbers[1], *numbers[7::6]]
        assert ys == sorted(ys)
        (x0, y0), (x1, y1) = numbers[:2], numbers[-2:]
        assert any(left <= x0 <= right and abs(bottom - y0) < 0.2 for left, _, right, bottom, _ in found)
        assert any(left <= x1 <= right and abs(top - y1) < 0.2 for left, top, right, _, _ in found)
    return root, found


def test_a_small_graph():
    g = lmnative.Graph()
    a = g.input("A", "float32", ("rows", 4))
    y = g.relu(a @ np.ones((4, 3), np.float32) + 1.0)
    g.output("C", g.concat(y, g.softmax(y), a, axis=1))
    root, found = check(draw(g.session(threads=1, optimize=False).graph(False)), 7, 8)
    texts = [text for *_, lines in found for text in lines]
    assert {"A", "f32[rows, 4]", "MatMul", "Add", "Relu", "Softmax", "Concat", "axis=1", "C"} <= set(texts)
    assert any("f32[4, 3]" in text for text in texts)
    assert [text.text for text in root.findall(f"{SVG}text")].count("f32[rows, 3]") == 4
    groups = [group.get("class") for group in root.iter(f"{SVG}g")]
    assert groups.count("product") == 1 and groups.count("shape") == 1 and groups.count("elementwise") == 2


def test_a_chain_of_elements_names_its_operators():
    g = lmnative.Graph()
    a = g.input("A", "float32", ("rows", 4))
    g.output("C", g.tanh(a * 0.5 + 1.0))
    root, found = check(draw(g.session(threads=1).graph()), 3, 2)
    assert any("Mul, Add, Tanh" in lines for *_, lines in found)
    assert any("steps=[Mul x0 x1, Add t0 x2, Tanh t1]" in title.text for title in root.iter(f"{SVG}title"))


def test_classes_of_operators():
    assert class_of("MatMul") == class_of("lmnative.Linear") == class_of("com.microsoft.Attention") == "product"
    assert class_of("ReduceMean") == class_of("Softmax") == "norm"
    assert (class_of("Gelu"), class_of("If"), class_of("Gather")) == ("elementwise", "control", "shape")


def test_names_may_be_anything():
    g = lmnative.Graph()
    x = g.input("a, (b) = <c>&\x07", "float32", (2,))
    g.output("y = 1", g.add(x, g.constant([1.0, 2.0], name="w), (x, y")))
    g.output("z", x)
    text = g.session(threads=1, optimize=False).graph(False)
    graph = read(text)
    assert [box.kind for box in graph.boxes] == ["input", "Add", "output", "output"]
    assert graph.boxes[1].operands == ["a, (b) = <c>&\x07", "w), (x, y"] and graph.boxes[2].name == "y = 1"
    check(draw(text), 4, 3)


def test_five_hundred_nodes():
    generator = np.random.default_rng(5)
    g = lmnative.Graph()
    values = [g.input("x", "float32", ("n",))]
    edges = 1
    for _ in range(500):
        a, b = (values[-1 - int(generator.integers(0, min(len(values), 6)))] for _ in range(2))
        edges += 1 if a is b else 2
        values.append(a + b)
    g.output("y", values[-1])
    check(draw(g.session(threads=1, optimize=False).graph(False)), 502, edges)


def test_straight_chains_are_straight():
    layout = lay_out([50, 80, 30, 60], [20] * 4, [(0, 1), (1, 2), (2, 3)])
    assert len(set(layout.centres)) == 1 and layout.tops == sorted(layout.tops)
    wide = lay_out([40] * 5, [20] * 5, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    assert wide.centres[0] == pytest.approx(wide.centres[4]) == pytest.approx(wide.centres[2])


def test_command(tmp_path):
    out = tmp_path / "model.svg"
    command = [sys.executable, "-m", "lmnative", "inspect", "--graph", str(MODEL), "--optimised", "--svg", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    _, found = check(out.read_text(encoding="utf-8"), 3, 2)
    assert any("lmnative.Linear" in lines for *_, lines in found)
    command[-1] = str(tmp_path / "nowhere" / "model.svg")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"lmnative: error: {command[-1]}: No such file or directory\n"
