# SPDX-License-Identifier: Apache-2.0
"""The text form of a graph (cpp/graph/text.cc), read back as far as a drawing needs it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OUTPUT = re.compile(r"(%\d+) : ((?:(?:sequence|optional|map) )?[\w+]+(?:\[[^\]]*\])?)(, | = )")


@dataclass
class Box:
    """What is drawn as one box: an input, a node or an output of the graph."""

    kind: str  # "input", "output" or the operator
    name: str = ""
    attributes: str = ""
    operands: list[str] = field(default_factory=list)  # names of values
    results: list[tuple[str, str]] = field(default_factory=list)  # name of a value, its type


@dataclass
class GraphText:
    boxes: list[Box] = field(default_factory=list)  # in the order of definition
    constants: dict[str, str] = field(default_factory=dict)  # name -> type


def read(text: str) -> GraphText:
    graph = GraphText()
    known = {"-"}
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "input":
            name, _, kind = rest.rpartition(" : ")
            graph.boxes.append(Box("input", name, results=[(name, kind)]))
            known.add(name)
        elif word == "constant":
            name, _, kind = rest.rpartition(" : ")
            graph.constants[name] = kind
            known.add(name)
        elif word == "output":
            name, _, value = rest.partition(" = ")
            while value not in known and " = " in value:  # a name with an equals sign
                more, _, value = value.partition(" = ")
                name += " = " + more
            graph.boxes.append(Box("output", name, operands=[value]))
        elif word.startswith("%"):
            box = _node(line, known)
            if box is not None:
                graph.boxes.append(box)
    return graph


def _node(line: str, known: set[str]) -> Box | None:
    results, at = [], 0
    while True:
        match = _OUTPUT.match(line, at)
        if match is None:
            return None
        results.append((match[1], match[2]))
        at = match.end()
        if match[3] == " = ":
            break
    op, _, rest = line[at:].partition("(")
    operands, rest = _operands(rest, known)
    label = rest.rpartition("  # ")
    attributes = (label[0] if label[1] else rest).strip()
    known.update(name for name, _ in results)
    return Box(op, label[2] if label[1] else "", attributes.strip("{}"), operands, results)


def _operands(text: str, known: set[str]) -> tuple[list[str], str]:
    """The operands, and what follows their bracket. Names may have commas and brackets in them."""
    operands: list[str] = []
    at = 0
    while at < len(text) and text[at] != ")":
        for end in re.finditer(r", |\)", text[at:]):
            if text[at : at + end.start()] in known:
                break
        else:  # a name with a line break, or one that is cut
            return operands, ""
        operands.append(text[at : at + end.start()])
        at += end.start()
        if text[at] == ")":
            break
        at += 2
    return operands, text[at + 1 :]
