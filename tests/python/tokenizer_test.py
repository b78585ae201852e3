# SPDX-License-Identifier: Apache-2.0
"""Tokenizer: ids of 50 strings from another implementation, round trips, streaming, special tokens."""

from __future__ import annotations

import array

import lmnative
import numpy as np
import pytest

STRINGS = range(50)


def test_every_string_is_tested(golden):
    assert len(golden["tokenizer"]) == len(STRINGS)


@pytest.mark.parametrize("index", STRINGS)
def test_ids_equal_the_reference(tokenizer, golden, index):
    case = golden["tokenizer"][index]
    assert tokenizer.encode(case["text"], parse_special=True) == case["ids"]
    assert tokenizer.encode(case["text"]) == case["ids_no_special"]


@pytest.mark.parametrize("index", STRINGS)
def test_decode_gives_the_text_back(tokenizer, golden, index):
    case = golden["tokenizer"][index]
    assert tokenizer.decode(case["ids_no_special"]) == case["text"]
    assert tokenizer.decode(case["ids"]) == case["text"]


@pytest.mark.parametrize("text", ["naïve café 日本語 🙂🙃👩‍👩‍👧", "plain", "", "\0\t\n"])
def test_streaming_decoder_gives_whole_characters(tokenizer, text):
    decoder = tokenizer.decoder()
    pieces = [decoder.decode(token) for token in tokenizer.encode(text)]
    assert all("\ufffd" not in piece for piece in pieces)
    assert "".join(pieces) + decoder.flush() == text


def test_streaming_decoder_ends_an_incomplete_character(tokenizer):
    ids = tokenizer.encode("🙂")
    assert len(ids) > 1, "the test needs a character of several tokens"
    decoder = tokenizer.decoder()
    assert decoder.decode(ids[0]) == ""
    assert decoder.flush() == "\ufffd"
    assert "".join(map(decoder.decode, ids)) == "🙂", "the decoder may be used again"


def test_special_tokens_only_when_asked(tokenizer):
    assert tokenizer.encode("<|im_start|>", parse_special=True) == [1]
    plain = tokenizer.encode("<|im_start|>")
    assert 1 not in plain
    assert tokenizer.decode(plain) == "<|im_start|>"


def test_special_tokens_can_be_left_out_of_the_text(tokenizer):
    ids = tokenizer.encode("<|im_start|>user<|im_end|>", parse_special=True)
    assert tokenizer.decode(ids) == "<|im_start|>user<|im_end|>"
    assert tokenizer.decode(ids, skip_special=True) == "user"
    decoder = tokenizer.decoder(skip_special=True)
    assert "".join(map(decoder.decode, ids)) + decoder.flush() == "user"


def test_facts(tokenizer, llm):
    # From the file's metadata, as another GGUF reader shows them.
    assert (tokenizer.model_type, tokenizer.pre) == ("gpt2", "smollm")
    assert len(tokenizer) == tokenizer.vocab_size == 49152 == llm.info.vocab_size
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (1, 2, 0, 2)
    assert tokenizer.add_bos is False
    assert tokenizer.token_bytes(1) == b"<|im_start|>"
    assert tokenizer.is_control(1) and not tokenizer.is_control(504)
    assert tokenizer.is_end(2) and not tokenizer.is_end(504)
    assert len(tokenizer.vocab) == 49152
    assert tokenizer.vocab[504] == b"The"


def test_bos_and_eos_can_be_added(tokenizer):
    ids = tokenizer.encode("The")
    assert tokenizer.encode("The", add_bos=True, add_eos=True) == [1, *ids, 2]
    assert tokenizer.encode("The", add_bos=False, add_eos=False) == ids


@pytest.mark.parametrize(
    "make",
    [list, tuple, iter, np.array, lambda ids: np.array(ids, "uint16"), lambda ids: array.array("i", ids)],
    ids=["list", "tuple", "iterator", "numpy", "numpy uint16", "array"],
)
def test_decode_takes_any_kind_of_ids(tokenizer, make):
    assert tokenizer.decode(make([504, 3575, 282])) == "The capital of"


def test_bytes_are_text_too(tokenizer):
    assert tokenizer.encode("café".encode()) == tokenizer.encode("café")


def test_outlives_its_llm(model_path):
    tokenizer = lmnative.Tokenizer(lmnative.Model(model_path))
    assert tokenizer.decode(tokenizer.encode("still here")) == "still here"
