#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes char_class_table.inc: the character classes that the pre-tokenisers distinguish.

Every code point is a letter (\\p{L}), a number (\\p{N}), whitespace (the White_Space property, which is what \\s means
in the regex engines the original tokenizers use: Oniguruma, Rust, Python's regex), or other. The table lists the
points where the class changes, each as code_point << 2 | class, ascending; a binary search finds the class.
White_Space is not in unicodedata; its 25 characters have been fixed since Unicode 6.3 and are listed here.

Usage: char_class_table.py > char_class_table.inc, with unicodedata2==16.0.0 from PyPI. Unicode 16.0 is what Oniguruma
6.9.10 inside Hugging Face tokenizers 0.23 has: \\p{L} and \\p{N} are equal there for every code point.
"""

import sys

import unicodedata2

UNICODE_VERSION = "16.0.0"
OTHER, LETTER, NUMBER, SPACE = range(4)
WHITE_SPACE = frozenset(
    [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
)


def char_class(code_point: int) -> int:
    if code_point in WHITE_SPACE:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata2.category(chr(code_point))[0], OTHER)


def main() -> None:
    if unicodedata2.unidata_version != UNICODE_VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, need {UNICODE_VERSION}")
    changes = []
    previous = None
    for code_point in range(0x110000):
        current = char_class(code_point)
        if current != previous:
            changes.append(code_point << 2 | current)
            previous = current
    print("// SPDX-License-Identifier: Apache-2.0")
    print("//")
    print(
        f"// Written by char_class_table.py from Unicode {UNICODE_VERSION}: do not edit. code_point << 2 | CharClass,"
    )
    print("// where the class changes.")
    print(f"inline constexpr uint32_t kClassChanges[{len(changes)}] = {{")
    line = "   "
    for change in changes:
        item = f" {change:#x},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


if __name__ == "__main__":
    main()
