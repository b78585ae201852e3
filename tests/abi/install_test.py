#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into a folder, moves that folder, and builds somebody else's project against it: once with CMake's
find_package, once with pkg-config. Usage: install_test.py BUILD_FOLDER CMAKE CC VERSION ABI_VERSION
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONSUMER = Path(__file__).resolve().parent / "consumer"


def run(*command, **environment):
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, env=os.environ | environment, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def cached(build, name):
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    return ""


def check(name, output, want):
    if output != want:
        raise SystemExit(f"{name} prints {output!r}, want {want!r}")
    print(f"ok   {name}")


def main():
    build, cmake, cc, version, abi = Path(sys.argv[1]), *sys.argv[2:]
    want = f"{version} {abi} LMN_NOT_FOUND\n"
    passed, skipped = 2, 0
    with tempfile.TemporaryDirectory() as temporary:
        first, prefix = Path(temporary, "first"), Path(temporary, "moved here")
        run(cmake, "--install", build, "--prefix", first, "--component", "lmnative")
        shutil.move(first, prefix)
        library = next(prefix.glob("lib*/**/liblmnative.so"))

        work = Path(temporary, "build")
        generator = [
            "-G",
            cached(build, "CMAKE_GENERATOR"),
            f"-DCMAKE_MAKE_PROGRAM={cached(build, 'CMAKE_MAKE_PROGRAM')}",
        ]
        run(cmake, "-S", CONSUMER, "-B", work, *generator, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={cc}",
            f"-DCMAKE_CXX_COMPILER={cached(build, 'CMAKE_CXX_COMPILER')}")  # fmt: skip
        run(cmake, "--build", work)
        check("find_package, C", run(work / "consumer_c"), want)
        check("find_package, C++", run(work / "consumer_cpp"), want)

        pkg_config = shutil.which("pkg-config") or shutil.which("pkgconf")
        if pkg_config is None:
            print("SKIP pkg-config: no pkg-config on this machine")
            skipped += 1
        else:
            # A folder with a space in its name is what pkg-config and shells disagree about; here it has none.
            plain = prefix.rename(Path(temporary, "moved"))
            library = plain / library.relative_to(prefix)
            search = {"PKG_CONFIG_PATH": str(next(plain.glob("lib*/**/pkgconfig")))}
            flags = run(pkg_config, "--cflags", "--libs", "lmnative", **search).split()
            program = Path(temporary, "consumer")
            run(cc, "-std=c11", CONSUMER / "consumer.c", "-o", program, *flags)
            check("pkg-config", run(program, LD_LIBRARY_PATH=str(library.parent)), want)
            if run(pkg_config, "--modversion", "lmnative", **search).strip() != version:
                raise SystemExit("lmnative.pc has another version")
            passed += 1
    print(f"{passed} passed, 0 failed, {skipped} skipped")


if __name__ == "__main__":
    main()
