# SPDX-License-Identifier: Apache-2.0
"""The C library's malloc, as the benchmark program finds it."""

from __future__ import annotations

import platform

NAME = "malloc"
INSTALL = ""  # always there


def version() -> str:
    return " ".join(platform.libc_ver()) or "?"
