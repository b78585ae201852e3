# SPDX-License-Identifier: Apache-2.0
"""generate, stream, chat: results, keywords, batches, life cycle."""

from __future__ import annotations

import math
import threading
import time

import lmnative
import numpy as np
import pytest
from conftest import wait_until

PROMPT = "The capital of France is"


def test_a_completion(llm):
    out = llm.generate(PROMPT, max_tokens=8)
    assert "Paris" in out.text
    assert str(out) == out.text == llm.tokenizer.decode(out.token_ids)
    assert out.finish_reason == "length"
    assert len(out.token_ids) == 8
    assert out.logprobs is None and out.top_logprobs is None and out.logits is None
    assert (out.usage.prompt_tokens, out.usage.completion_tokens, out.usage.total_tokens) == (5, 8, 13)
    assert out.usage.prefill_seconds > 0 and out.usage.decode_seconds > 0 and out.usage.queue_seconds >= 0
    assert out.usage.decode_tokens_per_second == pytest.approx(7 / out.usage.decode_seconds)


def test_text_ids_and_lists_of_both(llm):
    ids = llm.tokenizer.encode(PROMPT)
    wanted = llm.generate(PROMPT, max_tokens=6).token_ids
    assert llm.generate(ids, max_tokens=6).token_ids == wanted
    assert llm.generate(np.array(ids), max_tokens=6).token_ids == wanted
    several = llm.generate([PROMPT, ids, "Once upon a time", tuple(ids)], max_tokens=6)
    assert [out.token_ids == wanted for out in several] == [True, True, False, True]
    assert llm.generate([], max_tokens=6) == []


def test_a_list_longer_than_the_queue(model_path):
    with lmnative.LLM(model_path, threads=2, context_tokens=64, queue_capacity=1) as llm:
        prompts = [f"{number}," for number in range(6)]
        several = llm.generate(prompts, max_tokens=2)
        assert [out.token_ids for out in several] == [llm.generate(p, max_tokens=2).token_ids for p in prompts]


def test_stop_strings_across_tokens(llm):
    whole = llm.generate(PROMPT, max_tokens=24).text
    for start in range(1, len(whole) - 3, 7):
        stop = whole[start : start + 3]
        out = llm.generate(PROMPT, max_tokens=24, stop=["never said", stop])
        assert out.text == whole[: whole.index(stop)]
        assert out.finish_reason == "stop"
        assert "".join(c.text for c in llm.stream(PROMPT, max_tokens=24, stop=stop)) == out.text


def test_stop_tokens(llm):
    ids = llm.generate(PROMPT, max_tokens=8).token_ids
    out = llm.generate(PROMPT, max_tokens=8, stop_token_ids=[ids[3]])
    assert out.finish_reason == "stop"
    assert out.token_ids == ids[: ids.index(ids[3]) + 1]


def test_end_of_generation_and_ignoring_it(llm):
    end = llm.tokenizer.eos_id
    out = llm.generate(PROMPT, max_tokens=4, logit_bias={end: 1000})
    assert out.finish_reason == "stop"
    assert out.text == ""
    out = llm.generate(PROMPT, max_tokens=4, logit_bias={end: 1000}, ignore_eos=True)
    assert out.token_ids == [end] * 4
    assert out.finish_reason == "length"
    kept = llm.generate(PROMPT, max_tokens=2, logit_bias={end: 1000}, ignore_eos=True, keep_special=True)
    assert kept.text == "<|im_end|>" * 2


def test_logit_bias(llm):
    free = llm.generate(PROMPT, max_tokens=1).token_ids[0]
    assert llm.generate(PROMPT, max_tokens=1, logit_bias={free: -math.inf}).token_ids[0] != free
    assert llm.generate(PROMPT, max_tokens=3, logit_bias={504: 1000.0}).token_ids == [504] * 3


