# SPDX-License-Identifier: Apache-2.0
"""lmnative inspect: what is in a model file, as a table or as JSON; the graph of an ONNX file."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter

from lmnative.cli import UsageError
from lmnative.cli.loading import printable
from lmnative.errors import NotFoundError
from lmnative.model import Model
from lmnative.session import Session

LONG_TEXT = 72
LONG_ARRAY = 8


def run(options: argparse.Namespace) -> int:
    """The subcommand."""
    if options.graph or options.optimised or options.svg:
        return _print_graph(options)
    model = Model(options.model, progress=sys.stderr.isatty())
    if options.json:
        import json

        json.dump(_as_json(model, options.full), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
        print()
    else:
        _print_table(model, options)
    return 0


def _print_graph(options: argparse.Namespace) -> int:
    if options.json or options.tensors or options.full or not options.graph:
        raise UsageError("--graph goes with --optimised and --svg and nothing else, and those with --graph")
    name = options.model
    if not (os.path.exists(name) or os.path.dirname(name) or name.endswith(".onnx")):
        raise NotFoundError(
            f"{name}: no such file: --graph takes the path of an ONNX file; a language model has no such graph and is "
            f"described by: lmnative inspect {name}"
        )
    session = Session(options.model, threads=1, optimize=options.optimised)
    if options.svg:
        from lmnative.drawing import draw

        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(session.graph(options.optimised)))
        return 0
    print(*map(printable, session.graph(options.optimised).splitlines()), sep="\n")
    return 0


def _as_json(model: Model, full: bool) -> dict[str, object]:
    return {
        **model.info.as_dict(),
        "metadata": {key: _json_value(value, full) for key, value in model.metadata.items()},
        "tensors": [tensor.as_dict() for tensor in model.tensors],
    }


def _json_value(value: object, full: bool) -> object:
    if isinstance(value, list):
        if full or len(value) <= LONG_ARRAY:
            return [_json_value(item, full) for item in value]
        return {"count": len(value), "first": [_json_value(item, full) for item in value[:LONG_ARRAY]]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _print_table(model: Model, options: argparse.Namespace) -> None:
    info = model.info
    parts = f" in {info.file_count} parts" if info.file_count > 1 else ""
    rows = [
        ("file", printable(info.path)),
        ("size", f"{info.file_bytes / 1e6:,.1f} MB{parts}, GGUF version {info.format_version}"),
        ("architecture", printable(info.architecture)),
        ("name", printable(info.name)),
        ("parameters", f"{info.parameter_count / 1e6:,.1f} million in {info.tensor_count} tensors"),
        ("layers", f"{info.layer_count}"),
        ("embedding", f"{info.embedding_length}"),
        ("heads", f"{info.head_count} of {info.head_dim}, {info.head_count_kv} for keys and values"),
        ("vocabulary", f"{info.vocab_size:,}"),
        ("context", f"{info.context_length:,} tokens"),
    ]
    _print_rows(rows)

    print("\ntypes")
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    supported = {}
    for tensor in model.tensors:
        count[tensor.type] += 1
        size[tensor.type] += tensor.bytes
        supported[tensor.type] = tensor.supported
    for name, number in count.most_common():
        note = "" if supported[name] else "  (this version cannot compute with it)"
        print(f"  {name:<8} {number:>6} tensors {size[name] / 1e6:>12,.2f} MB{note}")

    print("\nmetadata")
    _print_rows([("  " + printable(key), _short(value, options.full)) for key, value in model.metadata.items()])

    if options.tensors:
        print("\ntensors")
        width = max((len(printable(tensor.name)) for tensor in model.tensors), default=0)
        for tensor in model.tensors:
            shape = " × ".join(map(str, tensor.shape))
            print(f"  {printable(tensor.name):<{width}}  {tensor.type:<6} {shape:>18} {tensor.bytes:>14,} bytes")


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}".rstrip())


def _short(value: object, full: bool) -> str:
    if isinstance(value, list):
        shown = value if full or len(value) <= LONG_ARRAY else value[: LONG_ARRAY // 2]
        rest = "" if len(shown) == len(value) else f", … {len(value):,} in all"
        return "[" + ", ".join(printable(str(item)) for item in shown) + rest + "]"
    text = printable(str(value))
    if not full and len(text) > LONG_TEXT:
        return f"{text[:LONG_TEXT]}… ({len(text):,} characters)"
    return text
