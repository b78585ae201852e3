# SPDX-License-Identifier: Apache-2.0
"""Engine without an event loop: requests that are polled and waited for, options, figures, the trace."""

from __future__ import annotations

import threading
import time

import lmnative
import pytest
from conftest import wait_until

LIKELIEST = 97  # of the null model: "a"
LONG = {"max_tokens": 100_000, "ignore_eos": True}
SLOW = "null:vocab=256,context=200000,step_ns=200000"  # 5000 steps a second


@pytest.fixture(scope="module")
def slow():
    with lmnative.Engine(SLOW, threads=1, kv_tokens=2**23) as engine:
        yield engine


def test_a_request_by_polling(slow):
    with slow.submit("x", max_tokens=50, ignore_eos=True) as request:
        chunks = []
        while not request.done:
            chunk = request.poll()
            if chunk is not None:
                chunks.append(chunk)
        assert request.poll() is None and request.next() is None and list(request) == []
    assert [token for chunk in chunks for token in chunk.token_ids] == [LIKELIEST] * 50
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert request.result().text == "a" * 50


def test_a_request_by_waiting(slow):
    request = slow.submit("x", max_tokens=100, ignore_eos=True)
    assert not request.wait(0) and not request.done
    assert request.wait(timeout=10) and request.wait() and not request.done
    assert request.stats()["finish_reason"] == "length"
    assert request.next(timeout=0).token_ids == [LIKELIEST] * 100, "all that was not taken"
    assert request.next() is None and request.done and request.wait()


def test_waiting_has_an_end(slow):
    with slow.submit("x", **LONG) as first:
        assert first.next(timeout=10)
        blocked = slow.submit("x", max_tokens=1, deadline=0.001)
        assert blocked.wait(10)
        stalled = lmnative.Engine("null:vocab=256,step_ns=300000000", threads=1)
        waiting = stalled.submit("x", max_tokens=3)
        with pytest.raises(lmnative.WaitTimeoutError, match="0.01"):
            waiting.next(timeout=0.01)
        assert isinstance(lmnative.WaitTimeoutError("x"), TimeoutError)
        assert waiting.wait(timeout=0.01) is False
        stalled.close()
        assert waiting.result().finish_reason is None
        assert waiting.next(timeout=10).finish_reason == "cancelled"


def test_cancel(slow):
    request = slow.submit("x", **LONG)
    first = request.next()
    threading.Thread(target=request.cancel).start()
    rest = list(request)
    assert rest[-1].finish_reason == "cancelled" == request.result().finish_reason == request.stats()["finish_reason"]
    assert set(first.token_ids) == {LIKELIEST}
    request.cancel()
    request.close()


def test_stats_of_a_request(llm):
    prompt = list(range(1000, 1100))
    first = llm.engine.submit(prompt, max_tokens=5, seed=9, ignore_eos=True)
    assert first.wait(60)
    again = llm.engine.submit(prompt, max_tokens=5, ignore_eos=True)
    assert again.wait(60)
    stats = first.stats()
    assert (stats["prompt_tokens"], stats["generated_tokens"], stats["seed"]) == (100, 5, 9)
    assert stats["preemptions"] == 0 and stats["prefill_ns"] > 0 and stats["decode_ns"] > 0
    assert again.stats()["cached_tokens"] == again.usage.cached_tokens == 96, "whole pages of 32"
    assert again.result().token_ids == [] and again.next().token_ids == first.next().token_ids


def test_options_of_the_engine():
    options = {
        "max_sequences": 2,
        "prefix_cache": False,
        "queue_capacity": 5,
        "queue_tokens": 50,
        "queue_bytes": 100_000,
        "inter_token_target": 0.01,
        "idle_spin": 0,
        "kv_tokens": 4096,
    }
    with lmnative.Engine("null:vocab=256,context=512,step_ns=5000000", threads=1, **options) as engine:
        stats = engine.stats()
        assert (stats["max_sequences"], stats["queue_capacity"], stats["threads"]) == (2, 5, 1)
        assert stats["kv_pages"] == 4096 // 32
        requests = [engine.submit([1] * 20, max_tokens=400, ignore_eos=True) for _ in range(2)]
        assert wait_until(lambda: engine.stats()["running"] == 2)
        requests.append(engine.submit([1] * 20, max_tokens=400, ignore_eos=True, tenant=7))
        assert (engine.stats()["waiting"], engine.stats()["queue_tokens"]) == (1, 20)
        with pytest.raises(lmnative.QueueFullError, match="50"):
            engine.submit([1] * 31)
        with pytest.raises(lmnative.QueueFullError, match="100000"):
            engine.submit([1] * 3, max_tokens=500, n=13)
        with pytest.raises(lmnative.OutOfMemoryError, match="100000"):  # too large by itself
            engine.submit([1] * 3, max_tokens=500, n=64)
        assert (engine.stats()["rejected_tokens"], engine.stats()["rejected_bytes"]) == (1, 2)
        assert engine.stats()["prefix_hit_tokens"] == 0
        for request in requests:
            request.close()
        assert wait_until(lambda: engine.stats()["running"] == engine.stats()["waiting"] == 0)
    assert "closed" in repr(engine) and engine.closed
    engine.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_sequences": 0}, ValueError),
        ({"max_sequences": 16385}, ValueError),
        ({"queue_tokens": 0}, ValueError),
        ({"queue_bytes": 0}, ValueError),
        ({"inter_token_target": 0}, ValueError),
        ({"idle_spin": -1}, ValueError),
        ({"trace_events": 2**24 + 1}, ValueError),
        ({"activation_bits": 4}, ValueError),
        ({"activation_bits": "8"}, TypeError),
        ({"kv_type": "q4_0"}, ValueError),
        ({"kv_type": ["f16"]}, TypeError),
        ({"profile": "no"}, TypeError),
        ({"prefix_cache": "no"}, TypeError),
        ({"threads": True}, TypeError),
        ({"prefill_chunk_tokens": "many"}, TypeError),
        ({"idle_spin": "long"}, TypeError),
    ],
)
def test_bad_options(options, error):
    with pytest.raises(error, match=f"^{next(iter(options))} "):
        lmnative.Engine("null:", **options)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [32, 33, 65, 2000, 20000])
