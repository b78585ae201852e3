# SPDX-License-Identifier: Apache-2.0
"""The model's numbers against a float32 reference over the dequantised weights, through the public API: as it is by
default, and with inputs of 16 bits, which is nearly exact."""

from __future__ import annotations

import math

import lmnative
import numpy as np
import pytest

TOP_RMS = 0.12  # of the top-20 logits without their common offset; llama.cpp deviates by 0.06 to 0.14
TOP_MAX = 0.35
MARGIN = 0.35  # between the reference's two likeliest tokens: below it, either is right
PERPLEXITY = 0.005  # relative
PRECISE_RMS, PRECISE_MAX, PRECISE_PERPLEXITY = 0.003, 0.01, 2e-4  # the same with activation_bits=16
PROMPTS = range(10)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_every_prompt_is_tested(golden):
    assert len(golden["prompts"]) == len(PROMPTS)


@pytest.fixture(scope="module")
def precise_llm(model_path):
    with lmnative.LLM(model_path, threads=2, context_tokens=2048, activation_bits=16) as llm:
        yield llm


def top_deviation(llm, prompt) -> tuple[float, float]:
    """Of the top-20 logits without their common offset: root mean square, and the largest."""
    logits = np.from_dlpack(llm.score(prompt["ids"]))[-1]
    difference = logits[prompt["top20_ids"]] - np.array(prompt["top20_logits"])
    difference -= difference.mean()
    return float(np.sqrt((difference**2).mean())), float(np.abs(difference).max())


def perplexity_of(llm, ids) -> float:
    logprobs = log_softmax(np.from_dlpack(llm.score(ids)))
    return math.exp(-logprobs[np.arange(len(ids) - 1), ids[1:]].mean())


@pytest.mark.parametrize("index", PROMPTS)
def test_top_logits(llm, precise_llm, golden, note, index):
    prompt = golden["prompts"][index]
    (rms, largest), (precise_rms, precise_largest) = (top_deviation(one, prompt) for one in (llm, precise_llm))
    note(f"top-20 logits of prompt {index}: RMS {rms:.4f}, at most {largest:.4f}; 16 bits: RMS {precise_rms:.4f}")
    assert rms <= TOP_RMS
    assert largest <= TOP_MAX
    assert precise_rms <= PRECISE_RMS
    assert precise_largest <= PRECISE_MAX


@pytest.mark.parametrize("index", PROMPTS)
def test_greedy_tokens(llm, golden, index):
    prompt = golden["prompts"][index]
    wanted, margins = prompt["greedy_ids"], prompt["greedy_margins"]
    certain = next((i for i, margin in enumerate(margins) if margin < MARGIN), len(wanted))
    out = llm.generate(prompt["ids"], max_tokens=len(wanted), temperature=0, ignore_eos=True)
    assert out.token_ids[:certain] == wanted[:certain]


def test_greedy_choices_along_the_reference(llm, golden, note):
    # Past the first uncertain place, too: after the reference's own tokens, every choice it is sure of must be ours.
    compared = 0
    for prompt in golden["prompts"]:
        wanted = np.array(prompt["greedy_ids"])
        logits = np.from_dlpack(llm.score(prompt["ids"] + prompt["greedy_ids"]))[len(prompt["ids"]) - 1 : -1]
        margins = np.array(prompt["greedy_margins"])
        certain = np.flatnonzero(margins >= MARGIN)
        assert logits.argmax(axis=-1)[certain].tolist() == wanted[certain].tolist()
        compared += len(certain)
    note(f"greedy choices along the reference: {compared} compared")
    assert compared >= 200


def test_prompt_likelihood(llm, golden):
    # Total over all prompts: single ones are short, and their rounding errors do not average out.
    ours = reference = 0.0
    for prompt in golden["prompts"]:
        ids = np.array(prompt["ids"])
        logprobs = log_softmax(np.from_dlpack(llm.score(ids)))
        ours -= logprobs[np.arange(len(ids) - 1), ids[1:]].sum()
        reference += prompt["prompt_nll"]
    assert ours == pytest.approx(reference, rel=0.01)


def test_perplexity(llm, precise_llm, golden, note):
    document = golden["document"]
    ids = np.array(document["first_1024_ids"])
    perplexity, precise = perplexity_of(llm, ids), perplexity_of(precise_llm, ids)
    note(f"perplexity {perplexity:.4f}; 16 bits: {precise:.4f}; of the reference {document['perplexity']:.4f}")
    assert perplexity == pytest.approx(document["perplexity"], rel=PERPLEXITY)
    assert precise == pytest.approx(document["perplexity"], rel=PRECISE_PERPLEXITY)