def test_logprobs(llm):
    out = llm.generate(PROMPT, max_tokens=5, top_logprobs=3, logits=True)
    logits = out.logits.astype(np.float64)
    wanted = logits - logits.max(axis=1, keepdims=True)
    wanted -= np.log(np.exp(wanted).sum(axis=1, keepdims=True))
    assert len(out.logprobs) == len(out.top_logprobs) == 5
    for row, token, logprob, top in zip(wanted, out.token_ids, out.logprobs, out.top_logprobs, strict=True):
        assert logprob == pytest.approx(row[token], abs=1e-4)
        assert list(top) == list(np.argsort(-row, kind="stable")[:3])
        assert list(top.values()) == pytest.approx([row[t] for t in top], abs=1e-4)
    only_chosen = llm.generate(PROMPT, max_tokens=5, logprobs=True)
    assert only_chosen.logprobs == out.logprobs
    assert only_chosen.top_logprobs == [{}] * 5


def test_sampling_keeps_to_its_limits(llm):
    likeliest = llm.generate(PROMPT, max_tokens=12, ignore_eos=True).token_ids
    for only_one in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        out = llm.generate(PROMPT, max_tokens=12, ignore_eos=True, temperature=1.5, seed=5, **only_one)
        assert out.token_ids == likeliest, only_one


def test_penalties_change_the_answer(llm):
    looping = llm.generate("a a a a a a a a", max_tokens=12, ignore_eos=True).token_ids
    for penalty in ({"repetition_penalty": 5.0}, {"presence_penalty": 50.0}, {"frequency_penalty": 50.0}):
        assert llm.generate("a a a a a a a a", max_tokens=12, ignore_eos=True, **penalty).token_ids != looping, penalty
    answer = llm.generate("a a a a a a a a", max_tokens=40, ignore_eos=True, presence_penalty=100.0).token_ids
    assert len(set(answer)) == 40, "a token that was seen loses 100"
    window = {"repetition_penalty": 5.0, "penalty_last_n": 1}
    assert llm.generate("a b a b a b a b", max_tokens=12, ignore_eos=True, **window).token_ids


def test_stream(llm):
    with llm.stream(PROMPT, max_tokens=8) as stream:
        chunks = list(stream)
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "length"
    assert stream.result().token_ids == llm.generate(PROMPT, max_tokens=8).token_ids
    assert stream.usage.completion_tokens == 8
    assert list(stream) == [], "an ended stream stays ended"


def test_stream_gives_tokens_as_they_come(llm):
    stream = llm.stream(PROMPT, max_tokens=64, ignore_eos=True)
    first = next(stream)
    assert first.finish_reason is None
    assert stream.result().finish_reason is None
    assert 1 <= len(first.token_ids) < 64
    stream.close()


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_leaving_a_stream_cancels_the_request(llm, how):
    assert wait_until(lambda: llm.stats()["running"] == 0)
    before = llm.stats()
    stream = llm.stream(PROMPT, max_tokens=3000, ignore_eos=True)
    next(stream)
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream:
            pass
    else:
        del stream
    assert wait_until(lambda: llm.stats()["cancelled"] == before["cancelled"] + 1)
    assert wait_until(lambda: llm.stats()["kv_pages_used"] == before["kv_pages_used"])
    assert llm.generate(PROMPT, max_tokens=3).token_ids, "the engine goes on"


def test_a_loop_that_breaks_cancels_the_request(llm):
    for _ in llm.stream(PROMPT, max_tokens=3000, ignore_eos=True):
        break
    assert wait_until(lambda: llm.stats()["running"] == 0)


def test_timeout(llm):
    start = time.monotonic()
    out = llm.generate(PROMPT, max_tokens=3000, ignore_eos=True, deadline=0.2)
    assert out.finish_reason == "deadline"
    assert time.monotonic() - start > 0.15
    assert len(out.token_ids) < 3000


def test_token_interval(llm):
    want = llm.generate(PROMPT, max_tokens=4, ignore_eos=True)
    start = time.monotonic()
    out = llm.generate(PROMPT, max_tokens=4, ignore_eos=True, token_interval=0.1)
    assert time.monotonic() - start >= 0.3
    assert out.token_ids == want.token_ids and out.text == want.text


def test_max_tokens_none_goes_to_the_end_of_the_context(model_path):
    with lmnative.LLM(model_path, threads=2, context_tokens=32) as llm:
        out = llm.generate(PROMPT, max_tokens=None, ignore_eos=True)
        assert out.finish_reason == "length"
        assert out.usage.total_tokens == 32


