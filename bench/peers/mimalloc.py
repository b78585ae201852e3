# SPDX-License-Identifier: Apache-2.0
"""mimalloc as a shared library beside the C library's malloc: it replaces nothing."""

from __future__ import annotations

import ctypes

NAME = "mimalloc"
INSTALL = "apt install libmimalloc2.0"
LIBRARIES = ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so")


def library() -> str:
    """The name under which the loader finds it; ImportError if it does not."""
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    raise ImportError("no libmimalloc")


def version() -> str:
    number = ctypes.CDLL(library()).mi_version()
    return f"{number // 100}.{number // 10 % 10}.{number % 10}"
