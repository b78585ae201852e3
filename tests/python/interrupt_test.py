# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: every long call stops soon, and the LLM can be used again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import lmnative
import pytest
from conftest import wait_until

SOON_SECONDS = 1.0


@contextlib.contextmanager
def interrupted_after(seconds: float):
    """Sends SIGINT to this process, expects KeyboardInterrupt, and checks how long it took."""
    sent = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, send)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
        timer.cancel()
    assert time.monotonic() - sent[0] < SOON_SECONDS


@pytest.fixture(scope="module")
def long_llm(model_path):
    with lmnative.LLM(model_path, threads=1) as llm:
        yield llm


def test_generate(long_llm):
    with interrupted_after(0.3):
        long_llm.generate("Once", max_tokens=8000, ignore_eos=True)
    assert long_llm.generate("Once", max_tokens=2).token_ids


def test_generate_of_a_list(long_llm):
    before = long_llm.stats()
    with interrupted_after(0.3):
        long_llm.generate(["Once"] * 5, max_tokens=8000, ignore_eos=True)
    assert long_llm.generate("Once", max_tokens=2).token_ids
    assert wait_until(lambda: long_llm.stats()["cancelled"] == before["cancelled"] + 5)


def test_a_long_prompt(long_llm):
    with interrupted_after(0.2):
        long_llm.generate(list(range(100, 8100)), max_tokens=1)
    assert long_llm.generate("Once", max_tokens=2).token_ids


def test_stream(long_llm):
    with interrupted_after(0.3):
        for _ in long_llm.stream("Once", max_tokens=8000, ignore_eos=True):
            pass
    assert long_llm.generate("Once", max_tokens=2).token_ids


def test_score(model_path):
    ids = list(range(100, 4600))
    with lmnative.LLM(model_path, threads=1, context_tokens=5000, prefill_chunk_tokens=64) as llm:
        with interrupted_after(0.2):
            llm.score(ids)
        assert llm.generate("Once", max_tokens=2).token_ids
        stats = llm.stats()
        assert stats["prompt_tokens"] < len(ids) / 2, "the engine must not go on with what nobody waits for"
        assert stats["cancelled"] == 1 and stats["running"] == 0


def test_loading(model_path):
    calls = 0

    def report(what, done, total):
        nonlocal calls
        calls += 1
        if calls == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lmnative.LLM(model_path, threads=1, context_tokens=64, progress=report)
