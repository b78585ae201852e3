# SPDX-License-Identifier: Apache-2.0
"""Every file that the suites know, by its label: "q8_0" is the default model in that type, "llama1b.q8_0" a synthetic
one. Made when it is asked for."""

from __future__ import annotations

from pathlib import Path

from models import files

DEFAULT_TYPE = "q4_1"  # of the default model's own file
SMALL = (DEFAULT_TYPE, "q4_0", "q8_0", "q4_k_m", "f16")
LARGE = ("qwen05b.q4_k_m", "qwen05b.q8_0", "llama1b.q4_k_m", "llama1b.q8_0", "llama3b.q4_k_m", "llama3b.q8_0")
NOT_QUICK = tuple(label for label in LARGE if label.startswith("llama3b."))  # gigabytes

# general.file_type -> label, of files that are not made here
FILE_TYPES = {
    0: "f32",
    1: "f16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    32: "bf16",
}


class Catalogue:
    """`default` is the default model's file; made files lie in `folder`."""

    def __init__(self, default: str, folder: str | None):
        self.default = Path(default)
        self.folder = Path(folder) if folder else files.default_folder()
        self._default_crc: int | None = None
        self._checked: set[Path] = set()

    def path(self, label: str) -> str:
        """The file of `label`. CannotMake says why there is none."""
        if label == DEFAULT_TYPE:
            return str(self.default)
        try:
            from models import requantize, synthetic
        except ImportError as missing:
            raise files.CannotMake(f"making it needs a package: pip install {missing.name}") from None
        shape, _, mix = label.rpartition(".")
        maker = synthetic if shape else requantize
        made_of = (shape, mix) if shape else (mix,)
        path = self.folder / (f"{label}.gguf" if shape else f"{self.default.stem}.{mix}.gguf")
        if path not in self._checked:
            if self._default_crc is None:
                self._default_crc = files.crc32(self.default)
            files.ensure(
                path,
                f"{label}, version {maker.VERSION}, from {self.default.name} with CRC-32 {self._default_crc:08x}",
                lambda: maker.expected_bytes(self.default, *made_of),
                lambda temporary: maker.write(self.default, *made_of, temporary),
            )
            self._checked.add(path)
        return str(path)
