# SPDX-License-Identifier: Apache-2.0
"""What subcommands share: loading a model with a progress bar, and figures about this process."""

from __future__ import annotations

import argparse
import sys
import time

from lmnative.llm import LLM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(options: argparse.Namespace, context_tokens: int | None = None, **more: Any) -> tuple[LLM, float]:
    """The LLM that the engine options describe, and the seconds it took.

    `context_tokens`: where the options have none. `more`: further keywords of Engine.
    """
    start = time.perf_counter()
    llm = LLM(
        options.model,
        threads=options.threads,
        context_tokens=options.context_tokens if options.context_tokens is not None else context_tokens,
        kv_type=options.kv_type,
        read_mode=options.read_mode,
        activation_bits=options.activation_bits,
        progress=sys.stderr.isatty(),
        **more,
    )
    return llm, time.perf_counter() - start


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
