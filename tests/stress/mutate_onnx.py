#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated ONNX models, each opened and run in a child process of its own, with limits.

    python tests/stress/mutate_onnx.py [-n 2000] [--seed 1] [--only NAME]... [FILE.onnx ...]

Every mutation must end in an error of lmnative or in results of the declared types, which are the same without the
optimiser: no crash, no more than 5 seconds of processor time, no memory beyond what the model as it is takes and the
limit that the session was given. Prints a summary as JSON and exits with 1 if one did not; a finding is repeated by its
number (--only NAME --first NUMBER -n 1) and written to --keep FOLDER.

Without FILE: the small model of the tests, those of the benchmarks named in BENCH_MODELS (made in --models-dir, where
the packages that make them are installed), and the models that the packages silero-vad and magika ship. Weights of
large models lie in a file of their own, so that a mutation is a small file; now and then it changes some of them too.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import faulthandler
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import lmnative
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from models import files, onnx_files  # noqa: E402

BENCH_MODELS = ("lstm", "resnet18", "minilm_int8", "minilm")
SECONDS = 5
MAX_WAIT_SECONDS = 180  # without running; a busy machine is no finding
MAX_ARENA_BYTES = 64 << 20
# Beside what the model takes as it is: the limit of a run, as much for what stays between runs, and Python's needs.
MAX_GROWTH_BYTES = 2 * MAX_ARENA_BYTES + (96 << 20)
LARGE_MODEL, LARGE_TENSOR = 4 << 20, 16 << 10  # bytes: whose weights go to a file of their own; and which of them
WEIGHTS = "weights.bin"
# Relative. The last bit of a number may decide to which of two 8-bit numbers it is rounded, several layers in a row.
TOLERANCE, ROUNDED_TOLERANCE = 2e-3, 0.1
SIZES = {  # where a model leaves them open
    "input": (1, 576), "state": (2, 1, 128), "bytes": (1, 2048), "x": (1, 32, 40), "image": (1, 3, 224, 224),
    "input_ids": (1, 8), "attention_mask": (1, 8), "token_type_ids": (1, 8),
}  # fmt: skip
MASKS = {"attention_mask": 1, "token_type_ids": 0}  # what fills them
# (message, field) -> message: where ONNX nests.
NESTED = {
    ("model", 7): "graph", ("model", 8): "opset", ("graph", 1): "node", ("graph", 5): "tensor", ("graph", 11): "value",
    ("graph", 12): "value", ("graph", 13): "value", ("node", 5): "attribute", ("attribute", 5): "tensor",
    ("attribute", 6): "graph", ("value", 2): "type", ("type", 1): "tensor type", ("tensor type", 2): "shape",
    ("shape", 1): "dimension", ("tensor", 13): "entry",
}  # fmt: skip
# Texts about a model that nothing reads.
REMARKS = {("model", 14), ("graph", 16), ("node", 6), ("node", 9), ("tensor", 12), ("tensor", 16), ("value", 4)}
RAW_DATA, EXTERNAL, DATA_LOCATION = 9, 13, 14  # fields of a tensor
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


def is_external(field: Field) -> bool:
    return isinstance(field.value, list) and any((f.message, f.number) == ("tensor", EXTERNAL) for f in field.value)


def without_large_weights(fields: list[Field], out: BinaryIO) -> list[Field]:
    """The model without remarks, and with its large tensors in `out`."""
    kept = []
    for field in fields:
        value = field.value
        if (field.message, field.number) in REMARKS:
            continue
        if isinstance(value, list):
            kept.append(dataclasses.replace(field, value=without_large_weights(value, out)))
        elif (field.message, field.number) == ("tensor", RAW_DATA) and len(value) >= LARGE_TENSOR:
            out.seek(-out.tell() % 64, os.SEEK_CUR)
            place = {"location": WEIGHTS, "offset": str(out.tell()), "length": str(len(value))}
            for pair in place.items():
                entry = [Field("entry", number, 2, text.encode()) for number, text in enumerate(pair, 1)]
                kept.append(Field("tensor", EXTERNAL, 2, entry))
            kept.append(Field("tensor", DATA_LOCATION, 0, 1))
            out.write(value)
        else:
            kept.append(field)
    return kept


