# SPDX-License-Identifier: Apache-2.0
"""Which type each tensor has in a file of a type: the choices of llama.cpp's quantiser, so that all contenders read
what they would meet elsewhere. Written from its behaviour on Llama and Qwen2 models."""

from __future__ import annotations

from gguf import GGMLQuantizationType as T

# type of a file -> (general.file_type, type of most matrices)
FILES = {
    "f16": (1, T.F16),
    "q4_0": (2, T.Q4_0),
    "q4_1": (3, T.Q4_1),
    "q8_0": (7, T.Q8_0),
    "q4_k_m": (15, T.Q4_K),
    "bf16": (32, T.BF16),
}
# Blocks of K types have 256 elements; rows of another length fall back.
FALLBACK = {T.Q4_K: T.Q5_0, T.Q6_K: T.Q8_0}


def more_bits(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between, are finer in the _M mixes."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensor_type(mix: str, name: str, layers: int, columns: int, output: str = "token_embd.weight") -> T:
    """Of a matrix with rows of `columns` elements; vectors are F32 in every mix. `output` names the output layer."""
    wanted = FILES[mix][1]
    if name in (output, "output.weight"):
        wanted = wanted if mix in ("f16", "bf16", "q8_0") else T.Q6_K
    elif mix == "q4_k_m" and name.endswith(("attn_v.weight", "ffn_down.weight")):
        wanted = T.Q6_K if more_bits(int(name.split(".")[1]), layers) else wanted
    return FALLBACK.get(wanted, wanted) if columns % 256 else wanted
