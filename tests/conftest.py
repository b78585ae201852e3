# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the default model, one LLM for most tests, and the reference values."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import lmnative
import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(os.environ.get("LMN_GOLDEN", ROOT / "tests" / "golden" / "smollm2_135m_q4_1.json"))


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Waits for what another thread does; False if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


if device := os.environ.get("LMN_TEST_DEVICE"):  # the same tests where models run elsewhere: "cuda"
    lmnative.Engine.__init__.__kwdefaults__["device"] = device

NOTES: list[str] = []


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Reports a measured figure: printed at the end of the run, whether or not its test passed."""
    return NOTES.append


def pytest_terminal_summary(terminalreporter) -> None:
    for text in NOTES:
        terminalreporter.write_line(f"note: {text}")


@pytest.fixture(scope="session")
def model_path() -> str:
    """The default model's file."""
    try:
        return os.environ.get("LMN_TEST_MODEL") or lmnative.Model("smollm2-135m").path
    except lmnative.NotFoundError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.fixture(scope="session")
def llm(model_path: str):
    """An LLM that tests share and none closes."""
    with lmnative.LLM(model_path, threads=2, context_tokens=4096) as shared:
        yield shared


@pytest.fixture(scope="session")
def tokenizer(llm: lmnative.LLM) -> lmnative.Tokenizer:
    return llm.tokenizer


@pytest.fixture(scope="session")
def golden() -> dict:
    """Reference values: float32 over the dequantised weights, made by another program."""
    if not GOLDEN.exists():
        pytest.skip(f"no reference values at {GOLDEN}")
    return json.loads(GOLDEN.read_text())
