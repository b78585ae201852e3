# SPDX-License-Identifier: Apache-2.0
"""lmnative trace: answers prompts together and writes a Chrome trace of it, for Perfetto or chrome://tracing.

The file follows the Trace Event Format: one track for the engine's thread, a span per step with its five parts inside;
one track per request with the spans queue, prefill and decode. Times are in µs, exact to the nanosecond, from the first
span on.
"""

from __future__ import annotations

import argparse
import json
import sys

from lmnative.cli.arguments import sampling_of
from lmnative.cli.loading import load, printable
from lmnative.engine import TraceEvent

ROOM = 2**20
"""Spans: 50 MB, and steps for an hour of answers."""
PROCESS, ENGINE = 1, 1  # numbers of the process and of the engine's track; requests follow
LABEL_LENGTH = 40
STEP_PARTS = ("schedule", "prepare", "run", "sample", "deliver")


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    llm, _ = load(options, trace_events=ROOM)
    with llm:
        llm.generate(options.prompts, **sampling_of(options))
        events, lost = llm.engine.trace()
    trace = {"traceEvents": chrome_events(events, options.prompts), "displayTimeUnit": "ns"}
    if options.chrome == "-":
        json.dump(trace, sys.stdout)
        print()
    else:
        with open(options.chrome, "w", encoding="utf-8") as file:
            json.dump(trace, file)
    if lost:
        print(f"lmnative: {lost} spans are missing: there was no room for them", file=sys.stderr)
    return 0


def chrome_events(events: list[TraceEvent], prompts: list[str]) -> list[dict[str, object]]:
    """The trace as a list of the Trace Event Format. Request i of the engine, from 1, is that of prompts[i - 1]."""
    origin = min((event.begin_ns for event in events), default=0)
    result = [
        _name("process_name", 0, "lmnative"),
        _name("thread_name", ENGINE, "engine"),
        *(_name("thread_name", ENGINE + i, f"request {i}: {_label(text)}") for i, text in enumerate(prompts, 1)),
    ]
    begin_ns: int | None = None  # of the step
    for event in events:
        if event.request:
            result.append(_span(event.name, ENGINE + event.request, event, event.begin_ns, origin))
            continue
        if event.name == STEP_PARTS[0]:
            begin_ns = event.begin_ns
        result.append(_span(event.name, ENGINE, event, event.begin_ns, origin))
        if event.name == STEP_PARTS[-1] and begin_ns is not None:
            result.append(_span("step", ENGINE, event, begin_ns, origin))
    return result


def _name(kind: str, track: int, name: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": track, "args": {"name": name}}


def _span(name: str, track: int, event: TraceEvent, begin_ns: int, origin: int) -> dict[str, object]:
    return {
        "name": name,
        "ph": "X",
        "pid": PROCESS,
        "tid": track,
        "ts": (begin_ns - origin) / 1e3,
        "dur": (event.end_ns - begin_ns) / 1e3,
        "args": {"tokens": event.tokens, "sequences": event.sequences},
    }


def _label(prompt: str) -> str:
    text = printable(" ".join(prompt.split()))
    return text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"
