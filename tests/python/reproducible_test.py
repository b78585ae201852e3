# SPDX-License-Identifier: Apache-2.0
"""Same request, same tokens: equality bit for bit, across chunks, threads, and ways to ask."""

from __future__ import annotations

import lmnative
import numpy as np
import pytest

TEXT = (
    "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. Every "
    "evening its keeper climbed the 217 stairs, counted them — „zweihundertsiebzehn“ — and wrote the number down. "
) * 2


@pytest.fixture(scope="module")
def ids(tokenizer):
    return tokenizer.encode(TEXT)


@pytest.fixture(scope="module")
def reference(llm, ids):
    return np.array(llm.score(ids))


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), f"differs by up to {np.abs(got - want).max()}"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_score_for_any_thread_count_and_chunk(model_path, ids, reference, threads):
    with lmnative.LLM(model_path, threads=threads, context_tokens=512) as llm:
        for chunk in (1, 7, 64, 512, None):
            assert_same_bits(np.from_dlpack(llm.score(ids, chunk_tokens=chunk)), reference)


@pytest.mark.parametrize("prefill_chunk", [1, 5, 4096])
def test_score_for_any_prefill_chunk_of_the_llm(model_path, ids, reference, prefill_chunk):
    with lmnative.LLM(model_path, threads=2, context_tokens=512, prefill_chunk_tokens=prefill_chunk) as llm:
        assert_same_bits(np.from_dlpack(llm.score(ids)), reference)


def test_score_with_16_bit_activations(model_path, ids):
    # Near those with 8 bits and not equal to them; and as exact as they over threads and chunks.
    first = None
    for threads in (1, 2, 3):
        with lmnative.LLM(model_path, threads=threads, context_tokens=512, activation_bits=16) as llm:
            for chunk in (1, 7, None):
                logits = np.from_dlpack(llm.score(ids, chunk_tokens=chunk))
                first = logits.copy() if first is None else first
                assert_same_bits(logits, first)
    with lmnative.LLM(model_path, threads=2, context_tokens=512, activation_bits=8) as llm:
        difference = first - np.from_dlpack(llm.score(ids))
    difference -= difference.mean(axis=-1, keepdims=True)
    assert 0.01 < float(np.sqrt((difference**2).mean())) < 0.3


def test_a_prefix_scores_the_same(llm, ids, reference):
    for length in (1, 2, 63, 64, 65):
        assert_same_bits(np.from_dlpack(llm.score(ids[:length])), reference[:length])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_generating_equals_scoring(model_path, ids, threads):
    prompt = ids[:40]
    with lmnative.LLM(model_path, threads=threads, context_tokens=512) as llm:
        out = llm.generate(prompt, max_tokens=24, logits=True, ignore_eos=True)
        scored = np.from_dlpack(llm.score(prompt + out.token_ids))
    assert out.logits.shape == (24, llm.info.vocab_size)
    assert_same_bits(out.logits, scored[len(prompt) - 1 : -1])


def test_sampling_is_the_same_for_any_thread_count(model_path, ids):
    answers = []
    for threads in (1, 2, 3):
        with lmnative.LLM(model_path, threads=threads, context_tokens=512, prefill_chunk_tokens=threads * 11) as llm:
            answers.append(llm.generate(ids[:30], max_tokens=32, temperature=1.1, top_p=0.95, seed=11).token_ids)
    assert answers[0] == answers[1] == answers[2]


def test_same_seed_same_tokens(llm, ids):
    prompt = ids[:30]
    first = llm.generate(prompt, max_tokens=24, temperature=1.5, ignore_eos=True)
    again = llm.generate(prompt, max_tokens=24, temperature=1.5, ignore_eos=True, seed=first.seed)
    other = llm.generate(prompt, max_tokens=24, temperature=1.5, ignore_eos=True, seed=first.seed ^ 1)
    assert again.token_ids == first.token_ids
    assert other.token_ids != first.token_ids


def test_streaming_gives_the_same_tokens(llm, ids):
    whole = llm.generate(ids[:30], max_tokens=24, temperature=0.9, seed=3)
    chunks = list(llm.stream(ids[:30], max_tokens=24, temperature=0.9, seed=3))
    assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
    assert "".join(chunk.text for chunk in chunks) == whole.text


def test_requests_at_once_and_preempted(model_path, ids):
    prompts = [ids[i : i + 24 + 7 * i] for i in range(4)]
    options = {"max_tokens": 40, "ignore_eos": True}
    with lmnative.LLM(model_path, threads=2, context_tokens=128) as llm:
        alone = [llm.generate(prompt, **options).token_ids for prompt in prompts]
    with lmnative.LLM(model_path, threads=2, context_tokens=128, kv_tokens=1024) as llm:
        assert [answer.token_ids for answer in llm.generate(prompts, **options)] == alone
    with lmnative.LLM(model_path, threads=2, context_tokens=96, kv_tokens=96, prefix_cache=False) as llm:
        first = llm.stream(prompts[0], **options)
        tokens = list(next(first).token_ids)  # it has begun
        assert llm.generate(prompts[1], priority=2, **options).token_ids == alone[1]
        for chunk in first:
            tokens += chunk.token_ids
        assert tokens == alone[0]
        assert llm.engine.stats()["preemptions"] > 0
