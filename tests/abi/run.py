#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the clients of tests/abi in five languages, runs them, and compares what they print, byte for byte.

Usage: run.py [--library PATH/liblmnative.so] [--model PATH] [--build FOLDER] [--only c,go] [--flags=-fsanitize=…].
Without --library the one of the Python package lmnative that is installed, with its headers. A language whose tools are
missing is skipped with the reason; C is the reference and may not be. Standard library only. Exit code 0 when all that
ran agree.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = [
    "version",
    "model",
    "metadata",
    "tensor",
    "tokenize",
    "chat",
    "stream",
    "cancel",
    *["error"] * 5,
    "score",
    *["streams"] * 2,
    "session",
    "graph",
    "destroy",
]


class Skip(Exception):
    pass


def tool(*names):
    """The first of these programs that exists; also looks where rustup puts its own."""
    path = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo/bin"), "/usr/local/go/bin"])
    for name in filter(None, names):
        found = shutil.which(name, path=path)
        if found:
            return found
    raise Skip(f"no {' or '.join(filter(None, names))} on this machine")


def run(command, environment=None, folder=None):
    result = subprocess.run(command, capture_output=True, env=environment, cwd=folder, timeout=600, check=False)
    if result.returncode != 0:
        raise RuntimeError(
            f"exit code {result.returncode}: {' '.join(map(str, command))}\n"
            f"{result.stdout.decode(errors='replace')[-2000:]}{result.stderr.decode(errors='replace')[-4000:]}"
        )
    return result.stdout


class Clients:
    def __init__(self, library, include, build, flags):
        self.library, self.build = library, build
        self.include = f"-I{include}"
        self.link = [f"-L{library.parent}", "-llmnative", f"-Wl,-rpath,{library.parent}"]
        self.warnings = ["-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror", "-O2", *flags]

    def c(self):
        out = self.build / "client_c"
        cc = tool(os.environ.get("CC"), "cc", "gcc")
        run([cc, "-std=c11", *self.warnings, self.include, HERE / "c/client.c", "-o", out, *self.link, "-lm"])
        return [out]

    def cpp(self):
        out = self.build / "client_cpp"
        cxx = tool(os.environ.get("CXX"), "c++", "g++")
        run([cxx, "-std=c++20", *self.warnings, self.include, HERE / "cpp/client.cc", "-o", out, *self.link])
        return [out]

    def ctypes(self):
        return [sys.executable, HERE / "ctypes/client.py", self.library]

    def go(self):
        out = self.build / "client_go"
        go = tool("go")
        cc = tool(os.environ.get("CC"), "cc", "gcc")
        environment = os.environ | {
            "CGO_ENABLED": "1", "CC": cc, "CGO_CFLAGS": f"-O2 {self.include}", "CGO_LDFLAGS": " ".join(self.link),
            "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": str(self.build / "go-cache"),
            "GOPATH": str(self.build / "go-path"),
        }  # fmt: skip
        run([go, "build", "-o", out, "."], environment, HERE / "go")
        return [out]

    def rust(self):
        out = self.build / "client_rust"
        flags = ["--edition", "2021", "-D", "warnings", "-O"]
        run([tool("rustc"), *flags, HERE / "rust/client.rs", "-o", out, "-L", self.library.parent, "-l", "lmnative",
             "-C", f"link-arg=-Wl,-rpath,{self.library.parent}"])  # fmt: skip
        return [out]


def installed():
    """Library and headers of the installed package."""
    try:
        import lmnative
    except ImportError as error:
        raise SystemExit(f"give --library, or install the package lmnative ({error})") from error
    return Path(lmnative.get_library()), Path(lmnative.get_include())


def compare(reference, output):
    """'' when equal; otherwise the first line that differs."""
    if reference == output:
        return ""
    pairs = zip(reference.splitlines() + [b""], output.splitlines() + [b""], strict=False)
    want, got = next((a, b) for a, b in pairs if a != b)
    return f"the C client prints\n  {want.decode(errors='replace')}\nthis one\n  {got.decode(errors='replace')}"


def check_script(output):
    """The reference output is the whole script, and each line is JSON."""
    lines = [json.loads(line) for line in output.decode().splitlines()]
    steps = [line["step"] for line in lines]
    if steps != STEPS:
        raise RuntimeError(f"steps are {steps}")
    for line in lines:
        if line["step"] == "error" and not line.get("same"):
            raise RuntimeError(f"an error that was provoked did not come: {line}")
        if line["step"] == "streams" and not line["equal"]:
            raise RuntimeError(f"a stream is not what its request gives alone: {line}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--model", default=os.environ.get("LMN_TEST_MODEL") or "smollm2-135m")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--only", default="c,cpp,ctypes,go,rust")
    parser.add_argument("--flags", default="", help="more flags for the C and the C++ compiler")
    options = parser.parse_args()
    library, include = (options.library.absolute(), ROOT / "include") if options.library else installed()
    build = (options.build or ROOT / "build" / "abi_clients").absolute()
    build.mkdir(parents=True, exist_ok=True)
    clients = Clients(library, include, build, options.flags.split())
    reference, passed, failed, skipped = None, 0, 0, 0
    for name in options.only.split(","):
        start = time.monotonic()
        try:
            output = run([*getattr(clients, name)(), options.model, ROOT / "tests/onnx/relu_linear.onnx"])
            (build / f"{name}.json").write_bytes(output)
            if reference is None:
                check_script(output)
                reference = output
            difference = compare(reference, output)
        except Skip as reason:
            print(f"SKIP {name}: {reason}")
            skipped += 1
            continue
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            difference = str(error)
        failed += bool(difference)
        passed += not difference
        print(f"{'FAIL' if difference else 'ok  '} {name} ({time.monotonic() - start:.1f} s) {difference}".rstrip())
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or reference is None else 0


if __name__ == "__main__":
    sys.exit(main())
