# SPDX-License-Identifier: Apache-2.0
"""lmnative trace: the file follows the Trace Event Format, and says what the engine did."""

from __future__ import annotations

import collections
import json
import subprocess
import sys

PARTS = ["schedule", "prepare", "run", "sample", "deliver"]
PROMPTS = ["a", "bc " * 40, "d\n\x1b[2J", "ü"]


def trace(*arguments: str) -> tuple[dict, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lmnative", "trace", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def nanoseconds(event: dict) -> tuple[int, int]:
    """Begin and end: the file has µs, exact to three digits."""
    for value in (event["ts"], event["dur"]):
        assert abs(value * 1e3 - round(value * 1e3)) < 1e-3 and value >= 0
    return round(event["ts"] * 1e3), round(event["ts"] * 1e3) + round(event["dur"] * 1e3)


def test_the_file():
    tokens = 30
    data, errors = trace("--chrome", "-", "null:vocab=256", *PROMPTS, "-n", str(tokens), "--ignore-eos", "-t", "1")
    assert errors == ""
    events = data["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    assert all(isinstance(event["tid"], int) and event["pid"] == 1 for event in events)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(names.values())[:2] == ["engine", "request 1: a"]
    assert len(names) == 1 + len(PROMPTS)
    assert all(name.isprintable() and len(name) < 60 for name in names.values())

    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[names[event["tid"]]].append((*nanoseconds(event), event))
    assert min(begin for track in tracks.values() for begin, _, _ in track) == 0

    # The engine's thread: steps that do not overlap, each of five parts that fill it.
    engine = tracks.pop("engine")
    steps = sorted(span for span in engine if span[2]["name"] == "step")
    parts = sorted((span for span in engine if span[2]["name"] != "step"), key=lambda span: span[:2])
    assert [event["name"] for _, _, event in parts] == PARTS * len(steps)
    for (_, end, _), (begin, _, _) in zip(steps, steps[1:], strict=False):
        assert end <= begin
    for i, (begin, end, step) in enumerate(steps):
        inside = parts[5 * i : 5 * i + 5]
        assert inside[0][0] == begin and inside[-1][1] == end
        assert all(one[1] == other[0] for one, other in zip(inside, inside[1:], strict=False))
        assert all(event["args"] == step["args"] for _, _, event in inside)

    # A track for each request: its three spans, one after the other.
    prompt_tokens = 0
    for text, track in zip(PROMPTS, tracks.values(), strict=True):
        track.sort(key=lambda span: span[:2])
        assert [event["name"] for _, _, event in track] == ["queue", "prefill", "decode"]
        assert all(one[1] == other[0] for one, other in zip(track, track[1:], strict=False))
        assert track[0][2]["args"]["tokens"] == len(text.encode())
        assert track[2][2]["args"]["tokens"] == tokens
        assert steps[0][0] <= track[1][0] and track[2][1] <= steps[-1][1]
        prompt_tokens += track[1][2]["args"]["tokens"]
    # Every step computes tokens: those of the prompts, and all answers but for their last ones.
    assert sum(step["args"]["tokens"] for _, _, step in steps) == prompt_tokens + len(PROMPTS) * (tokens - 1)


def test_into_a_file(tmp_path, model_path):
    path = tmp_path / "trace.json"
    command = ["trace", "--chrome", str(path), model_path, "Once", "Twice", "-n", "4", "-c", "64"]
    done = subprocess.run([sys.executable, "-m", "lmnative", *command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    spans = [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert spans.count("decode") == 2 and spans.count("run") == spans.count("step") >= 4
