#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated ONNX models, each opened and run in a child process of its own, with limits.

    python tests/stress/mutate_onnx.py [-n 2000] [--seed 1] [--only NAME] [FILE.onnx ...]

Every mutation must end in an error of lmnative or in results of the declared types: no crash, no more than 5 seconds,
no memory beyond the limit that the session was given. Prints a summary as JSON and exits with 1 if one did not; a
finding is repeated by its number (--only NAME --first NUMBER -n 1) and written to --keep FOLDER.

Without FILE: the small model of the tests, an LSTM (where the package onnx is there to write it), and the models that
the packages silero-vad and magika ship, where they are installed.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import lmnative
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 5
MAX_ARENA_BYTES = 64 << 20
# The limit of a run, as much again for what stays between runs, the copy of the model, and what Python needs.
MAX_GROWTH_BYTES = 2 * MAX_ARENA_BYTES + (96 << 20)
SIZES = {"input": (1, 576), "state": (2, 1, 128), "bytes": (1, 2048)}  # where a model leaves them open
# (message, field) -> message: where ONNX nests.
NESTED = {
    ("model", 7): "graph", ("model", 8): "opset", ("graph", 1): "node", ("graph", 5): "tensor", ("graph", 11): "value",
    ("graph", 12): "value", ("graph", 13): "value", ("node", 5): "attribute", ("attribute", 5): "tensor",
    ("attribute", 6): "graph", ("value", 2): "type", ("type", 1): "tensor type", ("tensor type", 2): "shape",
    ("shape", 1): "dimension",
}  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 7, 16, 64, 255, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 2)


@dataclasses.dataclass
class Field:
    """One field of a message: a number, bytes (of 4 or 8 for fixed widths), or a message."""

    message: str
    number: int
    wire: int
    value: int | bytes | list[Field]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return value, at


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data: bytes, message: str) -> list[Field]:
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: int | bytes | list[Field]
        if wire == 0:
            value, at = read_varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(wire)
            if length is None:
                length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
            inner = NESTED.get((message, number))
            if inner is not None:
                value = parse(value, inner)
        fields.append(Field(message, number, wire, value))
    return fields


def write(fields: list[Field]) -> bytes:
    out = bytearray()
    for field in fields:
        out += write_varint(field.number << 3 | field.wire)
        if isinstance(field.value, int):
            out += write_varint(field.value)
            continue
        value = field.value if isinstance(field.value, bytes) else write(field.value)
        out += (write_varint(len(value)) if field.wire == 2 else b"") + value
    return bytes(out)


def walk(fields: list[Field]) -> Iterator[tuple[list[Field], int]]:
    for i, field in enumerate(fields):
        yield fields, i
        if isinstance(field.value, list):
            yield from walk(field.value)


def mutate(data: bytes, dice: random.Random) -> bytes:
    """Mostly changes of what fields hold; some of the bytes themselves."""
    model = parse(data, "model")
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        places = list(walk(model))
        if not places:
            break
        siblings, i = dice.choice(places)
        field = siblings[i]
        what = dice.randrange(12)
        if what == 0:
            del siblings[i]
        elif what == 1:
            siblings.insert(dice.randrange(len(siblings) + 1), copy.deepcopy(field))
        elif what == 2:
            j = dice.randrange(len(siblings))
            siblings[i], siblings[j] = siblings[j], siblings[i]
        elif what < 6:  # what another field of the same kind holds
            same = [s[j] for s, j in places if (s[j].message, s[j].number) == (field.message, field.number)]
            field.value = copy.deepcopy(dice.choice(same).value)
        elif isinstance(field.value, int):
            field.value = dice.choice((*NUMBERS, field.value + 1, max(field.value - 1, 0), field.value ^ 1 << 3))
            field.value &= (1 << 64) - 1
        elif isinstance(field.value, bytes) and field.value:
            changed = bytearray(field.value)
            at = dice.randrange(len(changed))
            if field.wire == 2 and what == 6:
                del changed[at : at + dice.choice((1, 4, 8))]
            elif field.wire == 2 and what == 7:
                changed[at:at] = dice.randbytes(dice.choice((1, 4, 8)))
            else:
                changed[at] = dice.choice((dice.randrange(256), changed[at] ^ 1, 0, 255))
            field.value = bytes(changed)
    changed = bytearray(write(model))
    if changed and dice.randrange(20) == 0:
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def feeds_of(session: lmnative.Session) -> dict[str, object]:
    dice = np.random.default_rng(0)
    types = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32}
    feeds: dict[str, object] = {}
    for port in session.get_inputs():
        dtype = types.get(port.type.removeprefix("tensor(").removesuffix(")"))
        if dtype is None or port.shape is None:
            raise lmnative.UnsupportedError(f"no input for {port}")
        open_sizes = SIZES.get(port.name, ())
        shape = [
            size if isinstance(size, int) else open_sizes[i] if i < len(open_sizes) else 1
            for i, size in enumerate(port.shape)
        ]
        if np.prod(shape, dtype=np.float64) > 1 << 20:
            raise lmnative.UnsupportedError(f"{port} is too large for this test")
        if port.name == "sr":
            feeds[port.name] = np.array(16000, dtype)
        elif np.issubdtype(dtype, np.integer):
            feeds[port.name] = dice.integers(0, 200, shape).astype(dtype)
        else:
            feeds[port.name] = (dice.standard_normal(shape) * 0.1).astype(dtype)
    return feeds


