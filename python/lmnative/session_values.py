# SPDX-License-Identifier: Apache-2.0
"""From Python objects to values of sessions and back. Nothing here is public; imported by the first session.

The extension module takes and gives numpy arrays of common types by itself. Here is the rest: tensors of other
libraries (DLPack), strings, bf16 and narrower types (ml_dtypes), sequences, optionals, maps, and what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmnative import _lmnative
from lmnative._lmnative import SessionValue
from lmnative.errors import InvalidArgumentError

# Element types: the library's name, ONNX's, and numpy's (of ml_dtypes where numpy has none).
TYPES = (
    ("f32", "float", "float32"),
    ("f64", "double", "float64"),
    ("f16", "float16", "float16"),
    ("bf16", "bfloat16", "bfloat16"),
    ("i8", "int8", "int8"),
    ("i16", "int16", "int16"),
    ("i32", "int32", "int32"),
    ("i64", "int64", "int64"),
    ("u8", "uint8", "uint8"),
    ("u16", "uint16", "uint16"),
    ("u32", "uint32", "uint32"),
    ("u64", "uint64", "uint64"),
    ("bool", "bool", "bool"),
    ("string", "string", "object"),
    ("f8e4m3fn", "float8e4m3fn", "float8_e4m3fn"),
    ("f8e4m3fnuz", "float8e4m3fnuz", "float8_e4m3fnuz"),
    ("f8e5m2", "float8e5m2", "float8_e5m2"),
    ("f8e5m2fnuz", "float8e5m2fnuz", "float8_e5m2fnuz"),
    ("f8e8m0", "float8e8m0", "float8_e8m0fnu"),
    ("f4e2m1", "float4e2m1", "float4_e2m1fn"),
    ("i4", "int4", "int4"),
    ("u4", "uint4", "uint4"),
    ("i2", "int2", "int2"),
    ("u2", "uint2", "uint2"),
)
ONNX_NAME = {ours: onnx for ours, onnx, _ in TYPES}
NUMPY_NAME = {ours: numpy for ours, _, numpy in TYPES}
FROM_NUMPY = {numpy: ours for ours, _, numpy in TYPES}
MAX_RANK = 8  # of include/lmnative/session_value.h
# How numpy without ml_dtypes holds an element of the other types.
STORAGE = {"bf16": "uint16", "i4": "int8", "i2": "int8"}
NARROW = frozenset(ours for ours, _, numpy in TYPES if numpy != "object" and not hasattr(np, numpy))

UNPACKED = frozenset(("i4", "u4", "i2", "u2"))


def type_text(kind: int, dtype: str) -> str:
    """What ONNX Runtime calls a type, such as "tensor(float)"."""
    tensor = f"tensor({ONNX_NAME.get(dtype, dtype)})"
    form = {
        _lmnative.VALUE_SEQUENCE: "seq({})",
        _lmnative.VALUE_OPTIONAL: "optional({})",
        _lmnative.VALUE_MAP: "map({})",
    }
    return form.get(kind, "{}").format(tensor)


def to_value(source: object, kind: int, dtype: str, what: str) -> SessionValue:
    """The value of a Python object for a place of this kind and element type; `what` names it in errors."""
    if isinstance(source, SessionValue):
        return source
    if kind == _lmnative.VALUE_OPTIONAL:
        if source is None:
            return SessionValue.items(kind, dtype, [])
        inner = _lmnative.VALUE_SEQUENCE if isinstance(source, (list, tuple)) else _lmnative.VALUE_TENSOR
        return SessionValue.items(kind, dtype, [to_value(source, inner, dtype, what)])
    if source is None:
        raise InvalidArgumentError(f"{what} is None; it must be a {type_text(kind, dtype)}")
    if kind == _lmnative.VALUE_SEQUENCE:
        if not isinstance(source, (list, tuple)):
            raise TypeError(f"{what} must be a list of arrays, not {type(source).__name__}")
        # The library may hand out elements again: what comes out must not be what the caller changes later.
        items = [
            to_value(np.array(item) if isinstance(item, np.ndarray) else item, 0, dtype, f"{what}[{i}]")
            for i, item in enumerate(source)
        ]
        return SessionValue.items(kind, dtype, items)
    if kind == _lmnative.VALUE_MAP:
        if not isinstance(source, Mapping):
            raise TypeError(f"{what} must be a dict, not {type(source).__name__}")
        keys = np.asarray(list(source), object if any(isinstance(key, str) for key in source) else np.int64)
        values = np.asarray(list(source.values()), NUMPY_NAME[dtype])
        return SessionValue.items(kind, dtype, [tensor_value(keys, "", what), tensor_value(values, dtype, what)])
    return tensor_value(source, dtype, what)


def tensor_value(source: Any, dtype: str, what: str) -> SessionValue:
    """A tensor from an array, a tensor of another library, a number, or nested lists of numbers or strings."""
    if not isinstance(source, np.ndarray):
        if hasattr(source, "__dlpack__") and not isinstance(source, np.generic):
            # Of x.conj().imag torch lends the memory, whose signs are still to be changed.
            return _foreign(source.resolve_neg() if _is_negated(source) else source, dtype, what)
        try:
            source = (
                np.asarray(source, _numpy_type(dtype)) if not isinstance(source, np.generic) else np.asarray(source)
            )
        except (TypeError, ValueError) as error:
            raise TypeError(f"{what} must be an array of {NUMPY_NAME[dtype]}: {error}") from None
        if source.dtype.kind == "V" and source.dtype.name not in FROM_NUMPY:
            raise TypeError(f"{what} must be an array of {NUMPY_NAME[dtype]}")
    if source.dtype.kind in "OSUT":
        return SessionValue.strings(list(source.shape), [_text(item, what) for item in source.reshape(-1).tolist()])
    if source.ndim > MAX_RANK:
        raise InvalidArgumentError(f"{what} has {source.ndim} dimensions; {MAX_RANK} at most")
    name = source.dtype.name
    ours = FROM_NUMPY.get(name)
    if ours is None:
        raise TypeError(f"{what} is an array of {name}; the library has no such type, convert it with astype()")
    if dtype in NARROW and name == _storage(dtype):  # the bits of the type, for those without ml_dtypes
        ours, source = dtype, source.view(_storage(dtype))
    elif ours in UNPACKED:  # whose elements may have anything in the bits that ml_dtypes does not look at
        source = source.astype(_storage(ours))
    elif ours in NARROW:
        source = source.view(_storage(ours))
    elif not source.dtype.isnative:
        source = source.astype(source.dtype.newbyteorder("="))
    value = SessionValue.array(source, FROM_NUMPY[source.dtype.name], False)
    if value is None:  # strides that are no multiple of the elements
        value = SessionValue.array(np.ascontiguousarray(source), FROM_NUMPY[source.dtype.name], False)
    assert value is not None
    return value.retyped(ours) if ours in NARROW else value


def buffer_value(source: Any, dtype: str, what: str, writable: bool) -> SessionValue:
    """A tensor over memory that a binding reads or writes at every run: never a copy."""
    if isinstance(source, np.ndarray):
        if not source.flags.c_contiguous or not source.flags.aligned or not source.dtype.isnative:
            raise InvalidArgumentError(f"{what} must be a compact array (numpy.ascontiguousarray) in native byte order")
        if writable and not source.flags.writeable:
            raise InvalidArgumentError(f"{what} is read-only; the results are written into it")
        ours = FROM_NUMPY.get(source.dtype.name, "")
        if ours in NARROW or dtype in NARROW:
            source = source.view(_storage(ours if ours in NARROW else dtype))
        value = SessionValue.array(source, FROM_NUMPY.get(source.dtype.name, ""), writable)
        if value is None:
            raise TypeError(f"{what} is an array of {source.dtype}, which cannot be bound")
        return value.retyped(ours if ours in NARROW else dtype) if ours in NARROW or dtype in NARROW else value
    if not hasattr(source, "__dlpack__"):
        raise TypeError(f"{what} must be an array (numpy, or another library that speaks DLPack)")
    contiguous = getattr(source, "is_contiguous", None)
    if callable(contiguous) and not contiguous():
        raise InvalidArgumentError(f"{what} must be a compact tensor (contiguous())")
    if _is_negated(source):
        raise InvalidArgumentError(f"{what} has its signs to be changed yet (resolve_neg())")
    return _foreign(source, dtype, what)


def from_value(value: SessionValue) -> Any:
    """What run() returns for a value."""
    kind, dtype = value.kind, value.dtype
    if kind == _lmnative.VALUE_OPTIONAL:
        return from_value(value.item(0)) if len(value) else None
    if kind == _lmnative.VALUE_SEQUENCE:
        return [from_value(value.item(i)) for i in range(len(value))]
    if kind == _lmnative.VALUE_MAP:
        keys, values = (from_value(value.item(i)) for i in range(2))
        return dict(zip(keys.tolist(), values.tolist(), strict=True))
    if dtype == "string":
        array = np.empty(value.shape, object)
        array.reshape(-1)[:] = value.text()
        return array
    array = value.storage()
    return array.view(_numpy_type(dtype)) if dtype in NARROW else array


def _storage(dtype: str) -> str:
    return STORAGE.get(dtype, "uint8")


def _numpy_type(dtype: str) -> np.dtype:
    """numpy's type; for those that only ml_dtypes has, and without it, the one of the bits."""
    name = NUMPY_NAME[dtype]
    if dtype in NARROW:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(_storage(dtype))
        return np.dtype(getattr(ml_dtypes, name, _storage(dtype)))
    return np.dtype(name)


def _is_negated(source: Any) -> bool:
    is_neg = getattr(source, "is_neg", None)
    return callable(is_neg) and bool(is_neg())


def _foreign(source: Any, dtype: str, what: str) -> SessionValue:
    name = str(getattr(source, "dtype", "")).removeprefix("torch.")
    if FROM_NUMPY.get(name) in NARROW and name.startswith("float8") and hasattr(source, "view"):
        import torch  # whose tensors these are

        return SessionValue.tensor(source.view(torch.uint8), FROM_NUMPY[name], what)
    bits = dtype in NARROW and name == _storage(dtype)
    try:
        return SessionValue.tensor(source, dtype if bits else None, what)
    except (BufferError, RuntimeError) as error:
        raise InvalidArgumentError(f"{what} cannot be lent: {error}") from error


def _text(item: object, what: str) -> str | bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogateescape")
    if isinstance(item, bytes):
        return item
    raise TypeError(f"{what} must be an array of strings; an element is a {type(item).__name__}")