def change_weights(tensor: list[Field], folder: Path, dice: random.Random) -> None:
    """Moves a tensor's data back from the file of weights, with some bytes changed."""
    place = {entry.value[0].value: entry.value[1].value for entry in tensor if entry.number == EXTERNAL}
    with (folder / WEIGHTS).open("rb") as file:
        file.seek(int(place[b"offset"]))
        data = bytearray(file.read(int(place[b"length"])))
    for _ in range(dice.choice((1, 4, 64))):
        data[dice.randrange(len(data))] = dice.choice((dice.randrange(256), 127, 128, 255))
    tensor[:] = [field for field in tensor if field.number not in (EXTERNAL, DATA_LOCATION)]
    tensor.append(Field("tensor", RAW_DATA, 2, bytes(data)))


def mutate(data: bytes, dice: random.Random, folder: Path) -> bytes:
    """Mostly changes of what fields hold; some of the bytes themselves, and of the weights in `folder`."""
    model = parse(data, "model")
    large = [s[j].value for s, j in walk(model) if is_external(s[j])]
    if large and dice.randrange(8) == 0:
        change_weights(dice.choice(large), folder, dice)
        if dice.randrange(2) == 0:
            return write(model)
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
        elif port.name in MASKS:
            feeds[port.name] = np.full(shape, MASKS[port.name], dtype)
        elif np.issubdtype(dtype, np.integer):
            feeds[port.name] = dice.integers(0, 200, shape).astype(dtype)
        else:
            feeds[port.name] = (dice.standard_normal(shape) * 0.1).astype(dtype)
    return feeds


def run(model: bytes, folder: Path, optimize: bool = True) -> str | list:
    """The results, or the name of the error; anything else leaves as an exception."""
    try:
        session = lmnative.Session(
            model, threads=1, optimize=optimize, max_arena_bytes=MAX_ARENA_BYTES, max_run_ms=1000, base_folder=folder
        )
        results = session.run(None, feeds_of(session))
    except lmnative.Error as error:
        assert str(error), "an error without a message"
        assert not isinstance(error, lmnative.InternalError), error
        return type(error).__name__
    for port, result in zip(session.get_outputs(), results, strict=True):
        if isinstance(result, np.ndarray) and port.type.startswith("tensor("):
            name = {"float": "float32", "double": "float64", "string": "object"}.get(port.type[7:-1], port.type[7:-1])
            assert result.dtype.name == name or not hasattr(np, name), f"{port} is {result.dtype}"
    return results


def assert_same(results: list, plain: list, tolerance: float) -> None:
    """Of the graph as it is optimised and as the file has it. Numbers that are beyond all reason prove nothing."""
    for i, (a, b) in enumerate(zip(results, plain, strict=True)):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            continue
        assert a.shape == b.shape and a.dtype == b.dtype, f"output {i}: {a.dtype} {a.shape}, plain {b.dtype} {b.shape}"
        if a.dtype.kind == "f" and a.size:
            with np.errstate(all="ignore"):
                most, difference = np.abs(b).max(), np.abs(a - b).max()
            assert not most < 1e6 or difference <= tolerance * max(most, 1), f"output {i}: {difference} of {most}"


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def allow_seconds(seconds: int) -> None:
    """Of processor time from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


OUTCOMES = ["ran", *sorted(name for name in vars(lmnative) if name.endswith("Error"))]
WRONG, NO_MEMORY = 100, 101


def child(model: bytes, folder: Path, most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allow_seconds(SECONDS)
    faulthandler.register(signal.SIGALRM, chain=True)  # says where it waits
    signal.alarm(MAX_WAIT_SECONDS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30), now + (4 << 30)))
    code = WRONG
    try:
        results = run(model, folder)
        if peak_bytes() > most_bytes:
            code = NO_MEMORY
            raise AssertionError(f"{peak_bytes() >> 20} MiB of {most_bytes >> 20}")
        code = OUTCOMES.index(results if isinstance(results, str) else "ran")
        if not isinstance(results, str):
            allow_seconds(2 * SECONDS)  # for a comparison, without a promise
            plain = run(model, folder, optimize=False)
            if not isinstance(plain, str):
                code = WRONG
                assert_same(results, plain, ROUNDED_TOLERANCE if b"QuantizeLinear" in model else TOLERANCE)
                code = OUTCOMES.index("ran")
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(code)


def start_child(model: bytes, folder: Path, most_bytes: int) -> int:
    pid = os.fork()
    if pid == 0:
        child(model, folder, most_bytes)
    return pid


def verdict(status: int) -> tuple[str, bool]:
    """What happened, and whether that is right."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {signal.SIGXCPU: "more than 5 s", signal.SIGALRM: "hangs"}.get(
            number, signal.Signals(number).name
        ), False
    code = os.WEXITSTATUS(status)
    wrong = {WRONG: "a wrong exception, type or result, see above", NO_MEMORY: "memory, see above"}
    return wrong.get(code) or OUTCOMES[code], code not in wrong


