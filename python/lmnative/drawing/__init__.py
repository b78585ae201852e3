# SPDX-License-Identifier: Apache-2.0
"""Graphs as SVG: reads what Session.graph() prints, lays it out in layers, and writes plain SVG."""

from lmnative.drawing.svg import draw

__all__ = ["draw"]
