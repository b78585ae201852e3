# SPDX-License-Identifier: Apache-2.0
"""The tables of all files: ATen operator -> function(converter, node, *arguments) that adds it to the graph."""

from __future__ import annotations

from typing import Any

from lmnative.torch_export import elementwise, layers, recurrent, shapes

OPERATORS: dict[Any, Any] = {}
for _table in (elementwise, layers, recurrent, shapes):
    OPERATORS.update(_table.TABLE)
