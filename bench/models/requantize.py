# SPDX-License-Identifier: Apache-2.0
"""A model file in another type: every matrix dequantised and quantised again, all metadata kept."""

from __future__ import annotations

from pathlib import Path

import lmnative
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

from models import k_quants, mixes

VERSION = 1  # part of the recipe: another one makes the files anew
KINDS = {bool: V.BOOL, int: V.UINT32, float: V.FLOAT32, str: V.STRING}


def add_metadata(writer: GGUFWriter, values: dict[str, object]) -> None:
    """Numbers are UINT32 and FLOAT32, in arrays INT32 and FLOAT32: the types of the keys that models of text have."""
    for key, value in values.items():
        if key == "general.architecture":  # the writer adds it itself
            continue
        if isinstance(value, list):
            if value:  # an empty one has no type
                kind = type(value[0])
                writer.add_key_value(key, value, V.ARRAY, sub_type=V.INT32 if kind is int else KINDS[kind])
        else:
            writer.add_key_value(key, value, KINDS[type(value)])


def quantized(rows: np.ndarray, kind: T) -> np.ndarray:
    """float32 [rows, columns] as bytes of `kind`, float16 for F16."""
    if kind == T.Q4_K:
        return k_quants.quantize_q4_k(rows)
    if kind == T.Q6_K:
        return k_quants.quantize_q6_k(rows)
    return quantize(rows, kind)


def data_bytes(kind: T, elements: int) -> int:
    block, size = GGML_QUANT_SIZES[kind]
    return elements // block * size


def plan(model: lmnative.Model, mix: str) -> list[tuple[lmnative.TensorInfo, T, T]]:
    """Every tensor with the type it has and the one it gets; vectors keep theirs."""
    found = []
    for t in model.tensors:
        old = T[t.type.upper()]
        new = old if len(t.shape) < 2 else mixes.tensor_type(mix, t.name, model.info.layer_count, t.shape[-1])
        found.append((t, old, new))
    return found


def expected_bytes(source: Path, mix: str) -> int:
    """Of the tensors, and as much metadata as the source has."""
    model = lmnative.Model(source)
    return min(t.offset for t in model.tensors) + sum(
        data_bytes(new, int(np.prod(t.shape))) for t, _, new in plan(model, mix)
    )


def write(source: Path, mix: str, path: Path) -> None:
    """One tensor after the other: memory holds the largest one as float32."""
    model = lmnative.Model(source)
    writer = GGUFWriter(path, model.info.architecture)
    add_metadata(writer, {**model.metadata, "general.file_type": mixes.FILES[mix][0]})
    tensors = plan(model, mix)
    for t, _, new in tensors:
        writer.add_tensor_info(t.name, t.shape, np.dtype(np.float32), data_bytes(new, int(np.prod(t.shape))), new)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for t, old, new in tensors:
            stored = np.from_dlpack(model.tensor(t.name))
            writer.write_tensor_data(stored if old == new else quantized(dequantize(stored, old), new))
    finally:
        writer.close()
