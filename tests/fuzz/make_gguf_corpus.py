# SPDX-License-Identifier: Apache-2.0
"""Writes seed files for the GGUF fuzz target into a folder. Usage: make_gguf_corpus.py FOLDER

Small files that each use another part of the format, so that mutations start from inside it: every value type, every
tensor type, nested arrays, another alignment, a part of a split model, version 2, and a few broken ones.
"""

import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
# ggml type number -> elements and bytes of a block
TENSOR_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 30: (1, 2), 34: (256, 54), 39: (32, 17),
}  # fmt: skip


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + SCALARS[kind], value)


def array(kind, elements):
    return struct.pack("<IQ", kind, len(elements)) + b"".join(elements)


def key(name, kind, payload):
    return string(name) + struct.pack("<I", kind) + payload


def gguf(keys=(), tensors=(), version=3, alignment=32):
    """tensors: (name, dimensions with the fastest first, type)."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, kind in tensors:
        elements, size = TENSOR_TYPES[kind]
        for dim in dims:
            size *= dim
        head += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += bytes(size // elements)
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data


def seeds():
    values = dict.fromkeys(SCALARS, 1) | {STRING: "text"}
    keys = [key(f"k{kind}", kind, scalar(kind, value)) for kind, value in values.items()]
    arrays = [key(f"a{kind}", ARRAY, array(kind, [scalar(kind, value)] * 3)) for kind, value in values.items()]
    nested = array(ARRAY, [array(STRING, [string("a")]), array(U8, [b"\1", b"\2"])])
    tensors = [(f"t{kind}", (block, 2), kind) for kind, (block, _) in TENSOR_TYPES.items()]
    yield "empty", gguf()
    yield "scalars", gguf(keys)
    yield "arrays", gguf(arrays)
    yield "nested", gguf([key("n", ARRAY, nested), key("m", ARRAY, array(ARRAY, [nested]))])
    yield "tensors", gguf([], tensors)
    yield "ranks", gguf([], [("r" * n, (2,) * n, 0) for n in range(1, 5)])
    yield "aligned", gguf([key("general.alignment", U32, scalar(U32, 64))], tensors[:3], alignment=64)
    split = [("split.no", U16, 0), ("split.count", U16, 2), ("split.tensors.count", I32, 3)]
    yield "split", gguf([key(name, kind, scalar(kind, value)) for name, kind, value in split], tensors[:2])
    yield "version2", gguf(keys[:4], tensors[:2], version=2)
    yield "model", gguf(keys + arrays, tensors)
    yield "cut", gguf(keys, tensors)[:-1]
    yield "count", struct.pack("<4sIQQ", b"GGUF", 3, 2**63, 2**32)
    yield "swapped", struct.pack(">4sIQQ", b"GGUF", 3, 0, 0)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)
