# SPDX-License-Identifier: Apache-2.0
"""Writes dequantize_vectors.h: random blocks of every GGUF weight type, and what the `gguf` package makes of them.

Usage: python make_dequantize_vectors.py > dequantize_vectors.h   (needs numpy and gguf)
"""

import gguf
import numpy as np

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
SCALES = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def hex_lines(data: bytes) -> str:
    text = data.hex()
    return "\n".join(f'     "{text[i : i + 96]}"' for i in range(0, len(text), 96))


def main() -> None:
    rng = np.random.default_rng(20240229)
    print("// SPDX-License-Identifier: Apache-2.0")
    print(
        "//\n// Made by make_dequantize_vectors.py with the `gguf` package's own dequantisation; little endian, in hex."
    )
    print("#pragma once\n")
    print("struct DequantizeVector {\n  lmn::DType type;\n  const char* blocks;\n  const char* floats;\n};\n")
    print("inline constexpr DequantizeVector kDequantizeVectors[] = {")
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = 16 if elements == 1 else 2 if elements == 32 else 1
        raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for block in raw:
            if elements == 1:
                value = np.float32(rng.normal())
                half = (
                    np.float16(value).tobytes()
                    if name == "F16"
                    else (value.view(np.uint32) >> 16).astype("<u2").tobytes()
                )
                block[:] = np.frombuffer(half, np.uint8)
            else:
                for at in SCALES.get(name, [0]):
                    block[at : at + 2] = np.frombuffer(np.float16(rng.normal() / 50).tobytes(), np.uint8)
        values = gguf.quants.dequantize(raw.reshape(-1), kind).astype("<f4").reshape(-1)
        print(f"    {{lmn::DType::k{name},\n{hex_lines(raw.tobytes())},\n{hex_lines(values.tobytes())}}},")
    print("};")


main()
