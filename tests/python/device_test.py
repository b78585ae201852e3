# SPDX-License-Identifier: Apache-2.0
"""The device of a model: names, and why there is none where there is none. Where there is one: tests/device/run.sh."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lmnative
import pytest

WITH_CUDA = "cuda" in lmnative.build_info()["backends"].split(",")


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def open_elsewhere(device: str, **environment: str) -> str:
    """What another process says that opens a null model on a device."""
    code = f"""
import lmnative
try:
    lmnative.LLM("null:", device={device!r}).close()
except lmnative.Error as error:
    print(type(error).__name__, error)
else:
    print("opened")
"""
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


def test_names():
    with lmnative.LLM("null:", device="cpu") as llm:
        assert llm.generate([1, 2], max_tokens=2).token_ids
    for name in ("", "gpu", "cuda:", "cuda:-1", "cuda:1x", "CUDA", "cpu:0", "cuda:99999999999"):
        with pytest.raises(lmnative.InvalidArgumentError, match=f'device is "{name}"; it is cpu, cuda or cuda:N'):
            lmnative.LLM("null:", device=name)
    with pytest.raises(TypeError, match="device must be a str, not int"):
        lmnative.LLM("null:", device=0)  # ty: ignore[invalid-argument-type]


@pytest.mark.skipif(WITH_CUDA, reason="this library has the CUDA device")
def test_a_library_without_cuda():
    with pytest.raises(lmnative.UnsupportedError, match="built without CUDA.*LMN_CUDA=ON.*12.4"):
        lmnative.LLM("null:", device="cuda")


@pytest.mark.skipif(not WITH_CUDA, reason="this library was built without CUDA (no toolkit, or LMN_CUDA=OFF)")
class TestWithCuda:
    @pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
    def test_no_driver(self, model_path):
        for model in ("null:", model_path):
            with pytest.raises(lmnative.UnsupportedError, match='cuda:2: no NVIDIA driver.*libcuda.*use device "cpu"'):
                lmnative.LLM(model, device="cuda:2")

    def test_what_a_driver_says(self, tmp_path):
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "no C compiler (Debian: gcc)"
        source = Path(__file__).with_name("fake_cuda_driver.c")
        subprocess.run([compiler, "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True)
        library = str(tmp_path)
        none = open_elsewhere("cuda", LD_LIBRARY_PATH=library, CUDA_VISIBLE_DEVICES="")
        assert none.startswith(
            "UnsupportedError device cuda:0: the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES is set)"
        )
        old = open_elsewhere("cuda:1", LD_LIBRARY_PATH=library, FAKE_CUDA_VERSION="11040")
        assert old.startswith(
            "UnsupportedError device cuda:1: the NVIDIA driver is made for CUDA 11.4, this library needs "
        )
        assert "install a newer driver" in old and "older toolkit" in old
        for code, remedy in (
            ("34", "stub"),
            ("802", "fabricmanager"),
            ("803", "start the machine again"),
            ("804", "cuda-compat"),
            ("999", "smi"),
        ):
            broken = open_elsewhere("cuda", LD_LIBRARY_PATH=library, FAKE_CUDA_INIT=code)
            assert broken.startswith("InternalError device cuda:0 cannot be used: "), broken
            assert remedy in broken and 'use device "cpu"' in broken
        assert open_elsewhere("cpu", LD_LIBRARY_PATH=library) == "opened\n"
