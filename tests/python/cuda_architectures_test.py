# SPDX-License-Identifier: Apache-2.0
"""What -DLMN_CUDA_ARCHITECTURES may be (cmake/cuda_architectures.cmake)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "cmake" / "cuda_architectures.cmake"
KNOWN = "".join(f"compute_{number}\n" for number in (75, 80, 86, 90, 100, 103, 120))

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


def check(architectures: str) -> tuple[int, str]:
    command = ["cmake", f"-DARCHITECTURES={architectures}", f"-DKNOWN={KNOWN}", "-P", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "architectures",
    ["80", "90-real", "90a", "90a-real;100f-virtual", "80-real;90-real;100-real;120-real;120-virtual", "native"],
)
def test_valid(architectures):
    assert check(architectures) == (0, "")


@pytest.mark.parametrize(
    ("architectures", "wrong"),
    [
        ("", "it is empty"),
        ("75-real", '"75-real" is none'),
        ("70", '"70" is none'),
        ("99", '"99" is none'),
        ("999", '"999" is none'),
        ("banana", '"banana" is none'),
        ("90real", '"90real" is none'),
        ("90;banana", '"banana" is none'),
        ("90;native", '"native" is none'),
        ("90;;80", '"" is none'),
        ("80a", '"80a" is none'),
        ("90f", '"90f" is none'),
        ("all", '"all" is none'),
    ],
)
def test_invalid(architectures, wrong):
    code, message = check(architectures)
    assert code != 0
    assert f"LMN_CUDA_ARCHITECTURES={architectures}: {wrong}. Valid are 80, 86, 90, 100, 103, 120 (" in message