def test_numbers_beyond_every_range(sign, bits):
    """Each keyword either has room for such a number, or says its own name and range."""
    value = sign << (bits - 1)
    for name in (
        *("threads", "context_tokens", "kv_tokens", "prefill_chunk_tokens", "queue_capacity", "max_sequences"),
        *("queue_tokens", "queue_bytes", "inter_token_target", "idle_spin", "trace_events"),
    ):
        try:
            lmnative.Engine("null:", **{name: value}).close()
            assert value > 0 and name in ("queue_tokens", "queue_bytes", "inter_token_target", "idle_spin")
        except lmnative.InvalidArgumentError as error:
            assert str(error).startswith(f"{name} is ")


def test_histograms(slow):
    slow.submit("x", max_tokens=20, ignore_eos=True).wait(10)
    assert wait_until(lambda: slow.histograms()["step"].count == slow.stats()["steps"])
    histograms = slow.histograms()
    parts = ("schedule", "prepare", "run", "sample", "deliver")
    assert set(histograms) == {"step", *parts, "queue", "first_token", "inter_token"}
    for histogram in histograms.values():
        assert histogram.count == sum(histogram.buckets) > 0
        assert histogram.p50_ns <= histogram.p90_ns <= histogram.p99_ns
        assert histogram.sum_ns <= histogram.count * histogram.max_ns
    assert histograms["run"].p50_ns > 0.7 * 200_000, "the null model works so long"
    assert sum(histograms[part].sum_ns for part in parts) == pytest.approx(histograms["step"].sum_ns, rel=0.01)


def test_trace():
    with lmnative.Engine("null:vocab=256", threads=1, trace_events=1000) as engine:
        assert engine.trace() == ([], 0)
        request = engine.submit([1, 2, 3], max_tokens=4, ignore_eos=True)
        assert request.wait(10)
        events = []

        def all_steps_are_over() -> bool:  # the last one delivers first and is over then
            more, lost = engine.trace()
            assert lost == 0
            events.extend(more)
            return sum(event.name == "run" for event in events) == 4

        assert wait_until(all_steps_are_over)
        spans = [(event.name, event.tokens, event.sequences) for event in events if event.request == 1]
        assert spans == [("queue", 3, 1), ("prefill", 3, 1), ("decode", 4, 1)]
        assert all(event.begin_ns <= event.end_ns for event in events)
        assert [event.tokens for event in events if event.name == "run"] == [3, 1, 1, 1]
        assert engine.trace() == ([], 0), "what was taken is gone"
        assert engine.submit([1], max_tokens=500, ignore_eos=True).wait(10)
        events, lost = engine.trace()
        assert len(events) >= 1000 and lost == 500 * 5 + 3 - len(events)
    with lmnative.Engine("null:", threads=1) as engine, pytest.raises(lmnative.UnsupportedError, match="trace_events"):
        engine.trace()


def test_profile():
    with lmnative.Engine("null:", threads=1, profile=True) as engine:
        assert engine.submit([1, 2, 3], max_tokens=4, ignore_eos=True).wait(10)
        assert wait_until(lambda: engine.profile()[4].calls == 3)
        entries = engine.profile()
        parts = ("schedule", "prepare", "run", "sample", "deliver")
        assert [(entry.step_kind, entry.op, entry.name, entry.calls) for entry in entries] == [
            (kind, "engine", part, calls) for kind, calls in (("decode", 3), ("prefill", 1)) for part in parts
        ]
        assert all(entry.bytes == entry.operations == entry.wait_ns == 0 for entry in entries)
    with lmnative.LLM("null:", threads=1) as llm, pytest.raises(lmnative.UnsupportedError, match="profile"):
        llm.profile()


