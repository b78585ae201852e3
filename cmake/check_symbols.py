#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Symbols of liblmnative.so == functions of the headers == cmake/abi_symbols.txt == cmake/lmnative.map, as a test.

Usage: check_symbols.py LIBRARY [--sanitized]. Also checked: names (lmn_<noun>_<verb> with a verb of the closed list),
no weak or unique symbol, the soname, and that nothing but the C library is needed (not with --sanitized).
"""

import re
import subprocess
import sys

import abi_headers

VERBS = ["add", "alloc", "cancel", "check", "create", "decode", "destroy", "drain", "encode", "export", "find",
         "flush", "free", "get", "next", "open", "remove", "render", "run", "score", "set", "stop", "submit", "trim",
         "wait"]  # fmt: skip
# Infallible accessors, named after what they return.
ACCESSORS = ["lmn_abi_version", "lmn_error_message", "lmn_error_status", "lmn_status_name", "lmn_version"]
# Parts of the C library, some of which older ones have in files of their own.
NEEDED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
          "ld-linux-aarch64.so.1"}  # fmt: skip


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def difference(left, left_name, right, right_name):
    return [f"{name}: in {left_name}, not in {right_name}" for name in sorted(left - right)] + [
        f"{name}: in {right_name}, not in {left_name}" for name in sorted(right - left)
    ]


def main():
    library, sanitized = sys.argv[1], "--sanitized" in sys.argv
    cmake = abi_headers.ROOT / "cmake"
    declared = {f.name for f in abi_headers.functions()}
    listed = (cmake / "abi_symbols.txt").read_text().split()
    mapped = set(re.findall(r"\b(lmn_\w+);", (cmake / "lmnative.map").read_text()))
    problems = difference(declared, "the headers", set(listed), "abi_symbols.txt")
    problems += difference(mapped, "lmnative.map", set(listed), "abi_symbols.txt")
    if listed != sorted(set(listed)):
        problems.append("abi_symbols.txt: not sorted, or a name twice")

    exported = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        name = name.split("@")[0]
        if kind == "A":
            continue  # the version node of lmnative.map
        exported.add(name)
        if kind != "T":
            problems.append(f"{name}: exported as '{kind}'; only functions (T) may be")
    problems += difference(exported, "the library", set(listed), "abi_symbols.txt")

    for name in sorted(declared | exported):
        if not name.startswith("lmn_"):
            problems.append(f"{name}: not prefixed lmn_")
        elif name not in ACCESSORS and name.split("_")[-1] not in VERBS:
            problems.append(f"{name}: does not end in a verb of the list in cmake/check_symbols.py")

    dynamic = run("readelf", "-dW", library)
    abi = re.search(r"#define LMN_ABI_VERSION (\d+)", (abi_headers.INCLUDE / "lmnative/version.h").read_text()).group(1)
    soname = re.search(r"Library soname: \[(.*?)\]", dynamic).group(1)
    if soname != f"liblmnative.so.{abi}":
        problems.append(f"soname is {soname}, want liblmnative.so.{abi}")
    needed = set(re.findall(r"Shared library: \[(.*?)\]", dynamic))
    if not sanitized and not needed <= NEEDED:
        problems.append(f"needs {', '.join(sorted(needed - NEEDED))}")

    for problem in problems:
        print(problem)
    print(f"check_symbols: {len(exported)} symbols, {len(problems)} problems; needs {' '.join(sorted(needed))}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
