# SPDX-License-Identifier: Apache-2.0
"""Random weights at the shapes of larger models: the same bytes to read and products to do, and nothing to download.

Blocks are drawn as they are stored, each tensor from a generator seeded with its name, so that a file takes seconds and
memory holds one tensor. Scales keep activations about 1 and logits about 2 throughout, so that contenders can be
compared. The tokenizer is the default model's, filled up with unused tokens to the vocabulary's size.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lmnative
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter, TokenType

from models import k_quants, mixes
from models.requantize import add_metadata, data_bytes

VERSION = 1  # part of the recipe: another one makes the files anew
SEED = 20240914
LOGITS_STD = 2.0
BIAS_STD = 0.1


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; if it is tied, the embedding table is its output layer as well."""

    name: str
    architecture: str
    layers: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rope_base: float
    norm_eps: float
    qkv_bias: bool = False
    tied: bool = True


SHAPES = {
    "qwen05b": Shape("Qwen2.5-0.5B", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, 1e-6, qkv_bias=True),
    "llama1b": Shape("Llama-3.2-1B", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, 1e-5),
    "llama3b": Shape("Llama-3.2-3B", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, 1e-5),
    "llama8b": Shape("Llama-3.1-8B", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, tied=False),
}


@dataclass(frozen=True)
class Tensor:
    """Rows of `columns` elements (a vector has none), their type, and the standard deviation of an element."""

    name: str
    rows: int
    columns: int
    kind: T
    std: float

    @property
    def bytes(self) -> int:
        return data_bytes(self.kind, self.columns * max(self.rows, 1))


def tensors(shape: Shape, mix: str) -> Iterator[Tensor]:
    output = "token_embd.weight" if shape.tied else "output.weight"

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> Tensor:
        kind = mixes.tensor_type(mix, name, shape.layers, columns, output)
        return Tensor(name, rows, columns, kind, gain / columns**0.5)

    def vector(name: str, length: int, std: float = 0.0) -> Tensor:
        return Tensor(name, 0, length, T.F32, std)

    branch = (2 * shape.layers) ** -0.5  # two branches a layer add up to about 1
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield matrix("token_embd.weight", shape.vocab, shape.embedding, LOGITS_STD)
    for i in range(shape.layers):
        block = f"blk.{i}."
        yield vector(block + "attn_norm.weight", shape.embedding)
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            yield matrix(f"{block}{name}.weight", rows, shape.embedding)
            if shape.qkv_bias:
                yield vector(f"{block}{name}.bias", rows, BIAS_STD)
        yield matrix(block + "attn_output.weight", shape.embedding, q, branch)
        yield vector(block + "ffn_norm.weight", shape.embedding)
        yield matrix(block + "ffn_gate.weight", shape.feed_forward, shape.embedding)
        yield matrix(block + "ffn_up.weight", shape.feed_forward, shape.embedding)
        yield matrix(block + "ffn_down.weight", shape.embedding, shape.feed_forward, branch)
    yield vector("output_norm.weight", shape.embedding)
    if not shape.tied:
        yield matrix("output.weight", shape.vocab, shape.embedding, LOGITS_STD)


def draw(tensor: Tensor) -> np.ndarray:
    """The bytes of a matrix, uint8 [rows, bytes], or float32 of a vector: a norm is 1, a bias random."""
    rng = np.random.Generator(np.random.PCG64([SEED, zlib.crc32(tensor.name.encode())]))
    if tensor.kind == T.F32:
        if tensor.std == 0:
            return np.ones(tensor.columns, np.float32)
        return rng.standard_normal(tensor.columns, np.float32) * np.float32(tensor.std)
    return blocks(rng, tensor.kind, tensor.bytes // data_bytes_of_block(tensor.kind), tensor.std).reshape(
        tensor.rows, -1
    )


