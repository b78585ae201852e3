# SPDX-License-Identifier: Apache-2.0
"""Layers for a graph without cycles (Sugiyama's method): who is above whom, in which order, and where.

A box lies below all that it reads from. An edge that spans several layers gets a bend in each, which is laid out like a
box. Orders come from barycentres, up and down; places from the mean of the neighbours, with what overlaps pushed apart.
"""

from __future__ import annotations

from dataclasses import dataclass

GAP_X = 24.0  # between neighbours, in pixels
GAP_Y = 46.0  # between layers
BEND = 8.0  # the width that an edge takes up where it passes a layer
SWEEPS = 8


@dataclass
class Layout:
    centres: list[float]  # of the boxes
    tops: list[float]
    paths: list[list[tuple[float, float]]]  # of the edges: where they leave, bend and arrive
    width: float
    height: float


def lay_out(widths: list[float], heights: list[float], edges: list[tuple[int, int]]) -> Layout:
    """Boxes are numbered so that edges (from, to) go from lower to higher numbers."""
    layers = _layers(len(widths), edges)
    widths, layer_of = list(widths), list(layers)
    links: list[tuple[int, int]] = []  # between neighbouring layers
    chains: list[list[int]] = []
    for start, end in edges:
        chain = [start]
        for layer in range(layer_of[start] + 1, layer_of[end]):
            widths.append(BEND)
            layer_of.append(layer)
            chain.append(len(widths) - 1)
        chain.append(end)
        links += zip(chain, chain[1:], strict=False)
        chains.append(chain)
    rows: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for item, layer in enumerate(layer_of):
        rows[layer].append(item)
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    _order(rows, above, below)
    centres = _places(rows, above, below, widths)
    tops, spans = _tops(rows, heights)
    left = min((centres[i] - widths[i] / 2 for i in range(len(widths))), default=0.0) - GAP_X
    centres = [centre - left for centre in centres]
    width = max((centres[i] + widths[i] / 2 for i in range(len(widths))), default=0.0) + GAP_X
    paths = []
    for chain in chains:
        points = [(centres[chain[0]], tops[chain[0]] + heights[chain[0]])]
        points += [(centres[item], y) for item in chain[1:-1] for y in spans[layer_of[item]]]
        paths.append([*points, (centres[chain[-1]], tops[chain[-1]])])
    height = max((tops[i] + heights[i] for i in range(len(heights))), default=0.0) + GAP_Y
    return Layout(centres[: len(heights)], tops, paths, width, height)


def _layers(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The longest way from a box that reads nothing; such boxes move down to what reads them first."""
    incoming: list[list[int]] = [[] for _ in range(count)]
    outgoing: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        incoming[b].append(a)
        outgoing[a].append(b)
    layers = [0] * count
    for item in range(count):
        layers[item] = max((layers[source] + 1 for source in incoming[item]), default=0)
    for item in range(count):
        if not incoming[item] and outgoing[item]:
            layers[item] = min(layers[target] for target in outgoing[item]) - 1
    return layers


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    place = {item: float(i) for row in rows for i, item in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            means = {
                item: sum(place[other] for other in neighbours[item]) / len(neighbours[item])
                if neighbours[item]
                else place[item]
                for item in row
            }
            row.sort(key=means.__getitem__)
            place.update((item, float(i)) for i, item in enumerate(row))


def _places(rows: list[list[int]], above: list[list[int]], below: list[list[int]], widths: list[float]) -> list[float]:
    centres = [0.0] * len(widths)
    for row in rows:
        at = 0.0
        for item in row:
            centres[item] = at + widths[item] / 2
            at += widths[item] + GAP_X
        for item in row:
            centres[item] -= at / 2
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            wanted = [
                sum(centres[other] for other in neighbours[item]) / len(neighbours[item])
                if neighbours[item]
                else centres[item]
                for item in row
            ]
            for item, centre in zip(row, _spread(wanted, [widths[item] for item in row]), strict=True):
                centres[item] = centre
    return centres


def _spread(wanted: list[float], widths: list[float]) -> list[float]:
    """The centres that are nearest to the wanted ones (least squares) and do not overlap: blocks of neighbours that
    touch move together (pool adjacent violators)."""
    offsets, at = [], 0.0
    for i, width in enumerate(widths):
        at += (widths[i - 1] + width) / 2 + GAP_X if i else 0.0
        offsets.append(at)
    blocks: list[list[float]] = []  # sum of (wanted - offset), count
    for centre, offset in zip(wanted, offsets, strict=True):
        blocks.append([centre - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _tops(rows: list[list[int]], heights: list[float]) -> tuple[list[float], list[tuple[float, float]]]:
    """Where boxes begin, and where rows begin and end."""
    tops, spans = [0.0] * len(heights), []
    y = GAP_Y
    for row in rows:
        boxes = [item for item in row if item < len(heights)]
        for item in boxes:
            tops[item] = y
        end = y + max((heights[item] for item in boxes), default=0.0)
        spans.append((y, end))
        y = end + GAP_Y
    return tops, spans
