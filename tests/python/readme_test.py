# SPDX-License-Identifier: Apache-2.0
"""The examples in README.md are built and run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lmnative
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = Path(lmnative.get_library())


def example(language: str, index: int = 0, of: int = 1) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == of
    return found[index]


def output_of(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def counted(llm) -> str:
    """What the examples in C and Go print."""
    return llm.generate("1, 2, 3, 4,", max_tokens=16).text


def test_python(model_path, tmp_path):
    (tmp_path / "example.py").write_text(example("python", 0, of=4))
    assert "Paris" in output_of(sys.executable, "example.py", cwd=tmp_path)


def test_python_onnx(tmp_path):
    shutil.copy(ROOT / "tests" / "onnx" / "relu_linear.onnx", tmp_path / "model.onnx")
    (tmp_path / "example.py").write_text(example("python", 1, of=4))
    # Rows of A are 2 when the binding runs, B is 1 to 12 in rows of three, and the bias -20, 0, 0.5.
    assert (
        output_of(sys.executable, "example.py", cwd=tmp_path).split("\n", 1)[1]
        == "[[24.  52.  60.5]\n [24.  52.  60.5]]\n"
    )


def test_python_graph(tmp_path):
    (tmp_path / "example.py").write_text(example("python", 2, of=4))
    # Sums of four ones, and the bias -20, 0, 0.5.
    assert output_of(sys.executable, "example.py", cwd=tmp_path) == "[[0.  4.  4.5]\n [0.  4.  4.5]]\n"


def test_python_server(model_path, tmp_path):
    (tmp_path / "example.py").write_text(example("python", 3, of=4))
    assert "Paris" in output_of(sys.executable, "example.py", cwd=tmp_path)


def test_c(counted, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "example.c").write_text(example("c"))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{lmnative.get_include()}"]
    link = [LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"]
    output_of("cc", *flags, "example.c", "-o", "example", *link, cwd=tmp_path)
    assert output_of(tmp_path / "example") == counted


def test_go(counted, tmp_path):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    (tmp_path / "main.go").write_text(example("go"))
    (tmp_path / "go.mod").write_text("module example\n")
    environment = {
        **os.environ,
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-O2 -I{lmnative.get_include()}",
        "CGO_LDFLAGS": f"-L{LIBRARY.parent} -llmnative -Wl,-rpath,{LIBRARY.parent}",
        "GOFLAGS": "-mod=mod",
        "GOCACHE": str(ROOT / "build" / "go-cache"),
        "GOTOOLCHAIN": "local",
    }
    output_of("go", "build", "-o", "example", ".", cwd=tmp_path, env=environment)
    assert output_of(tmp_path / "example") == counted
