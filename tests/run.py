#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests: `make test` runs all of them, `tests/run.py STAGE …` some.

One stage after the other, each with its output in build/test-logs/STAGE.log. Ends with the skipped tests and their
reasons, the end of the log of each stage that failed, and one closing line with all counts. What the tests need is
set up first (tests/environment.py). The tests of Python run against the installed wheel, not against the source tree.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import environment as env
from report import Result, from_ctest, from_output, from_pytest

ROOT = env.ROOT
BUILD = ROOT / "build"
LOGS = BUILD / "test-logs"
RELEASE = BUILD / "wheel"  # `pip install .` builds here as well: nothing is compiled twice
FUZZ_SECONDS = 30
JOBS = str(len(os.sched_getaffinity(0)))

# Every test file, and the name under which a stage must have run it.
TEST_FILES = {
    "tests/unit/*/*_test.cc": lambda path: f"unit_{path.parent.name}",
    "tests/unit/device/device_golden_test.cc": lambda path: "device_golden",
    "tests/conformance/*_test.cc": lambda path: "conformance",
    "tests/abi/abuse/*_test.cc": lambda path: "abi_abuse",
    "tests/abi/abidiff_test.py": lambda path: "abi_diff",
    "tests/abi/install_test.py": lambda path: "abi_install",
    "tests/abi/layout_test.c": lambda path: "abi_layout",
    "tests/abi/steady_state_test.c": lambda path: "abi_steady_state",
    "tests/abi/make_layout_test.py": lambda path: "abi_layout",
    "tests/python/*_test.py": lambda path: path.stem,
    "tests/server/*_test.py": lambda path: path.stem,
}