def data_bytes_of_block(kind: T) -> int:
    return data_bytes(kind, k_quants.BLOCK if kind in (T.Q4_K, T.Q6_K) else 32)  # of floats, too: 32 at once


def blocks(rng: np.random.Generator, kind: T, count: int, std: float) -> np.ndarray:
    """`count` blocks, uint8 [count, bytes], of elements about 0 with standard deviation `std`. Integers are uniform."""
    if kind == T.BF16:  # one of 65,536 drawn before: drawing each takes minutes
        drawn = (rng.standard_normal(1 << 16, np.float32) * np.float32(std)).view(np.uint32)
        which = np.frombuffer(rng.bytes(count * 64), np.uint16)
        return (drawn >> 16).astype(np.uint16)[which].view(np.uint8).reshape(count, -1)
    out = np.frombuffer(bytearray(rng.bytes(count * data_bytes_of_block(kind))), np.uint8).reshape(count, -1)
    spread = rng.uniform(0.75, 1.25, count)  # of a block's scale
    if kind == T.Q8_0:
        quants = out[:, 2:].view(np.int8)
        np.maximum(quants, -127, out=quants)  # as quantisers round
        _set_half(out[:, 0:2], std / 73.3 * spread)
    elif kind == T.Q5_0:
        sign = rng.choice([-1.0, 1.0], count)  # -16..15 is not symmetric
        _set_half(out[:, 0:2], std / 9.25 * spread * sign)
    elif kind == T.Q6_K:
        # 16 scales of random sign, for -32..31 is not symmetric; 32 to 63 in size.
        scales = out[:, 192:208].view(np.int8)
        scales[:] = np.where(scales < 0, scales // 4 - 32, scales // 4 + 32)
        _set_half(out[:, 208:210], std / 18.5 / 48.3 * spread)
    elif kind == T.Q4_K:
        # Minimum 7.5 steps below 0, so scale and minimum of a sub-block have the same 6 bits.
        six = rng.integers(32, 64, (count, 8), np.uint8)
        unit = std / 4.61 / 48.4 * spread
        _set_half(out[:, 0:2], unit)
        _set_half(out[:, 2:4], 7.5 * unit)
        out[:, 4:16] = k_quants.pack_q4_k_scales(six, six)
    else:
        raise ValueError(f"no random blocks of {kind.name}")
    return out


def _set_half(where: np.ndarray, values: np.ndarray) -> None:
    where[:] = values.astype("<f2").view(np.uint8).reshape(-1, 2)


def expected_bytes(source: Path, label: str, mix: str) -> int:
    """Of the tensors, and twice as much metadata as the source has."""
    metadata = 2 * min(t.offset for t in lmnative.Model(source).tensors)
    return metadata + sum(t.bytes for t in tensors(SHAPES[label], mix))


def write(source: Path, label: str, mix: str, path: Path) -> None:
    """A file of SHAPES[label] with the tokenizer of `source`."""
    shape = SHAPES[label]
    writer = GGUFWriter(path, shape.architecture)
    writer.add_name(f"{shape.name} (random weights)")
    writer.add_file_type(mixes.FILES[mix][0])
    writer.add_quantization_version(2)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(shape.vocab)
    tokenizer = {k: v for k, v in lmnative.Model(source).metadata.items() if k.startswith("tokenizer.")}
    known = len(tokenizer["tokenizer.ggml.tokens"])
    tokenizer["tokenizer.ggml.tokens"] += [f"<|unused_{i}|>" for i in range(known, shape.vocab)]
    tokenizer["tokenizer.ggml.token_type"] += [int(TokenType.UNUSED)] * (shape.vocab - known)
    add_metadata(writer, tokenizer)
    for t in tensors(shape, mix):
        size = (t.rows, t.columns) if t.rows else (t.columns,)
        writer.add_tensor_info(t.name, size, np.dtype(np.float32), t.bytes, t.kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for t in tensors(shape, mix):
            writer.write_tensor_data(draw(t))
    finally:
        writer.close()
