# SPDX-License-Identifier: Apache-2.0
"""Rows of floats to Q4_K and Q6_K blocks, by the block layouts of the GGUF specification.

Scales are the plain ones (the range of a sub-block over the range of its integers): files to measure speed with, and
good enough to answer sensibly. Deterministic: no search, no threads.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256
Q4_K_BYTES = 144
Q6_K_BYTES = 210
_ROWS = 1024  # blocks at once, so that the temporaries stay in the cache


def quantize_q4_k(rows: np.ndarray) -> np.ndarray:
    """float32 [rows, columns], columns a multiple of 256, to uint8 [rows, columns / 256 * 144]."""
    return _by_blocks(rows, Q4_K_BYTES, _q4_k_blocks)


def quantize_q6_k(rows: np.ndarray) -> np.ndarray:
    """float32 [rows, columns], columns a multiple of 256, to uint8 [rows, columns / 256 * 210]."""
    return _by_blocks(rows, Q6_K_BYTES, _q6_k_blocks)


def pack_q4_k(d: np.ndarray, d_min: np.ndarray, scales: np.ndarray, mins: np.ndarray, quants: np.ndarray) -> np.ndarray:
    """Blocks uint8 [n, 144] of y = d scale q - d_min min: d, d_min f16 [n], scales and mins (6 bits) uint8 [n, 8],
    quants (4 bits) uint8 [n, 8, 32]."""
    n = len(d)
    nibbles = quants.reshape(n, 4, 2, 32)
    nibbles = nibbles[:, :, 0] | nibbles[:, :, 1] << 4
    return np.concatenate([_bytes(d), _bytes(d_min), pack_q4_k_scales(scales, mins), nibbles.reshape(n, 128)], axis=1)


def pack_q4_k_scales(scales: np.ndarray, mins: np.ndarray) -> np.ndarray:
    """6-bit scales and mins, uint8 [n, 8], as the 12 bytes of a Q4_K block, uint8 [n, 12]."""
    packed = np.empty((len(scales), 12), np.uint8)
    packed[:, 0:4] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    packed[:, 4:8] = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    packed[:, 8:12] = (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4
    return packed


def pack_q6_k(d: np.ndarray, scales: np.ndarray, quants: np.ndarray) -> np.ndarray:
    """Blocks uint8 [n, 210] of y = d scale (q - 32): d f16 [n], scales int8 [n, 16], quants (6 bits) uint8 [n, 256]."""
    n = len(d)
    q = quants.reshape(n, 2, 4, 32)  # halves of 128, each four times 32
    low = np.concatenate([q[:, :, 0] & 15 | q[:, :, 2] << 4, q[:, :, 1] & 15 | q[:, :, 3] << 4], axis=2)
    high = q[:, :, 0] >> 4 | (q[:, :, 1] >> 4) << 2 | (q[:, :, 2] >> 4) << 4 | (q[:, :, 3] >> 4) << 6
    return np.concatenate([low.reshape(n, 128), high.reshape(n, 64), scales.view(np.uint8), _bytes(d)], axis=1)


def _q4_k_blocks(x: np.ndarray) -> np.ndarray:
    x = x.reshape(-1, 8, 32)
    lowest = np.minimum(x.min(axis=2), 0)
    step = (x.max(axis=2) - lowest) / np.float32(15)
    d, scales = _six_bits(step)
    d_min, mins = _six_bits(-lowest)
    unit = d.astype(np.float32)[:, None] * scales
    offset = d_min.astype(np.float32)[:, None] * mins
    quants = np.rint((x + offset[:, :, None]) * _inverse(unit)[:, :, None]).clip(0, 15).astype(np.uint8)
    return pack_q4_k(d, d_min, scales, mins, quants)


def _q6_k_blocks(x: np.ndarray) -> np.ndarray:
    x = x.reshape(-1, 16, 16)
    step = _furthest(x) / np.float32(-32)  # negative where the furthest value is positive
    d = (_furthest(step) / np.float32(-128)).astype(np.float16)
    scales = np.rint(step * _inverse(d.astype(np.float32))[:, None]).clip(-128, 127).astype(np.int8)
    unit = d.astype(np.float32)[:, None] * scales
    quants = np.rint(x * _inverse(unit)[:, :, None]).clip(-32, 31) + 32
    return pack_q6_k(d, scales, quants.astype(np.uint8).reshape(-1, BLOCK))


def _six_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative [n, 8] as f16 [n] times 0..63."""
    unit = (values.max(axis=1) / np.float32(63)).astype(np.float16)
    return unit, np.rint(values * _inverse(unit.astype(np.float32))[:, None]).clip(0, 63).astype(np.uint8)


def _furthest(x: np.ndarray) -> np.ndarray:
    """Along the last axis, the value furthest from 0, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)[..., 0]


def _inverse(x: np.ndarray) -> np.ndarray:
    """1 / x, and 0 for 0."""
    return np.divide(1, x, out=np.zeros_like(x), where=x != 0)


def _bytes(halves: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(halves, "<f2").view(np.uint8).reshape(-1, 2)


def _by_blocks(rows: np.ndarray, size: int, quantize) -> np.ndarray:
    blocks = np.ascontiguousarray(rows, np.float32).reshape(-1, BLOCK)
    out = np.empty((len(blocks), size), np.uint8)
    for i in range(0, len(blocks), _ROWS):
        out[i : i + _ROWS] = quantize(blocks[i : i + _ROWS])
    return out.reshape(len(rows), -1)
