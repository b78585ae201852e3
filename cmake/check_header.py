#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers, as a test: each compiles alone, and their declarations keep to the rules of DESIGN section 8.

Usage: check_header.py [CC] [CXX]. Every *.h as C11, C17, C++11, C++17 and C++20, every *.hpp as C++20, with pedantic
warnings as errors, and no padding anywhere in a struct of the ABI. Every exported function is documented.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import abi_headers

WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wshadow", "-Wundef"]
C_WARNINGS = ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wpadded", "-Wc++-compat"]
MODES = {
    ".h": [("c", "c11"), ("c", "c17"), ("c++", "c++11"), ("c++", "c++17"), ("c++", "c++20")],
    ".hpp": [("c++", "c++20")],
}
# What may stand in a struct or be passed: fixed widths (size_t is pointer-wide), handles and pointers. No struct by
# value, no bool, no enum, no int, no long.
SCALARS = {"int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "float", "double", "lmn_status", "lmn_progress_fn",
           "lmn_request_fn", "lmn_run_fn", "lmn_chat_fn", "lmn_tokenize_fn"}  # fmt: skip
BASES = {"char", "void", "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "float",
         "struct DLManagedTensorVersioned"}  # fmt: skip


def compile_alone(compiler, path, language, standard):
    source = f'#include "lmnative/{path.name}"\n' * 2 + "int main(void) { return 0; }\n"
    flags = WARNINGS + (C_WARNINGS if language == "c" else [])
    command = [compiler, "-x", language, f"-std={standard}", *flags, f"-I{abi_headers.INCLUDE}", "-fsyntax-only", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return []
    return [f"{path.name} as {standard}:\n{result.stderr.strip()}"]


def check_type(kind, known):
    if "*" not in kind:
        return kind in SCALARS
    base = re.sub(r"\bconst\b|\*", " ", kind).split()
    return " ".join(base) in BASES | known


def check_declarations():
    problems = []
    functions, structs = abi_headers.functions(), abi_headers.structs()
    known = {s.name for s in structs} | set(abi_headers.opaque_types())
    for f in functions:
        where = f"{f.where}: {f.name}"
        if not f.comment and not f.name.endswith("_destroy"):
            problems.append(f"{where}: has no comment right above it")
        for kind, name in f.parameters:
            if not check_type(kind, known):
                problems.append(f"{where}: parameter {name} is a {kind}")
        if f.returns == "lmn_status" and f.name != "lmn_error_status" and f.parameters[-1] != ("lmn_error **", "err"):
            problems.append(f"{where}: does not end in lmn_error **err")
    sized = []
    for s in structs:
        if s.fields[0][:2] == ("uint32_t", "struct_size"):
            sized.append(s.name)
        for kind, name, _ in s.fields:
            if not check_type(kind, known) or kind == "size_t":
                problems.append(f"{s.where}: {s.name}.{name} is a {kind}")
    print(f"check_header: {len(functions)} functions, {len(structs)} structs ({len(sized)} with struct_size)")
    return problems


def main():
    cc, cxx = (sys.argv[1:3] + ["cc", "c++"][len(sys.argv[1:3]) :])[:2]
    problems = check_declarations()
    jobs = []
    for path in sorted((abi_headers.INCLUDE / "lmnative").glob("*.h*")):
        jobs += [(cc if mode[0] == "c" else cxx, path, *mode) for mode in MODES[path.suffix]]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda job: compile_alone(*job), jobs):
            problems += found
    for problem in problems:
        print(problem)
    print(f"check_header: {len(jobs)} compilations, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
