#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which room includes which (the table of DESIGN section 2), as a test. Usage: check_layers.py [repository]

Only what a file writes itself counts: a header that comes in through another room's header was checked there.
"""

import re
import sys
from pathlib import Path

# Room -> rooms it may include besides itself. "include" stands for the C ABI in include/.
ROOMS = {
    "core": [],
    "memory": ["core"],
    "parallel": ["core"],
    "formats": ["core"],
    "text": ["core"],
    "ops": ["core"],
    "graph": ["core", "ops"],
    "cpu": ["core", "memory", "parallel", "ops"],
    "plan": ["core", "memory", "parallel", "graph", "ops"],
    "models": ["core", "formats", "graph"],
    "engine": ["core", "memory", "parallel", "plan", "text"],
    "capi": ["core", "memory", "parallel", "formats", "text", "ops", "graph", "cpu", "cuda", "plan", "models", "engine",
             "server", "include"],
    "server": ["include"],
}  # fmt: skip
CUDA = ["core", "memory", "ops"]
# Clients: the C ABI, their own files, and libraries.
CLIENTS = ["cpp/server", "python/src", "tests/abi", "bench/macro"]
HARNESS = "testing.h"  # of tests/unit: tests of clients may use it

# What <...> may name in the library: the C and C++ standard libraries (a name without a dot, or c-style) and these
# parts of POSIX and Linux. Anything else is a dependency, and DESIGN section 9 names those.
SYSTEM = [
    "cxxabi.h", "dirent.h", "dlfcn.h", "errno.h", "fcntl.h", "glob.h", "limits.h", "linux/futex.h",
    "linux/membarrier.h", "pthread.h", "sched.h", "signal.h", "stdint.h", "stddef.h", "stdlib.h", "string.h",
    "sys/auxv.h", "sys/eventfd.h", "sys/mman.h", "sys/prctl.h", "sys/random.h", "sys/resource.h", "sys/stat.h",
    "sys/statfs.h",
    "sys/syscall.h", "sys/sysinfo.h", "sys/types.h", "time.h", "unistd.h", "unwind.h",
]  # fmt: skip
# in cpu only
INTRINSICS = ["emmintrin.h", "immintrin.h", "x86intrin.h", "cpuid.h", "arm_neon.h", "arm_acle.h", "asm/hwcap.h"]
CUDA_HEADERS = re.compile(r"^(cuda|cublas|nvtx|nv/|hip/|cooperative_groups|mma\.h)")  # in cuda only
FORBIDDEN_STD = {"iostream": "printing is the host's business", "omp.h": "no OpenMP"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh", ".inc", ".def"}


def files_in(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES) if folder.is_dir() else []


def includes(path):
    return [(kind == '"', name) for kind, name in INCLUDE.findall(path.read_text(encoding="utf-8"))]


def check_system(name, room):
    """Problem with `#include <name>` in a room of the library, or None."""
    if name in FORBIDDEN_STD:
        return FORBIDDEN_STD[name]
    if CUDA_HEADERS.match(name):
        return None if room == "cuda" else "CUDA headers belong in cuda/ only"
    if name in INTRINSICS:
        return None if room in ("cpu", "cuda") else "intrinsics belong in cpu/ only"
    if "." not in name or name in SYSTEM:
        return None
    return "not the standard library, nor on the list of system headers in cmake/check_layers.py"


def check_room(root, room, folder, allowed, problems):
    base = root / ("cuda" if room == "cuda" else f"cpp/{room}")
    for path in files_in(folder):
        for quoted, name in includes(path):
            where = f"{path.relative_to(root)}: #include {name}"
            if not quoted:
                problem = check_system(name, room)
                if problem:
                    problems.append(f"{where}: {problem}")
                continue
            first = name.split("/")[0]
            target = "include" if first == "lmnative" else first
            if target == room or (path.parent / name).is_file() and base in (path.parent / name).resolve().parents:
                continue
            if target not in allowed:
                may = ", ".join(allowed) or "nothing but the standard library"
                problems.append(f"{where}: {room} may include {may}")


def check_client(root, folder, problems):
    for path in files_in(root / folder):
        for quoted, name in includes(path):
            inside = any((base / name).is_file() for base in (path.parent, root / folder))
            inside = inside or name.startswith("server/") and folder == "cpp/server"
            in_library = (root / "cpp" / name).is_file() and not inside
            if (
                in_library
                or "cpp/" in name
                or (quoted and not inside and not name.startswith("lmnative/") and name != HARNESS)
            ):
                problems.append(f"{path.relative_to(root)}: #include {name}: {folder} may include include/ only")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = []
    present = {p.name for p in (root / "cpp").iterdir() if p.is_dir()}
    for room in sorted(present - set(ROOMS)):
        problems.append(f"cpp/{room}: not a room of DESIGN section 2")
    for room, allowed in ROOMS.items():
        if f"cpp/{room}" not in CLIENTS:
            check_room(root, room, root / "cpp" / room, allowed, problems)
    check_room(root, "cuda", root / "cuda", CUDA, problems)
    for folder in CLIENTS:
        check_client(root, folder, problems)
    for path in files_in(root / "include"):
        for quoted, name in includes(path):
            if quoted and not name.startswith("lmnative/"):
                problems.append(f"{path.relative_to(root)}: #include {name}: public headers include lmnative/ only")
    for problem in problems:
        print(problem)
    print(f"check_layers: {len(problems)} problems" if problems else "check_layers: every include is allowed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