def test_profile_of_a_model(model_path):
    """Against the numbers of the file: SmolLM2-135M has 30 layers of 9 heads of 64, 3 of them for keys and values."""
    with lmnative.LLM(model_path, threads=2, context_tokens=256, profile=True) as llm:
        assert len(llm.generate([5] * 100, max_tokens=5, ignore_eos=True).token_ids) == 5
        profile = llm.profile()
        weights = llm.memory()["packed_weights"].current
    for kind, steps, tokens, contexts in (("decode", 4, 4, range(101, 105)), ("prefill", 1, 100, range(1, 101))):
        entries = [entry for entry in profile if entry.step_kind == kind]
        stages = [entry for entry in entries if entry.op not in ("engine", "team")]
        assert {entry.calls for entry in stages} == {steps}
        linear = {entry.name: entry.operations for entry in stages if entry.op == "linear"}
        qkv, behind = 576 * (576 + 2 * 192), 576 * 576 + 3 * 576 * 1536
        sampled = behind + 576 * 49152  # what follows the last attention: of one token of each step
        assert sum(linear.values()) == 2 * (tokens * (30 * qkv + 29 * behind) + steps * sampled)
        assert linear["output"] == 2 * steps * 576 * 49152
        attention = [entry for entry in stages if entry.op == "paged_attention"]
        assert [entry.operations for entry in attention] == [4 * 64 * 9 * sum(contexts)] * 30
        cached = sum(contexts) if kind == "decode" else 100
        assert all(0 <= entry.bytes - cached * 2 * 3 * 64 * 2 < tokens * 8192 for entry in attention)
        moved = sum(entry.bytes for entry in stages)
        assert moved > 0.99 * steps * weights
        assert kind == "prefill" or moved < 1.1 * steps * weights


def test_threads_ask_at_the_same_time():
    """Their requests run together, and each gets its own."""
    with lmnative.Engine("null:vocab=256", threads=1, max_sequences=16) as engine:
        wanted = [engine.submit("x", max_tokens=100, temperature=1, seed=i)._finish().token_ids for i in range(8)]
        problems = []

        def ask(seed: int) -> None:
            for _ in range(10):
                got = engine.submit("x", max_tokens=100, temperature=1, seed=seed)._finish().token_ids
                if got != wanted[seed]:
                    problems.append(seed)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert problems == []


def test_the_null_model():
    with lmnative.LLM("null:vocab=300,context=64", threads=1) as llm:
        assert (llm.info.vocab_size, llm.info.context_length, llm.info.layer_count) == (300, 64, 0)
        assert llm.generate("hello", max_tokens=5).text == "aaaaa"
        assert llm.generate("hello", max_tokens=None).usage.total_tokens == 64
    with lmnative.LLM("null:vocab=10", threads=1) as llm:
        assert llm.generate([1, 2], max_tokens=3).token_ids == [9, 9, 9], "without a tokenizer there are ids"
        with pytest.raises(lmnative.UnsupportedError, match="null:vocab=10.* vocab of 256 or more"):
            llm.generate("hello")
    with pytest.raises(lmnative.InvalidArgumentError, match="vocab"):
        lmnative.Model("null:vocab=0")


def test_the_rate_of_prefill_is_of_computed_tokens():
    with lmnative.LLM("null:vocab=300,token_ns=100000", threads=1) as llm:
        for cached in (0, 96):
            usage = llm.generate([5] * 100, max_tokens=2).usage
            assert usage.cached_tokens == cached
            rate = usage.prefill_tokens_per_second
            assert rate * usage.prefill_seconds == pytest.approx(100 - cached)


def test_the_trace_is_counted_as_memory():
    with lmnative.Engine("null:", threads=1, trace_events=1000) as engine:
        assert engine.memory()["trace"].current == 1024 * 40


@pytest.mark.parametrize("idle_spin", [-1, float("nan"), "x"])
def test_bad_idle_spin(idle_spin):
    with pytest.raises((ValueError, TypeError), match="idle_spin"):
        lmnative.Engine("null:", idle_spin=idle_spin)


def test_a_second_reader_is_refused_and_the_first_goes_on():
    with lmnative.Engine("null:step_ns=20000000", threads=1) as engine:
        request = engine.submit("x", max_tokens=8, ignore_eos=True)
        chunks: list[lmnative.Chunk] = []
        reader = threading.Thread(target=lambda: chunks.extend(request))
        reader.start()
        refused = 0
        while reader.is_alive():
            try:
                taken = request.poll()
                chunks.extend([taken] if taken is not None else [])
            except lmnative.InvalidArgumentError as error:
                assert "another thread" in str(error)
                refused += 1
                time.sleep(0.001)
        reader.join()
    assert refused > 0
    assert sum(len(chunk.token_ids) for chunk in chunks) == 8
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]


def test_a_request_that_was_closed_is_cancelled():
    with lmnative.Engine("null:step_ns=1000000", threads=1) as engine:
        request = engine.submit("x", max_tokens=1000, ignore_eos=True)
        request.next()
        assert request.result().finish_reason is None
        request.close()
        assert request.result().finish_reason == request.stats()["finish_reason"] == "cancelled"
