#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the node tests of the package onnx (onnx.backend.test) and compares with known_failures.txt.

Usage: conformance.py [--update] [NAME …]. Every test that fails must be in the list, and every test in the list must
fail, but for those that pass by chance: --update writes the list anew, keeping the reasons that are there. Tests run in
children, so that one that crashes or hangs fails alone. Needs the packages lmnative and onnx.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from pathlib import Path

LIST = Path(__file__).with_name("known_failures.txt")
LIMIT_S = 60.0  # of one test
BY_CHANCE = "passes by chance"  # in a reason: this test may pass
HEAD = """\
# Node tests of the package onnx {version} that fail, with the reason. Written by conformance.py --update; a test
# that starts to fail, or to pass, must change this file, but for one of random numbers ("passes by chance"). Reasons
# may be edited.
"""


def load_tests():
    """The class of all node tests, and their names."""
    from lmnative.onnx_backend import LmnativeBackend
    from onnx.backend.test import BackendTest

    class OneThread(LmnativeBackend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            return super().prepare(model, device, threads=1, **{k: v for k, v in kwargs.items() if k == "base_folder"})

    cases = BackendTest(OneThread, __name__).test_cases["OnnxBackendNodeModelTest"]
    return cases, sorted(name for name in dir(cases) if name.startswith("test_") and name.endswith("_cpu"))


def run_one(cases, name: str) -> str:
    """'' or why it failed, on one line."""
    try:
        cases(name).debug()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:200]}"
    return ""


class Child:
    """A process that runs tests, and says before and after each of them which."""

    def __init__(self, cases, names: list[str]) -> None:
        self.names = names  # not yet reported
        self.started = time.monotonic()
        self.partial = b""
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            code = 0
            try:
                for name in names:
                    os.write(write, f"{name}\t{run_one(cases, name)}\n".encode())
            except BaseException:
                code = 1
            os._exit(code)
        os.close(write)
        self.read = read

    def lines(self) -> list[str] | None:
        """What was reported since the last call; None at the end."""
        data = os.read(self.read, 1 << 16)
        if not data:
            return None
        *lines, self.partial = (self.partial + data).split(b"\n")
        self.started = time.monotonic()
        return [line.decode("utf-8", "replace") for line in lines]

    def end(self) -> str:
        """Waits for it; what went wrong."""
        os.close(self.read)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return f"crashed: {signal.Signals(os.WTERMSIG(status)).name}"
        return f"ended the process with code {os.WEXITSTATUS(status)}"


def run_all(cases, names: list[str], jobs: int) -> dict[str, str]:
    """Name -> '' or why it failed."""
    results: dict[str, str] = {}
    children = [Child(cases, names[i::jobs]) for i in range(jobs)]
    while children:
        ready, _, _ = select.select([child.read for child in children], [], [], 1.0)
        for child in list(children):
            late = time.monotonic() - child.started > LIMIT_S
            if child.read not in ready and not late:
                continue
            if late:
                os.kill(child.pid, signal.SIGKILL)
            lines = None if late else child.lines()
            for line in lines or []:
                name, _, reason = line.partition("\t")
                results[name] = reason
            if lines is not None:
                continue
            children.remove(child)
            reason = child.end()
            left = [name for name in child.names if name not in results]
            if left:
                results[left[0]] = f"took longer than {LIMIT_S:.0f} s" if late else reason
                if left[1:]:
                    children.append(Child(cases, left[1:]))
    return results


def read_list() -> dict[str, str]:
    known = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line and not line.startswith("#"):
            name, _, reason = line.partition(": ")
            known[name] = reason
    return known


def write_list(failures: dict[str, str]) -> None:
    import onnx

    lines = [f"{name}: {reason}" for name, reason in sorted(failures.items())]
    LIST.write_text(HEAD.format(version=onnx.__version__) + "\n".join([*lines, ""]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the list anew")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tests; says why they fail")
    options = parser.parse_args()
    cases, names = load_tests()
    if options.names:
        names = [name for name in names if any(part in name for part in options.names)]
    results = run_all(cases, names, len(os.sched_getaffinity(0)))
    failures = {name: reason for name, reason in results.items() if reason}
    print(f"{len(results) - len(failures)} of {len(results)} node tests pass")
    known = read_list()
    if options.names:
        print(*(f"{name}: {reason}" for name, reason in sorted(failures.items())), sep="\n")
        return 0
    if options.update:
        by_chance = {name: reason for name, reason in known.items() if BY_CHANCE in reason and name in results}
        write_list({**{name: known.get(name) or reason for name, reason in failures.items()}, **by_chance})
        return 0
    fresh = {name: reason for name, reason in failures.items() if name not in known}
    mended = sorted(name for name in results if name not in failures and BY_CHANCE not in known.get(name, BY_CHANCE))
    gone = sorted(name for name in known if name not in results)
    for name, reason in sorted(fresh.items()):
        print(f"fails, and is not in {LIST.name}: {name}: {reason}")
    for name in mended:
        print(f"passes, and is in {LIST.name}: {name}")
    for name in gone:
        print(f"does not exist, and is in {LIST.name}: {name}")
    if fresh or mended or gone:
        print("after looking at them: tests/onnx/conformance.py --update")
    return 1 if fresh or mended or gone else 0


if __name__ == "__main__":
    sys.exit(main())
