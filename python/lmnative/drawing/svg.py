# SPDX-License-Identifier: Apache-2.0
"""Boxes and edges as SVG text. Details (names, attributes, types) are tooltips as well."""

from __future__ import annotations

from html import escape

from lmnative.drawing.layout import lay_out
from lmnative.drawing.reading import Box, GraphText, read

FONT = 12
CHARACTER = 6.7  # pixels of a character of that size, on average
LINE = 16.0
LONG = 34  # characters of a line of a box

# Colours by class, and which operators are of it; the rest is element by element.
CLASSES = {
    "product": ("#d6e6ff", "#3b6fb5", "MatMul Gemm Linear Conv ConvTranspose Attention Einsum LSTM GRU RNN "
                "MatMulInteger ConvInteger QLinearMatMul QLinearConv MultiHeadAttention GroupQueryAttention"),
    "norm": ("#e8dcff", "#7652b8", "Softmax LogSoftmax BatchNormalization LayerNormalization RMSNormalization "
             "InstanceNormalization GroupNormalization SkipLayerNormalization LpNormalization ArgMax ArgMin TopK "
             "CumSum MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool"),
    "shape": ("#ececec", "#707070", "Reshape Transpose Squeeze Unsqueeze Flatten Concat Split Slice Gather "
              "GatherElements GatherND ScatterElements ScatterND Expand Tile Pad Shape Size Cast CastLike Identity "
              "Range Where ConstantOfShape Resize OneHot NonZero DepthToSpace SpaceToDepth Trilu"),
    "quantised": ("#d5f0ea", "#2c8471", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    "control": ("#ffd9d9", "#b54343", "If Loop Scan SequenceMap"),
    "input": ("#fff3c4", "#a78416", "input"),
    "output": ("#fff3c4", "#a78416", "output"),
}  # fmt: skip
ELEMENTWISE = ("#dff2d2", "#548a35")
_CLASS_OF = {op: name for name, (_, _, ops) in CLASSES.items() for op in ops.split()}


def class_of(kind: str) -> str:
    """The class of an operator, by its name without the domain."""
    op = kind.rpartition(".")[2]
    found = _CLASS_OF.get(op)
    return found or ("norm" if op.startswith("Reduce") else "elementwise")


def draw(text: str) -> str:
    """The SVG of a graph, which Session.graph() gave as text."""
    graph = read(text)
    boxes = graph.boxes
    lines = [_lines(box, graph) for box in boxes]
    widths = [max(len(line) for line in one) * CHARACTER + 20 for one in lines]
    heights = [len(one) * LINE + 10 for one in lines]
    producer = {name: i for i, box in enumerate(boxes) for name, _ in box.results}
    types = {name: kind for box in boxes for name, kind in box.results}
    wires = list(dict.fromkeys((producer[name], i, name) for i, box in enumerate(boxes) for name in box.operands
                               if name in producer))  # fmt: skip
    layout = lay_out(widths, heights, [(start, end) for start, end, _ in wires])
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:.0f}" height="{layout.height:.0f}" '
        f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" font-family="sans-serif" font-size="{FONT}">',
        "<style>rect{rx:5px;stroke-width:1.2px}path{fill:none;stroke:#999}.type{fill:#666;font-size:10px}"
        ".name{font-weight:bold}text{text-anchor:middle}</style>",
        f'<rect x="0" y="0" width="{layout.width:.0f}" height="{layout.height:.0f}" fill="#fff" stroke="none"/>',
    ]
    labelled: set[str] = set()
    for (_, _, name), path in zip(wires, layout.paths, strict=True):
        out.append(f'<path d="{_curve(path)}"><title>{escape(_clean(f"{name} : {types[name]}"))}</title></path>')
        if name not in labelled:  # once for a value, where the first of its edges arrives
            labelled.add(name)
            x, y = path[-1]
            out.append(f'<text class="type" x="{x:.1f}" y="{y - 5:.1f}">{escape(_clean(_short(types[name])))}</text>')
    for box, one, width, height, x, y in zip(boxes, lines, widths, heights, layout.centres, layout.tops, strict=True):
        out += _box(box, one, width, height, x, y)
    return "\n".join([*out, "</svg>", ""])


def _box(box: Box, lines: list[str], width: float, height: float, x: float, y: float) -> list[str]:
    kind = class_of(box.kind)
    fill, stroke = CLASSES[kind][:2] if kind in CLASSES else ELEMENTWISE
    details = "\n".join(
        part for part in (box.name, box.attributes, *(f"{name} : {type_}" for name, type_ in box.results)) if part
    )
    title = escape(_clean(details, keep="\n"))
    out = [
        f'<g class="{kind}"><title>{title}</title>',
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="{stroke}"/>',
    ]
    for i, line in enumerate(lines):
        style = ' class="name"' if i == 0 else ""
        out.append(f'<text{style} x="{x:.1f}" y="{y + (i + 1) * LINE:.1f}">{escape(_clean(line))}</text>')
    return [*out, "</g>"]


def _lines(box: Box, graph: GraphText) -> list[str]:
    """What stands in a box: the operator, its constants, its attributes."""
    if box.kind in ("input", "output"):
        return [_short(box.name), *(kind for _, kind in box.results)]
    lines = [box.kind]
    lines += [_short(f"{name.rpartition('/')[2]} {graph.constants[name]}")
              for name in box.operands if name in graph.constants]  # fmt: skip
    if box.kind == "lmnative.ElementwiseChain":  # the operators; their operands are in the title
        lines.append(_short(", ".join(step.split(" ")[0] for step in box.attributes[len("steps=[") :].split(", "))))
    elif box.attributes:
        lines.append(_short(box.attributes))
    return lines


def _curve(points: list[tuple[float, float]]) -> str:
    out = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        middle = (y0 + y1) / 2
        out += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return out


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 12]}…{text[-11:]}"


def _clean(text: str, keep: str = "") -> str:
    """Without what XML may not have."""
    return "".join(c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in text)
