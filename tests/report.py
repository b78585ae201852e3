# SPDX-License-Identifier: Apache-2.0
"""Results of the test runner: counts of passed, failed and skipped, read from what the tools of each stage write."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

# The closing line of our own harnesses (tests/unit/testing.cc, tests/abi/run.py).
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)
SKIP = re.compile(r"^SKIP ([^:\n]+): (.+)$", re.MULTILINE)
SKIPPED_FILE = re.compile(r"'Skipped: (.*)'\)$")  # as pytest says of a whole file: ('path', line, 'Skipped: reason')


@dataclass
class Result:
    """What one stage did."""

    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)  # "name: reason"
    failures: list[str] = field(default_factory=list)  # names
    names: set[str] = field(default_factory=set)  # tests that ran: ctest names, or files of pytest

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skips += other.skips
        self.failures += other.failures
        self.names |= other.names

    @classmethod
    def one(cls, name: str, ok: bool) -> Result:
        """A stage that is a single check."""
        return cls(passed=int(ok), failed=int(not ok), failures=[] if ok else [name], names={name})

    @classmethod
    def skip(cls, name: str, reason: str) -> Result:
        return cls(skips=[f"{name}: {reason}"], names={name})


def from_output(name: str, output: str, exit_code: int) -> Result:
    """From a program that ends with "N passed, N failed, N skipped"; one without that line counts as one test."""
    closing = COUNTS.findall(output)
    if not closing:
        return Result.one(name, exit_code == 0)
    passed, failed, _ = (int(number or 0) for number in closing[-1])
    if exit_code != 0 and failed == 0:
        failed = 1  # it counted no failure, but did not end well
    skips = [f"{name} {test}: {reason}" for test, reason in SKIP.findall(output)]
    skipped = int(closing[-1][2] or 0)
    skips += [f"{name}: no reason given"] * (skipped - len(skips))
    return Result(passed, failed, skips, [name] if failed else [], {name})


def from_ctest(path: Path) -> Result:
    """From the file that ctest --output-junit writes."""
    result = Result()
    for case in xml.parse(path).getroot().iter("testcase"):
        name, status = case.get("name", ""), case.get("status", "")
        output = case.findtext("system-out", "")
        skipped = case.find("skipped")
        if skipped is not None or status in ("notrun", "disabled"):
            reason = SKIP.search(output)
            missing = "Unable to find executable" in output or "not found" in (skipped.get("message") or "").lower()
            if missing:
                result.add(Result.one(name, ok=False))
            else:
                result.add(Result.skip(name, reason[2] if reason else last_line(output) or "skipped"))
        else:
            result.add(from_output(name, output, 0 if case.find("failure") is None else 1))
    return result


def from_pytest(path: Path) -> Result:
    """From the file that pytest --junitxml writes."""
    result = Result()
    for case in xml.parse(path).getroot().iter("testcase"):
        module = case.get("classname") or case.get("name", "")  # a file that is skipped as a whole has no class
        name = f"{module}.{case.get('name')}" if case.get("classname") else module
        result.names.add(module.split(".")[-1])
        skipped = case.find("skipped")
        if skipped is not None:
            whole = SKIPPED_FILE.search(skipped.text or "")
            result.skips.append(f"{name}: {whole[1] if whole else skipped.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
            result.failures.append(name)
        else:
            result.passed += 1
    return result


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
