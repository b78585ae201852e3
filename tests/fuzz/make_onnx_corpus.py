# SPDX-License-Identifier: Apache-2.0
"""Writes seed files for the ONNX fuzz target into a folder. Usage: make_onnx_corpus.py FOLDER

Small files that each use another part of the format, so that mutations start from inside it: every message of
onnx.proto the reader knows, typed data of every kind, packed and not, raw and external data, nesting, and a few
broken ones.
"""

import pathlib
import struct
import sys

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3 | VARINT) + varint(value)


def data(field, payload=b""):
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(field << 3 | BYTES) + varint(len(payload)) + payload


def float32(field, value):
    return varint(field << 3 | FIXED32) + struct.pack("<f", value)


def float64(field, value):
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def tensor(kind, dims, payload, name="t"):
    return b"".join(number(1, dim) for dim in dims) + number(2, kind) + data(8, name) + payload


def value(name, kind):
    return data(1, name) + data(2, kind)


def node(attributes=(), operator="Op"):
    head = data(1, "x") + data(1) + data(2, "y") + data(3, "n") + data(4, operator) + data(7, "d") + data(8, "o")
    return head + b"".join(data(5, attribute) for attribute in attributes)


def model(graph=b"", more=b""):
    return number(1, 10) + data(2, "p") + data(8, data(1, "d") + number(2, 22)) + more + data(7, graph)


def seeds():
    dims = data(1, number(1, 2)) + data(1, data(2, "N")) + data(1)
    tensor_type = data(1, number(1, 1) + data(2, dims))
    types = {
        "tensor": tensor_type,
        "sequence": data(4, data(1, tensor_type)),
        "map": data(5, number(1, 7) + data(2, tensor_type)),
        "opaque": data(7, data(1, "d") + data(2, "n")),
        "sparse": data(8, number(1, 1) + data(2, dims)),
        "optional": data(9, data(1, data(4, data(1, tensor_type)))),
    }
    for name, kind in types.items():
        yield (
            f"type_{name}",
            model(data(11, value("x", kind)) + data(12, value("y", kind)) + data(13, value("z", kind))),
        )
    plain = tensor(1, [2], data(9, bytes(8)))
    sparse = data(1, plain) + data(2, tensor(7, [2], data(9, bytes(16)))) + number(3, 4)
    inner = data(1, node()) + data(2, "g") + data(5, plain)
    values = {
        1: float32(2, 1), 2: number(3, -1), 3: data(4, "s"), 4: data(5, plain), 5: data(6, inner),
        6: float32(7, 1) + data(7, struct.pack("<2f", 2, 3)), 7: number(8, 1) + data(8, varint(300) + varint(-2)),
        8: data(9, "a") + data(9), 9: data(10, plain) * 2, 10: data(11, inner) * 2, 11: data(22, sparse),
        12: data(23, sparse) * 2, 13: data(14, tensor_type), 14: data(15, tensor_type) * 2,
    }  # fmt: skip
    attributes = [data(1, f"a{kind}") + number(20, kind) + payload for kind, payload in values.items()]
    for kind, attribute in zip(values, attributes, strict=True):
        yield f"attribute_{kind}", model(data(1, node([attribute])))
    yield "attribute_reference", model(data(1, node([data(1, "a") + number(20, 1) + data(21, "r")])))
    yield "attributes", model(data(1, node(attributes)))
    entries = {  # of typed data: two, by field
        "float": (4, [1, 14], data(4, struct.pack("<f", 1)) + float32(4, 2)),
        "int32": (5, [2, 3, 4, 5, 6, 9, 10, 16, 17, 21, 22, 25, 27], data(5, varint(1)) + number(5, 2)),
        "string": (6, [8], data(6, "a") + data(6)),
        "int64": (7, [7], data(7, varint(-1)) + number(7, 2)),
        "double": (10, [11, 15], data(10, struct.pack("<d", 1)) + float64(10, 2)),
        "uint64": (11, [12, 13], data(11, varint(300)) + number(11, 2)),
    }
    elements = {14: 1, 15: 1, 21: 4, 22: 4, 25: 8}  # of those with another count than 2
    for name, (_, kinds, payload) in entries.items():
        tensors = [tensor(kind, [elements.get(kind, 2)], payload, f"t{kind}") for kind in kinds]
        yield f"typed_{name}", model(b"".join(data(5, each) for each in tensors))
    bits = [32, 8, 8, 16, 16, 32, 64, 0, 8, 16, 64, 32, 64, 64, 128, 16, 8, 8, 8, 8, 4, 4, 4, 8, 2, 2, 6, 6]
    raw = [tensor(kind, [5], data(9, bytes((5 * n + 7) // 8))) for kind, n in enumerate(bits, 1)]
    yield "raw", model(b"".join(data(5, each) for each in raw))
    pairs = {"location": "w", "offset": "4", "length": "8", "checksum": "0"}.items()
    external = b"".join(data(13, data(1, key) + data(2, text)) for key, text in pairs) + number(14, 1)
    yield "external", model(data(5, tensor(1, [2], external)))
    yield "sparse", model(data(15, sparse))
    yield (
        "metadata",
        model(data(16, data(1, "k") + data(2, "v")), data(14, data(1, "k") + data(2, "v")) + data(6, "doc")),
    )
    function = data(1, "F") + data(4, "a") + data(5, "b") + data(6, "c") + data(7, node()) + data(9, number(2, 22))
    function += data(10, "d") + data(11, attributes[0]) + data(12, value("b", tensor_type)) + data(13, "o")
    yield "function", model(more=data(25, function))
    yield "unknown", model(number(99, 1) + float32(98, 1) + float64(97, 1) + data(96, "x"))
    nested = data(1, node())
    for _ in range(12):
        nested = data(1, node([data(1, "g") + number(20, 5) + data(6, nested)]))
    yield "nested", model(nested)
    yield "cut", model(data(1, node(attributes)))[:-1]
    yield "group", model() + varint(50 << 3 | 3)
    yield "zip", b"PK\3\4" + bytes(8)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / name).write_bytes(content)
