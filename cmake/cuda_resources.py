#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc's assembler says of each CUDA kernel: registers, spills, shared memory; and its budget.

    cuda_resources.py FOLDER                  a table of the kernels whose objects are below FOLDER
    cuda_resources.py FOLDER --check BUDGET   as a test: no kernel spills, uses more registers than BUDGET says, or is
                                              not in it, and BUDGET names no kernel that is gone
    cuda_resources.py FOLDER --update BUDGET  writes BUDGET; figures of architectures that were not compiled stay

A budget is in steps of 8 registers a thread, in which the hardware gives them out: another nvcc may differ by less.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

STEP = 8
HEAD = """\
# Registers a thread that each CUDA kernel may use, by architecture; none may spill. A test checks it (cuda_budget).
# Written by `cmake --build build/cuda --target cuda_budget_update`, which keeps what is not compiled there.
"""


@dataclass(frozen=True)
class Kernel:
    name: str
    architecture: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int  # static; dynamic shared memory is a launch's


def demangle(names: list[str]) -> dict[str, str]:
    """Names in the source: without namespaces, results and parameters."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, map(short, done.stdout.splitlines()), strict=True))


def short(name: str) -> str:
    """void lmn::cuda::norm<true, (lmn::DType)3>(lmn::Args) -> norm<true, (DType)3>"""
    depth = 0
    for end, letter in enumerate(name):  # the parameters begin at the first ( outside <>, but for (anonymous namespace)
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if depth == 0 and letter == "(" and not name.startswith("(anonymous namespace)", end):
            name = name[:end]
            break
    name = re.sub(r"\(anonymous namespace\)::|\b\w+::", "", name)
    return re.sub(r"^[\w ]+ (?=\w+(<|$))", "", name)


def read(folder: Path) -> list[Kernel]:
    """Of the reports that are of the objects that are there."""
    reports = [path for path in sorted(folder.rglob("*.cu.o.resources")) if path.with_suffix("").exists()]
    if not reports:
        sys.exit(f"no reports of CUDA kernels below {folder}: build the target lmn_cuda_kernels")
    found = []
    for report in reports:
        text = report.read_text(encoding="utf-8")
        for entry in re.split(r"(?=Compiling entry function)", text)[1:]:
            name, architecture = re.match(r"Compiling entry function '(\S+)' for '(\w+)'", entry).groups()
            # Of the kernel itself, not of functions that it calls.
            own = entry.split(f"Function properties for {name}\n", 1)[-1]
            stack, stores, loads = map(
                int,
                re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", own).groups(),
            )
            registers = int(re.search(r"Used (\d+) registers", own).group(1))
            shared = re.search(r"(\d+) bytes smem", own)
            shared_bytes = int(shared.group(1)) if shared else 0
            found.append(Kernel(name, architecture, registers, stores + loads, stack, shared_bytes))
    names = demangle([kernel.name for kernel in found])
    return [
        Kernel(names[k.name], k.architecture, k.registers, k.spill_bytes, k.stack_bytes, k.shared_bytes) for k in found
    ]


def number(architecture: str) -> int:
    return int(re.search(r"\d+", architecture).group())


def table(kernels: list[Kernel]) -> str:
    rows = [("kernel", "", "registers", "spilled", "stack", "shared")]
    for k in sorted(kernels, key=lambda k: (k.name, number(k.architecture))):
        rows.append((k.name, k.architecture, k.registers, k.spill_bytes, k.stack_bytes, k.shared_bytes))
    return "\n".join("{:<70} {:<8} {:>9} {:>8} {:>6} {:>7}".format(*row) for row in rows)


def read_budget(path: Path) -> dict[str, dict[str, int]]:
    budget: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            name, figures = line.rsplit("  ", 1)
            budget[name.strip()] = {a: int(n) for a, n in (pair.split("=") for pair in figures.split())}
    return budget


def most(kernels: list[Kernel]) -> dict[str, dict[str, int]]:
    """Registers by name and architecture, rounded up; of several of the same name the most."""
    out: dict[str, dict[str, int]] = {}
    for k in kernels:
        of = out.setdefault(k.name, {})
        of[k.architecture] = max(of.get(k.architecture, 0), -(-k.registers // STEP) * STEP)
    return out


def check(kernels: list[Kernel], budget: dict[str, dict[str, int]]) -> list[str]:
    problems = [f"{k.name} spills {k.spill_bytes} bytes on {k.architecture}" for k in kernels if k.spill_bytes]
    used = most(kernels)
    for name, registers in used.items():
        for architecture, count in registers.items():
            allowed = budget.get(name, {}).get(architecture)
            if allowed is None:
                problems.append(f"{name} has no budget on {architecture}; it uses {count} registers")
            elif count > allowed:
                problems.append(f"{name} uses {count} registers on {architecture}, its budget is {allowed}")
    problems += [f"{name} has a budget and is not there" for name in budget if name not in used]
    return problems


def update(kernels: list[Kernel], path: Path) -> None:
    old = read_budget(path)
    lines = []
    for name, registers in sorted(most(kernels).items()):
        figures = {**old.get(name, {}), **registers}
        text = " ".join(f"{a}={figures[a]}" for a in sorted(figures, key=number))
        lines.append(f"{name:<60}  {text}")
    path.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    folder, *rest = sys.argv[1:]
    kernels = read(Path(folder))
    if not rest:
        print(table(kernels))
        return 0
    action, path = rest[0], Path(rest[1])
    if action == "--update":
        update(kernels, path)
        return 0
    if not kernels:
        print("SKIP cuda_budget: kernels are compiled to PTX alone, which has no registers of a device")
        return 77
    problems = check(kernels, read_budget(path))
    for problem in problems:
        print(problem)
    if problems:
        print(f"cuda_budget: {len(problems)} problems; where they are meant: --target cuda_budget_update")
    else:
        print(
            f"cuda_budget: {len(kernels)} kernels of {', '.join(sorted({k.architecture for k in kernels}, key=number))}"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
