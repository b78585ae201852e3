# SPDX-License-Identifier: Apache-2.0
"""How operators get into a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def adder(table: dict[Any, Any]) -> Callable[..., Callable[[Any], Any]]:
    """A decorator that puts a function into `table` under names of ATen operators ("add.Tensor"). Names that this
    version of PyTorch does not have are left out. `raw`: the function reads the node's arguments itself."""

    def add(*names: str, raw: bool = False) -> Callable[[Any], Any]:
        def put(function: Any) -> Any:
            if raw:
                function.raw = True
            for name in names:
                packet, _, overload = name.partition(".")
                found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
                if found is not None:
                    table[found] = function
            return function

        return put

    return add
