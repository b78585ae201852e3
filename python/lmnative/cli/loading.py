# SPDX-License-Identifier: Apache-2.0
"""What subcommands share: loading a model with a progress bar, and figures about this process."""

from __future__ import annotations

import argparse
import sys
import time

from lmnative.llm import LLM

ENGINE_OPTIONS = ("threads", "context_tokens", "kv_type", "read_mode", "activation_bits", "device")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(options: argparse.Namespace, context_tokens: int | None = None, **more: Any) -> tuple[LLM, float]:
    """The LLM that the engine options describe, and the seconds it took.

    `context_tokens`: where the options have none. `more`: further keywords of Engine.
    """
    start = time.perf_counter()
    keywords = engine_keywords(options)
    if keywords["context_tokens"] is None:
        keywords["context_tokens"] = context_tokens
    llm = LLM(options.model, **keywords, progress=sys.stderr.isatty(), **more)
    return llm, time.perf_counter() - start


def engine_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of Engine that every command with a model has options for."""
    return {name: getattr(options, name) for name in ENGINE_OPTIONS}


def peak_rss_bytes() -> int:
    """The most memory that this process has held in RAM; mapped pages of files count."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def printable(text: str) -> str:
    """`text` on one line, with control characters escaped: what a file says must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