def check(name: str, data: bytes, given: argparse.Namespace, folder: Path) -> dict[str, object]:
    model = parse(data, "model")
    assert write(model) == data, f"{name} is not read back"
    if len(data) >= LARGE_MODEL:
        with (folder / WEIGHTS).open("wb") as file:
            data = write(without_large_weights(model, file))
    del model
    _, status, usage = os.wait4(start_child(data, folder, 1 << 40), 0)
    assert verdict(status) == ("ran", True), f"{name} does not run as it is"
    most_bytes = (usage.ru_maxrss << 10) + MAX_GROWTH_BYTES
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = []
    running: dict[int, int] = {}
    began = time.monotonic()

    def mutation(number: int) -> bytes:
        return mutate(data, random.Random(f"{given.seed}/{number}"), folder)

    def reap() -> None:
        pid, status = os.wait()
        number = running.pop(pid)
        what, right = verdict(status)
        outcomes[what] += 1
        if not right:
            wrong.append({"number": number, "what": what})
            if given.keep is not None:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{name}.{number}.onnx").write_bytes(mutation(number))

    for number in range(given.first, given.first + given.n):
        while len(running) >= (os.cpu_count() or 1):
            reap()
        running[start_child(mutation(number), folder, most_bytes)] = number
    while running:
        reap()
    return {
        "model": name, "mutations": given.n, "outcomes": dict(outcomes.most_common()), "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def default_models(folder: Path, only: list[str] | None) -> Iterator[tuple[str, Path]]:
    def wanted(name: str) -> bool:
        return only is None or name in only

    if wanted("relu_linear"):
        yield "relu_linear", ROOT / "tests/onnx/relu_linear.onnx"
    for package, file in (("silero_vad", "data/silero_vad.onnx"), ("magika", "models/standard_v3_3/model.onnx")):
        spec = importlib.util.find_spec(package)
        path = Path(spec.origin).parent / file if spec is not None and spec.origin else None
        if wanted(package) and path is not None and path.exists():
            yield package, path
    for name in filter(wanted, BENCH_MODELS):
        try:
            yield name, onnx_files.ensure(name, folder)
        except files.CannotMake as reason:
            print(f"{name}: {reason}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-n", type=int, default=2000, help="mutations of each model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--only", action="append", help="the model of this name; may be given again")
    parser.add_argument("--keep", type=Path, help="folder for the files that went wrong")
    parser.add_argument("--models-dir", type=Path, default=files.default_folder(), help="default: the benchmarks'")
    given = parser.parse_args()
    named = [(path.stem, path) for path in given.files]
    failed = False
    for name, path in named or default_models(given.models_dir, given.only):
        with tempfile.TemporaryDirectory() as folder:
            summary = check(name, path.read_bytes(), given, Path(folder))
        failed |= bool(summary["wrong"])
        print(json.dumps(summary), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
