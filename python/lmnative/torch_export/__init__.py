# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as sessions: torch.export gives a graph of ATen operators, which become those of a Graph.

Nothing of this is imported with the package; torch is imported by from_torch.
"""

from lmnative.torch_export.convert import from_torch

__all__ = ["from_torch"]