def test_chat(llm):
    messages = [{"role": "user", "content": "What is 2 + 2? Answer with the number."}]
    out = llm.chat(messages, max_tokens=40)
    assert "4" in out.text
    assert out.finish_reason == "stop"
    assert "<|im_" not in out.text
    rendered = llm.tokenizer.apply_chat_template(messages)
    assert llm.generate(rendered, parse_special=True, max_tokens=40).token_ids == out.token_ids
    assert "".join(chunk.text for chunk in llm.chat_stream(messages, max_tokens=40)) == out.text
    assert llm.chat(messages[0]["content"], max_tokens=40).text == out.text


def test_several_threads_share_an_llm(llm):
    prompts = [f"Number {number}:" for number in range(6)]
    wanted = [out.token_ids for out in llm.generate(prompts, max_tokens=6)]
    got: dict[int, list[int]] = {}

    def ask(index: int) -> None:
        got[index] = llm.generate(prompts[index], max_tokens=6).token_ids

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[index] for index in range(6)] == wanted


def test_long_calls_release_the_gil(llm):
    ids = list(range(100, 900))
    count = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    for call in (lambda: llm.score(ids), lambda: llm.generate(ids, max_tokens=1)):
        before = count
        call()
        assert count >= before + 5  # at most 2 if other threads stood still meanwhile
    done.set()
    thread.join()


def test_closing(model_path):
    llm = lmnative.LLM(model_path, threads=1, context_tokens=64)
    stream = llm.stream(PROMPT, max_tokens=50, ignore_eos=True)
    llm.close()
    llm.close()
    assert "closed" in repr(llm)
    with pytest.raises(lmnative.ClosedError, match="closed"):
        llm.generate(PROMPT)
    assert [chunk.finish_reason for chunk in stream][-1] == "cancelled"
    assert llm.info.architecture == "llama", "what the file says stays readable"


def test_closing_from_another_thread_ends_a_generate(model_path):
    llm = lmnative.LLM(model_path, threads=2, context_tokens=4096)
    threading.Timer(0.3, llm.close).start()
    with pytest.raises(lmnative.CancelledError):
        llm.generate(PROMPT, max_tokens=4000, ignore_eos=True)


def test_memory(llm):
    llm.generate(PROMPT, max_tokens=2)
    memory = llm.memory()
    assert {"mapped", "packed_weights", "kv", "arena"} <= set(memory)
    assert all(0 <= use.current <= use.peak for use in memory.values())
    assert memory["mapped"].current == llm.info.file_bytes
    # Keys and values of 30 layers, 3 heads of 64, for 4096 tokens, in 2 or 4 bytes a number.
    numbers = 2 * 30 * 3 * 64 * 4096
    assert numbers * 2 <= memory["kv"].current <= numbers * 4 * 1.1


def test_stats(llm):
    before = llm.stats()
    llm.generate(PROMPT, max_tokens=3)
    after = llm.stats()
    assert after["threads"] == 2 and after["context_tokens"] == 4096
    assert after["submitted"] == before["submitted"] + 1
    assert after["finished"] == before["finished"] + 1
    assert after["prompt_tokens"] == before["prompt_tokens"] + 5
    assert after["generated_tokens"] == before["generated_tokens"] + 3
    assert after["waiting"] == after["running"] == 0
    assert after["load_ns"] > 0
    assert after["layers"] == after["device_layers"] == 30


def test_options_of_the_llm(model_path):
    model = lmnative.Model(model_path, read_mode="copy")
    seen = []
    with lmnative.LLM(
        model,
        threads=1,
        context_tokens=128,
        kv_tokens=256,
        progress=lambda what, done, total: seen.append((what, done, total)),
    ) as llm:
        assert llm.model is model
        assert llm.stats()["context_tokens"] == 128
        assert llm.generate(PROMPT, max_tokens=2).token_ids
    what, done, total = seen[-1]
    assert isinstance(what, str) and done == total > 0
    for read_mode in ("map", "populate"):
        with lmnative.LLM(model_path, threads=1, context_tokens=64, read_mode=read_mode) as llm:
            assert llm.generate(PROMPT, max_tokens=2).token_ids