def run(model: bytes) -> str:
    """ "ran" or the name of the error; anything else leaves as an exception."""
    try:
        session = lmnative.Session(model, threads=1, max_arena_bytes=MAX_ARENA_BYTES, max_run_ms=1000)
        results = session.run(None, feeds_of(session))
    except lmnative.Error as error:
        assert str(error), "an error without a message"
        assert not isinstance(error, lmnative.InternalError), error
        return type(error).__name__
    for port, result in zip(session.get_outputs(), results, strict=True):
        if isinstance(result, np.ndarray) and port.type.startswith("tensor("):
            name = {"float": "float32", "double": "float64", "string": "object"}.get(port.type[7:-1], port.type[7:-1])
            assert result.dtype.name == name or not hasattr(np, name), f"{port} is {result.dtype}"
    return "ran"


OUTCOMES = ["ran", *sorted(name for name in vars(lmnative) if name.endswith("Error"))]


def child(model: bytes) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30), now + (4 << 30)))
    code = 100
    try:
        code = OUTCOMES.index(run(model))
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(code)


def verdict(status: int, usage: resource.struct_rusage, before_kb: int) -> tuple[str, bool]:
    """What happened, and whether that is right."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("more than 5 s" if number in (signal.SIGXCPU, signal.SIGKILL) else signal.Signals(number).name), False
    code = os.WEXITSTATUS(status)
    if code >= len(OUTCOMES):
        return "a wrong exception or type, see above", False
    grown = (usage.ru_maxrss - before_kb) << 10
    return (OUTCOMES[code], True) if grown <= MAX_GROWTH_BYTES else (f"{grown >> 20} MiB", False)


def check(name: str, data: bytes, first: int, count: int, seed: int, keep: Path | None) -> dict[str, object]:
    assert write(parse(data, "model")) == data, f"{name} is not read back"
    assert run(data) == "ran", f"{name} does not run as it is"
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = []
    running: dict[int, int] = {}
    began = time.monotonic()

    def reap() -> None:
        pid, status, usage = os.wait4(-1, 0)
        number = running.pop(pid)
        what, right = verdict(status, usage, before_kb)
        outcomes[what] += 1
        if not right:
            wrong.append({"number": number, "what": what})
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}.{number}.onnx").write_bytes(mutate(data, random.Random(f"{seed}/{number}")))

    for number in range(first, first + count):
        while len(running) >= (os.cpu_count() or 1):
            reap()
        model = mutate(data, random.Random(f"{seed}/{number}"))
        pid = os.fork()
        if pid == 0:
            child(model)
        running[pid] = number
    while running:
        reap()
    return {
        "model": name, "mutations": count, "outcomes": dict(outcomes.most_common()), "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def lstm() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    dice = np.random.default_rng(1)
    weights = {"W": (1, 32, 6), "R": (1, 32, 8), "B": (1, 64), "P": (8, 3)}
    graph = helper.make_graph(
        [
            helper.make_node("LSTM", ["x", "W", "R", "B"], ["", "h", ""], hidden_size=8),
            helper.make_node("Squeeze", ["h", "axes"], ["flat"]),
            helper.make_node("MatMul", ["flat", "P"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["y"], axis=-1),
        ],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(dice.standard_normal(s).astype(np.float32), n) for n, s in weights.items()]
        + [numpy_helper.from_array(np.array([0]), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def default_models() -> dict[str, bytes]:
    models = {"relu_linear": (ROOT / "tests/onnx/relu_linear.onnx").read_bytes()}
    if importlib.util.find_spec("onnx") is not None:
        models["lstm"] = lstm()
    for package, file in (("silero_vad", "data/silero_vad.onnx"), ("magika", "models/standard_v3_3/model.onnx")):
        spec = importlib.util.find_spec(package)
        path = Path(spec.origin).parent / file if spec is not None and spec.origin else None
        if path is not None and path.exists():
            models[package] = path.read_bytes()
    return models


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-n", type=int, default=2000, help="mutations of each model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--only", help="the model of this name alone")
    parser.add_argument("--keep", type=Path, help="folder for the files that went wrong")
    given = parser.parse_args()
    models = {path.stem: path.read_bytes() for path in given.files} or default_models()
    failed = False
    for name, data in models.items():
        if given.only in (None, name):
            summary = check(name, data, given.first, given.n, given.seed, given.keep)
            failed |= bool(summary["wrong"])
            print(json.dumps(summary), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