class Log:
    """Runs the commands of one stage and writes what they say into its log."""

    def __init__(self, name: str) -> None:
        self.path = LOGS / f"{name}.log"
        self.path.write_text("")

    def run(self, *command: object, limit_s: int = 900, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """Exit code and output. A command that takes longer than `limit_s` is ended, with all it started: code 124."""
        return self.run_together([command], limit_s, environment)[0]

    def run_together(
        self, commands: list[tuple[object, ...]], limit_s: int, environment: dict[str, str] | None = None
    ) -> list[tuple[int, str]]:
        """The same for commands that run at the same time."""
        lines = [[str(word) for word in command] for command in commands]
        with contextlib.ExitStack() as open_files:
            outputs = [open_files.enter_context(tempfile.TemporaryFile()) for _ in lines]
            surroundings = {**os.environ, **test_environment(), **(environment or {})}
            processes: list[subprocess.Popen] = []
            results: list[tuple[int, str]] = []
            try:
                for line, output in zip(lines, outputs, strict=True):
                    processes.append(
                        subprocess.Popen(
                            line,
                            cwd=ROOT,
                            env=surroundings,
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
                end = time.monotonic() + limit_s
                for line, output, process in zip(lines, outputs, processes, strict=True):
                    code, remark = 124, f"\nended after {limit_s} s\n"
                    try:
                        code, remark = process.wait(max(0.0, end - time.monotonic())), ""
                    except subprocess.TimeoutExpired:
                        end_group(process)
                    output.seek(0)
                    text = output.read().decode("utf-8", "replace") + remark
                    with self.path.open("a") as log:
                        log.write(f"$ {' '.join(line)}\n{text}\n")
                    results.append((code, text))
            finally:
                for process in processes:
                    end_group(process)
        return results


def end_group(process: subprocess.Popen) -> None:
    """Ends a process that runs in a session of its own, with all it started there."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_environment() -> dict[str, str]:
    """What the tests find in their environment."""
    return {
        "LMN_GOLDEN": str(ROOT / "tests" / "golden" / "smollm2_135m_q4_1.json"),
        "LMN_TEST_MODEL": env.model_path(),
        "VIRTUAL_ENV": str(env.VENV),
        "PATH": f"{env.VENV / 'bin'}:{os.environ['PATH']}",
    }


# Stages -------------------------------------------------------------------------------------------


def configure(log: Log, folder: Path, *options: str, **environment: str) -> Result | None:
    """Configures a build folder; a Result only if that fails."""
    cmake, ninja = env.ensure_cmake()
    command = (
        cmake,
        "-S",
        ROOT,
        "-B",
        folder,
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        "-DCMAKE_UNITY_BUILD=ON",
    )
    command += options
    code, _ = log.run(*command, environment=environment)
    return Result.one(f"configure {folder.name}", ok=False) if code != 0 else None


def build(log: Log, folder: Path, *targets: str, jobs: str = JOBS) -> Result | None:
    """Builds targets; a Result only if that fails."""
    cmake, _ = env.ensure_cmake()
    code, _ = log.run(cmake, "--build", folder, "-j", jobs, "--target", *targets, limit_s=1500)
    return Result.one(f"build {folder.name}", ok=False) if code != 0 else None


def ctest(
    log: Log,
    folder: Path,
    select: str = "",
    limit_s: int = 900,
    under: tuple[str, ...] = (),
    jobs: str = "1",
    options: tuple[str, ...] = (),
) -> Result:
    cmake, _ = env.ensure_cmake()
    beside = Path(cmake).parent / "ctest"
    program = str(beside) if beside.exists() else "ctest"
    junit = LOGS / f"{log.path.stem}.xml"
    junit.unlink(missing_ok=True)
    size = "1000000"
    command = [
        *under,
        program,
        "--test-dir",
        folder,
        "--output-on-failure",
        "--output-junit",
        junit,
        "--timeout",
        "600",
        "--parallel",
        jobs,
    ]
    command += ["--test-output-size-passed", size, "--test-output-size-failed", size]
    log.run(*command, *options, *(["-R", select] if select else []), limit_s=limit_s)
    return from_ctest(junit) if junit.exists() else Result.one("ctest", ok=False)


def stage_native(log: Log) -> Result:
    """Unit, conformance and gate tests of the release build, which has the CUDA device where there is a toolkit."""
    return build_release(log, "lmnative", "tests") or ctest(log, RELEASE, jobs=JOBS, options=("-LE", "^cuda$"))


def stage_cuda(log: Log) -> Result:
    """CUDA kernels on the CPU; with a toolkit compiled, too, within their budget, and run on a GPU if there is one."""
    result = build_release(log, "cuda_tests") or ctest(log, RELEASE, jobs=JOBS, options=("-L", "^cuda$"))
    if missing := re.search(r"^-- CUDA device: not built, (.+)$", log.path.read_text(), re.MULTILINE):
        result.add(Result.skip("cuda", f"kernels were compiled for the CPU alone: {missing[1]}"))
    return result


def build_release(log: Log, *targets: str) -> Result | None:
    options = ["-DLMN_BUILD_TESTS=ON", "-DLMN_BUILD_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    if env.find_nvcc():
        options.append(f"-DLMN_CUDA_ARCHITECTURES={env.cuda_architectures()}")
    return configure(log, RELEASE, *options) or build(log, RELEASE, *targets)


def stage_abi(log: Log) -> Result:
    """The same script in C, C++, ctypes, Go and Rust, against the library of the installed wheel."""
    code, output = log.run(env.VENV_PYTHON, ROOT / "tests" / "abi" / "run.py", "--build", BUILD / "abi_clients")
    return from_output("abi", output, code)


def stage_python(log: Log) -> Result:
    """The Python package, command line and server as installed; the files are dealt out to one process for each CPU."""
    found = [path for folder in ("python", "server") for path in ROOT.glob(f"tests/{folder}/*_test.py")]
    files = sorted(found, key=lambda path: -path.stat().st_size)
    shares = [share for i in range(int(JOBS)) if (share := files[i :: int(JOBS)])]
    reports = [LOGS / f"python{i}.xml" for i in range(len(shares))]
    for report in reports:
        report.unlink(missing_ok=True)
    pytest = (env.VENV_PYTHON, "-m", "pytest")
    commands = [(*pytest, f"--junitxml={report}", *share) for report, share in zip(reports, shares, strict=True)]
    result = Result()
    for (_, output), report in zip(log.run_together(commands, limit_s=1500), reports, strict=True):
        for line in output.splitlines():
            if line.startswith("note: "):
                print(line)
        result.add(from_pytest(report) if report.exists() else Result.one("pytest", ok=False))
    return result


def stage_asan(log: Log) -> Result:
    """What runs the library, under AddressSanitizer and UndefinedBehaviorSanitizer; warnings are errors here."""
    select = "^(unit_|conformance|abi_(abuse|layout|symbols))"
    return sanitized(log, "asan", "address,undefined", "lmnative tests", select)


def stage_tsan(log: Log) -> Result:
    """What has threads, under ThreadSanitizer."""
    targets = "memory_tests parallel_tests engine_tests server_tests session_threads"
    return sanitized(log, "tsan", "thread", targets, "^(unit_(memory|parallel|engine|server)|threads_sessions)$")


def sanitized(log: Log, name: str, sanitizers: str, targets: str, select: str) -> Result:
    folder = BUILD / name
    failed = configure(
        log,
        folder,
        "-DLMN_BUILD_TESTS=ON",
        "-DLMN_WERROR=ON",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        f"-DLMN_SANITIZE={sanitizers}",
    ) or build(log, folder, *targets.split())
    if failed:
        return failed
    # ThreadSanitizer of older compilers cannot run where addresses are randomised as much as newer kernels do.
    fixed = ("setarch", platform.machine(), "-R")
    under = fixed if name == "tsan" and env.works(*fixed, "true") else ()
    return renamed(ctest(log, folder, select, under=under, jobs=JOBS), name)


def stage_fuzz(log: Log) -> Result:
    """Readers of GGUF and ONNX, sessions of ONNX models, and the server, against mutated input, for half a minute."""
    clang = env.find_clang()
    if clang is None:
        return Result.skip("fuzz", "no clang with libFuzzer (Debian: clang and libclang-rt-dev)")
    folder = BUILD / "fuzz"
    # Kernels, and what the server serves, are those of the release build, which is there already.
    failed = build_release(log, "lmnative", "uninstrumented") or configure(
        log,
        folder,
        "-DLMN_BUILD_FUZZERS=ON",
        "-DLMN_CUDA=OFF",
        f"-DLMN_FUZZ_SECONDS={FUZZ_SECONDS}",
        f"-DLMN_FUZZ_KERNELS={RELEASE / 'libuninstrumented.a'}",
        f"-DLMN_FUZZ_LIBRARY={RELEASE / 'liblmnative.so'}",
        f"-DCMAKE_CXX_COMPILER={clang}",
        f"-DCMAKE_C_COMPILER={clang.replace('clang++', 'clang')}",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -gline-tables-only -DNDEBUG",  # compiles fast
    )
    formats = ("gguf", "onnx", "session", "server")
    failed = failed or build(log, folder, *(f"{name}_fuzz" for name in formats))
    if failed:
        return failed
    cmake, _ = env.ensure_cmake()
    code, output = log.run(cmake, "--build", folder, "-j", "4", "--target", *(f"fuzz_{name}" for name in formats))
    found = set(re.findall(r"^FAILED: .*\bfuzz_(\w+)", output, re.MULTILINE)) & set(formats)
    if code != 0 and not found:
        found = set(formats)
    result = Result()
    for name in formats:
        result.add(Result.one(f"fuzz {name}", ok=name not in found))
    return result


def stage_neon(log: Log) -> Result:
    """CPU kernels of 64-bit ARM and what they stand on, under QEMU; what the stage native does on such a machine."""
    if env.is_arm():
        return Result.skip("neon", "this is an ARM machine, whose kernels the stage native tests")
    if missing := env.missing_arm_packages():
        return Result.skip("neon", f"no cross compiler or emulator (Debian: {' '.join(missing)})")
    folder = BUILD / "aarch64"
    failed = configure(
        log,
        folder,
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'aarch64.cmake'}",
        "-DLMN_BUILD_TESTS=ON",
        "-DLMN_WERROR=ON",
        "-DLMN_ROOMS=core|memory|parallel|ops|cpu|formats|graph|plan|models",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",  # of all but the kernels, which have their own
    ) or build(log, folder, "conformance", "cpu_tests")
    return failed or renamed(ctest(log, folder, "^(conformance_|unit_cpu_|cpu_fence)", jobs=JOBS), "neon")


STAGES: dict[str, Callable[[Log], Result]] = {
    "native": stage_native,
    "cuda": stage_cuda,
    "python": stage_python,
    "abi": stage_abi,
    "asan": stage_asan,
    "tsan": stage_tsan,
    "neon": stage_neon,
    "fuzz": stage_fuzz,
}


def renamed(result: Result, prefix: str) -> Result:
    """The same counts; a test that ran under a sanitizer does not stand in for the one without."""
    result.names = {f"{prefix} {name}" for name in result.names}
    result.skips = [f"{prefix} {skip}" for skip in result.skips]
    result.failures = [f"{prefix} {failure}" for failure in result.failures]
    return result


def unknown_files(names: set[str]) -> list[str]:
    """Test files that no stage ran."""
    expected = {path: name_of(path) for pattern, name_of in TEST_FILES.items() for path in ROOT.glob(pattern)}
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*_test.*")
        if "__pycache__" not in path.parts and expected.get(path) not in names
    )


# The run ------------------------------------------------------------------------------------------


def run_stage(name: str) -> Result:
    start, cpu = time.monotonic(), cpu_seconds()
    log = Log(name)
    result = STAGES[name](log)
    outcome = "ok    " if result.failed == 0 else "FAILED"
    where = f": {log.path.relative_to(ROOT)}" if result.failed else ""
    took = f"{time.monotonic() - start:.0f} s, {cpu_seconds() - cpu:.0f} s of CPU"
    print(f"{name:<8} {outcome} {result.passed:>5} passed in {took}{where}", flush=True)
    return result


def cpu_seconds() -> float:
    """CPU time of all processes that this one has waited for, which a busy machine does not change."""
    times = os.times()
    return times.children_user + times.children_system


def end_of_log(name: str) -> str:
    path = LOGS / f"{name}.log"
    lines = path.read_text().splitlines()
    return "\n".join(["-" * 80, *lines[-80:], "-" * 80, f"all of it: {path.relative_to(ROOT)}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)} (default: all)")
    stages = parser.parse_args().stages or list(STAGES)
    for name in stages:
        if name not in STAGES:
            parser.error(f"unknown stage {name!r}: choose from {', '.join(STAGES)}")
    # A shell starts background jobs with Ctrl-C ignored, which children inherit; some tests need it to work.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    try:
        env.set_up("test")
    except env.Missing as missing:
        print(f"set-up: {missing}", file=sys.stderr)
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)

    print(f"set-up   ok     in {time.monotonic() - start:.0f} s, {cpu_seconds():.0f} s of CPU", flush=True)

    total = Result()
    logs = []
    for name in stages:
        result = run_stage(name)
        total.add(result)
        if result.failed:
            logs.append(end_of_log(name))
    if stages == list(STAGES):
        forgotten = unknown_files(total.names)
        total.add(Result(passed=not forgotten, failed=len(forgotten), failures=[f"{f} was not run" for f in forgotten]))
    for skip in total.skips:
        print(f"skipped: {skip}")
    for log in logs:  # where it is found by those who see only the end of a long output
        print(log)
    for failure in total.failures:
        print(f"failed: {failure}")
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skips)} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
