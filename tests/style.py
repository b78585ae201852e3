#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The style of the sources: `tests/style.py lint` checks it, `tests/style.py format` mends what tools can mend.

ruff for Python (from PyPI, into .venv), clang-format for C and C++ (Debian's package, of the version named here: others
format differently).
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import environment as env

CLANG_FORMAT = "clang-format-14"
NATIVE_SUFFIXES = (".c", ".cc", ".h", ".hpp")
NATIVE_FOLDERS = ("include", "cpp", "python/src", "tests", "bench")


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in ("lint", "format"):
        print(__doc__, file=sys.stderr)
        return 2
    mend = sys.argv[1] == "format"
    env.ensure_venv()
    if not env.has_module("ruff"):
        env.pip_install("ruff")
    ruff = [str(env.VENV_PYTHON), "-m", "ruff"]
    commands = [
        [*ruff, "check", *(["--fix"] if mend else []), "."],
        [*ruff, "format", *([] if mend else ["--check"]), "."],
    ]
    if shutil.which(CLANG_FORMAT) or env.apt_install(CLANG_FORMAT):
        files = [
            str(path)
            for folder in NATIVE_FOLDERS
            for path in sorted((env.ROOT / folder).rglob("*"))
            if path.suffix in NATIVE_SUFFIXES
        ]
        commands.append([CLANG_FORMAT, "-i", *files] if mend else [CLANG_FORMAT, "--dry-run", "--Werror", *files])
    else:
        print(f"style: {CLANG_FORMAT} is not installed, C and C++ were not looked at", file=sys.stderr)
    codes = [subprocess.run(command, cwd=env.ROOT).returncode for command in commands]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
