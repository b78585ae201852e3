# SPDX-License-Identifier: Apache-2.0
"""Arguments of tests/device/run.sh: what is no report's name begins nothing and writes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "device"


@pytest.fixture
def run(tmp_path):
    """Runs a copy, which takes this folder for the repository, without a GPU to be found."""
    folder = tmp_path / "tests" / "device"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    for tool in ("dirname", "sh"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))

    def run_it(*words: str) -> tuple[int, str, str, bool]:
        environment = {**os.environ, "PATH": str(tmp_path / "bin"), "PYTHON": sys.executable}
        command = [str(folder / "run.sh"), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        wrote = {path.name for path in tmp_path.iterdir()} != {"tests", "bin"}
        return done.returncode, done.stdout, done.stderr, wrote

    return run_it


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(run, word):
    code, output, errors, wrote = run(word)
    assert (code, errors, wrote) == (0, "", False)
    assert output.startswith("usage: run.sh [-h] [REPORT.json]")
    assert "pip download" in output


@pytest.mark.parametrize("words", [("-x",), ("--quick",), ("-",), ("--", "-x"), ("",), ("a.json", "b.json")])
def test_wrong_arguments(run, words):
    code, output, errors, wrote = run(*words)
    assert (code, output, wrote) == (2, "", False)
    assert errors.startswith("usage: run.sh")


def test_a_report(run, tmp_path):
    assert run()[3]
    assert "nvidia-smi" in (tmp_path / "build" / "device.json").read_text()
    assert run("other.json")[0] == 2  # there is no GPU, says the report
    assert "nvidia-smi" in (tmp_path / "other.json").read_text()
