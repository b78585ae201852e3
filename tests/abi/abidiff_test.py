#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ABI that the headers declare with the one of the last release, with libabigail's abidiff.

Usage: abidiff_test.py [CC] [--update]. --update writes the baseline anew: at a release, or when a change was looked at
and only appends. Compared is a library of empty functions made from the headers, with debug information; that the real
library defines the same functions with the same types is what the compiler (each export includes its declaration) and
check_symbols.py see to. So this needs no debug build, and the baseline holds no internals.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "cmake"))
import abi_headers  # noqa: E402

BASELINE = HERE / "baseline" / "lmnative.abi"


def empty_library(cc, folder):
    source, library = Path(folder, "empty.c"), Path(folder, "liblmnative.so")
    lines = ['#include "lmnative/lmnative.h"']
    for f in abi_headers.functions():
        parameters = ", ".join(f"{kind} {name}" for kind, name in f.parameters) or "void"
        body = "" if f.returns == "void" else f"return ({f.returns})0;"
        lines.append(f"{f.returns} {f.name}({parameters}) {{ {body} }}")
    source.write_text("\n".join(lines) + "\n")
    flags = ["-std=c11", "-g", "-gdwarf-4", "-shared", "-fPIC", "-Wl,-soname,liblmnative.so", "-w"]
    subprocess.run([cc, *flags, f"-I{abi_headers.INCLUDE}", source, "-o", library], check=True)
    return library


def describe(library, out):
    """The ABI as XML, without paths and places, so that it changes only with the ABI."""
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--short-locs",
                    "--drop-undefined-syms", "--type-id-style", "hash", "--out-file", out, library],
                   check=True)  # fmt: skip


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    cc = arguments[0] if arguments else "cc"
    if shutil.which("abidiff") is None or shutil.which("abidw") is None:
        print(
            "SKIP abidiff: no abidiff and abidw on this machine (Debian: abigail-tools)\n0 passed, 0 failed, 1 skipped"
        )
        return 0
    if platform.machine() != "x86_64":
        print(f"SKIP abidiff: the baseline is of x86_64, not {platform.machine()}\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder, "now.abi")
        describe(empty_library(cc, folder), now)
        if "--update" in sys.argv:
            shutil.copyfile(now, BASELINE)
            print(f"wrote {BASELINE}")
            return 0
        result = subprocess.run(["abidiff", BASELINE, now], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(result.stdout + result.stderr)
        print("The ABI differs from tests/abi/baseline. When the change only appends (functions, fields at the end): "
              "tests/abi/abidiff_test.py --update; otherwise LMN_ABI_VERSION has to grow.")  # fmt: skip
    failed = int(result.returncode != 0)
    print(f"{1 - failed} passed, {failed} failed, 0 skipped")
    return failed


if __name__ == "__main__":
    sys.exit(main())
