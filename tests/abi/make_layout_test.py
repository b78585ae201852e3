#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints layout_test.c from the headers: run it when fields were appended, and read the difference before committing.

A line of layout_test.c that changes instead of appearing breaks every client that was compiled before. Usage:
tests/abi/make_layout_test.py > tests/abi/layout_test.c; with --check [CC] it says whether the file is up to date.
"""

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "cmake"))
import abi_headers

HEAD = r"""/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of every struct and the value of every constant of the C ABI, frozen: it compiles, or
 * a client that was compiled earlier breaks. Written by make_layout_test.py; lines may be added,
 * never changed. 64-bit systems.
 */
#include <stddef.h>

#include "lmnative/lmnative.h"

#if UINTPTR_MAX == UINT64_MAX
#define SIZE(type, bytes)                                          \
  _Static_assert(sizeof(type) >= (bytes) && sizeof(type) % 8 == 0, \
                 #type " became smaller or is not a multiple of 8")
#define ELEMENT(type, bytes) \
  _Static_assert(sizeof(type) == (bytes), #type ", an element of arrays, changed its size")
#define FIELD(type, field, offset, bytes)                                                    \
  _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes), \
                 #type "." #field " moved")
#define VALUE(name, value) _Static_assert((name) == (value), #name " changed its value")
"""


def constants():
    for header in abi_headers.headers():
        if header.name == "dlpack.h":
            continue
        for name, value in re.findall(r"^#define (LMN_[A-Z0-9_]+) (\d+)u?\b", header.read_text(), re.MULTILINE):
            yield name, int(value)


def measure(structs, cc):
    """{(struct, None): size, (struct, field): (offset, size)}, as the C compiler has it."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "lmnative/lmnative.h"', "int main(void) {"]
    for s in structs:
        lines.append(f'printf("{s.name} - %zu 0\\n", sizeof({s.name}));')
        for _, field, _ in s.fields:
            place = f"offsetof({s.name}, {field}), sizeof((({s.name} *)0)->{field})"
            lines.append(f'printf("{s.name} {field} %zu %zu\\n", {place});')
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "m.c"), Path(folder, "m")
        source.write_text("\n".join(lines))
        subprocess.run([cc, f"-I{abi_headers.INCLUDE}", source, "-o", program], check=True)
        output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in output.splitlines()]


def layout_test(cc):
    structs = abi_headers.structs()
    sized = {s.name for s in structs if s.fields[0][1] == "struct_size"}
    lines = [HEAD.rstrip("\n")]
    for name, field, first, second in measure(structs, cc):
        if field == "-":
            lines.append(f"\n{'SIZE' if name in sized else 'ELEMENT'}({name}, {first});")
        else:
            lines.append(f"FIELD({name}, {field}, {first}, {second});")
    lines.append("")
    lines += [f"VALUE({name}, {value});" for name, value in constants()]
    lines.append("#endif\n\nint main(void) { return 0; }")
    return "\n".join(lines) + "\n"


def main():
    if "--check" not in sys.argv:
        sys.stdout.write(layout_test("cc"))
        return 0
    text = layout_test(sys.argv[2] if len(sys.argv) > 2 else "cc")
    frozen = Path(__file__).with_name("layout_test.c").read_text()
    if text == frozen:
        print(f"{text.count('FIELD(') - 1} fields lie where layout_test.c says")
        return 0
    sys.stdout.writelines(
        difflib.unified_diff(frozen.splitlines(True), text.splitlines(True), "layout_test.c", "headers")
    )
    print("layout_test.c is not that of the headers: see the top of tests/abi/make_layout_test.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
