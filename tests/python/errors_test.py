# SPDX-License-Identifier: Apache-2.0
"""Bad input: the type of the exception, and a message that names the input. The process and the LLM live on."""

from __future__ import annotations

import math

import lmnative
import numpy as np
import pytest
from conftest import wait_until

OK = "The"
NAN = math.nan
USER = [{"role": "user", "content": "x"}]

# name, call, exception, what the message holds
REQUESTS = [
    ("negative temperature", lambda m: m.generate(OK, temperature=-1), ValueError, "temperature"),
    ("NaN temperature", lambda m: m.generate(OK, temperature=NAN), ValueError, "temperature"),
    ("infinite temperature", lambda m: m.generate(OK, temperature=math.inf), ValueError, "temperature"),
    ("temperature of text", lambda m: m.generate(OK, temperature="hot"), TypeError, "temperature"),
    ("negative top_k", lambda m: m.generate(OK, top_k=-1), ValueError, "top_k"),
    ("top_k beyond 32 bits", lambda m: m.generate(OK, top_k=2**40), ValueError, "top_k"),
    ("top_p 0", lambda m: m.generate(OK, top_p=0), ValueError, "top_p"),
    ("top_p above 1", lambda m: m.generate(OK, top_p=1.5), ValueError, "top_p"),
    ("NaN top_p", lambda m: m.generate(OK, top_p=NAN), ValueError, "top_p"),
    ("negative min_p", lambda m: m.generate(OK, min_p=-0.1), ValueError, "min_p"),
    ("repetition_penalty 0", lambda m: m.generate(OK, repetition_penalty=0), ValueError, "repetition_penalty"),
    ("NaN presence_penalty", lambda m: m.generate(OK, presence_penalty=NAN), ValueError, "presence_penalty"),
    ("frequency_penalty 101", lambda m: m.generate(OK, frequency_penalty=101), ValueError, "frequency_penalty"),
    ("penalty_last_n 0", lambda m: m.generate(OK, penalty_last_n=0), ValueError, "penalty_last_n"),
    ("max_tokens 0", lambda m: m.generate(OK, max_tokens=0), ValueError, "max_tokens"),
    ("negative max_tokens", lambda m: m.generate(OK, max_tokens=-5), ValueError, "max_tokens"),
    ("max_tokens 1.5", lambda m: m.generate(OK, max_tokens=1.5), TypeError, "max_tokens"),
    ("negative seed", lambda m: m.generate(OK, seed=-1), ValueError, "seed"),
    ("seed beyond 64 bits", lambda m: m.generate(OK, seed=2**64), ValueError, "seed"),
    ("top_logprobs 65", lambda m: m.generate(OK, top_logprobs=65), ValueError, "top_logprobs"),
    ("logprobs of a number", lambda m: m.generate(OK, logprobs=5), TypeError, "top_logprobs"),
    ("priority 3", lambda m: m.generate(OK, priority=3), ValueError, "priority"),
    ("deadline 0", lambda m: m.generate(OK, deadline=0), ValueError, "deadline"),
    ("token_interval 0", lambda m: m.generate(OK, token_interval=0), ValueError, "token_interval"),
    ("empty stop string", lambda m: m.generate(OK, stop=""), ValueError, "stop"),
    ("stop of the wrong type", lambda m: m.generate(OK, stop=[1]), TypeError, "stop"),
    ("stop token out of range", lambda m: m.generate(OK, stop_token_ids=[49152]), ValueError, "49152"),
    ("bias of a token out of range", lambda m: m.generate(OK, logit_bias={49152: 1}), ValueError, "49152"),
    ("biases that are no mapping", lambda m: m.generate(OK, logit_bias=[1, 2]), TypeError, "logit_bias"),
    ("stop of no text", lambda m: m.generate(OK, stop=5), TypeError, "stop"),
    ("no ids", lambda m: m.generate([[]]), ValueError, "no tokens"),
    ("top_p that is 0 in float32", lambda m: m.generate(OK, top_p=1e-40), ValueError, "top_p"),
    ("ids of objects", lambda m: m.generate(np.array([1, "a"], object)), TypeError, "must be integers"),
    ("NaN bias", lambda m: m.generate(OK, logit_bias={5: NAN}), ValueError, "bias"),
    ("bool for a number", lambda m: m.generate(OK, max_tokens=True), TypeError, "max_tokens"),
    ("bool for a fraction", lambda m: m.generate(OK, temperature=True), TypeError, "temperature"),
    ("bool of numpy", lambda m: m.generate(OK, top_p=np.True_), TypeError, "top_p"),
    ("no answer", lambda m: m.generate(OK, n=0), ValueError, "n is 0"),
    ("too many answers", lambda m: m.generate(OK, n=65), ValueError, "n is 65"),
    ("negative tenant", lambda m: m.generate(OK, tenant=-1), ValueError, "tenant"),
    ("unknown keyword", lambda m: m.generate(OK, temprature=1), TypeError, "temprature"),
    ("empty text", lambda m: m.generate(""), ValueError, "prompt"),
    ("lone surrogate", lambda m: m.generate("ab\ud800"), ValueError, "surrogate at character 2"),
    ("ill-formed bytes", lambda m: m.generate(b"ab\xff"), ValueError, "offset 2"),
    ("id out of range", lambda m: m.generate([504, 49152]), ValueError, "49152"),
    ("negative id", lambda m: m.generate([-1]), ValueError, "-1"),
    ("id beyond 64 bits", lambda m: m.generate([2**70]), ValueError, "position 0"),
    ("id of 20000 bits", lambda m: m.generate([1 << 20000]), ValueError, "token id of 20001 bits at position 0"),
    ("top_k of 20000 bits", lambda m: m.generate(OK, top_k=1 << 20000), ValueError, "top_k is an integer of 20001"),
    (
        "temperature beyond floats",
        lambda m: m.generate(OK, temperature=10**400),
        ValueError,
        "temperature is an integer",
    ),
    ("bias beyond floats", lambda m: m.generate(OK, logit_bias={1: 10**400}), ValueError, "logit_bias is an integer"),
    ("id beyond 32 bits", lambda m: m.generate(np.array([5, 2**40])), ValueError, "position 1"),
    ("fractional id", lambda m: m.generate([1.5]), TypeError, "item 0 is float"),
    ("fractional ids of numpy", lambda m: m.generate(np.zeros(3)), TypeError, "integers"),
    ("ids in two dimensions", lambda m: m.generate(np.zeros((2, 3), int)), TypeError, "one dimension"),
    ("id beyond 63 bits", lambda m: m.generate(np.array([5, 2**63 + 9], np.uint64)), ValueError, str(2**63 + 9)),
    ("bytearray as prompt", lambda m: m.generate(bytearray(b"text")), TypeError, "prompt must be text"),
    ("memoryview as prompt", lambda m: m.generate(memoryview(b"text")), TypeError, "prompt must be text"),
    ("mapping as prompt", lambda m: m.generate({504: 1}), TypeError, "prompt must be text"),
    ("set as prompt", lambda m: m.generate({504}), TypeError, "prompt must be text"),
    ("set among prompts", lambda m: m.generate([OK, {504}]), TypeError, "prompt must be text"),
    ("set as ids", lambda m: m.score({504}), TypeError, "ids must be token ids"),
    ("bytes as ids", lambda m: m.tokenizer.decode(b"text"), TypeError, "token ids"),
    ("number as prompt", lambda m: m.generate(7), TypeError, "int"),
    ("None as prompt", lambda m: m.generate(None), TypeError, "NoneType"),
    ("one bad prompt of several", lambda m: m.generate([OK, [49152]]), ValueError, "49152"),
    ("prompt longer than the context", lambda m: m.generate([504] * 5000), ValueError, "the context 4096"),
    ("keyword in the message", lambda m: m.generate([504] * 5000), ValueError, "raise context_tokens"),
    ("score of nothing", lambda m: m.score([]), ValueError, "no tokens"),
    ("score of an id out of range", lambda m: m.score([49152]), ValueError, "49152"),
    ("score of too many", lambda m: m.score([504] * 5000), ValueError, "4096"),
    ("score in chunks of 0", lambda m: m.score([504], chunk_tokens=0), ValueError, "chunk_tokens"),
    ("message without role", lambda m: m.chat([{"content": "x"}]), TypeError, "role"),
    ("message without content", lambda m: m.chat([{"role": "user"}]), TypeError, "content"),
    ("message that is no mapping", lambda m: m.chat(["x"]), TypeError, "message 0"),
    ("one message as messages", lambda m: m.chat(USER[0]), TypeError, "a list of messages"),
    ("bytes as messages", lambda m: m.chat(b"x"), TypeError, "a list of messages"),
    ("number as messages", lambda m: m.chat(5), TypeError, "a list of messages"),
    ("token id out of range", lambda m: m.tokenizer.decode([49152]), ValueError, "49152"),
    ("vocabulary out of range", lambda m: m.tokenizer.token_bytes(-1), ValueError, "-1"),
    ("text that is none", lambda m: m.tokenizer.encode(5), TypeError, "text must be str"),
]


@pytest.mark.parametrize(("call", "error", "message"), [case[1:] for case in REQUESTS], ids=[c[0] for c in REQUESTS])
def test_requests(llm, call, error, message):
    with pytest.raises(error) as caught:
        call(llm)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and "lmn_" not in str(caught.value)
    if error is ValueError:
        assert isinstance(caught.value, lmnative.InvalidArgumentError)
        assert (caught.value.status, caught.value.status_name) == (1, "LMN_INVALID_ARGUMENT")
    assert wait_until(lambda: llm.stats()["running"] == 0)


ENGINES = [
    ("zero threads", {"threads": 0}, "threads"),
    ("negative threads", {"threads": -2}, "threads"),
    ("too many threads", {"threads": 5000}, "threads"),
    ("zero context", {"context_tokens": 0}, "context_tokens"),
    ("zero KV tokens", {"kv_tokens": 0}, "kv_tokens"),
    ("zero prefill chunk", {"prefill_chunk_tokens": 0}, "prefill_chunk_tokens"),
    ("prefill chunk too large", {"prefill_chunk_tokens": 5000}, "prefill_chunk_tokens"),
    ("unknown KV type", {"kv_type": "q9"}, "kv_type is 'q9', must be one of 'f16', 'f32', 'q8_0'"),
    ("unknown read mode", {"read_mode": "telepathy"}, "telepathy"),
]


@pytest.mark.parametrize(("options", "message"), [case[1:] for case in ENGINES], ids=[case[0] for case in ENGINES])
def test_options_of_the_llm(model_path, options, message):
    with pytest.raises(lmnative.InvalidArgumentError, match=message):
        lmnative.LLM(model_path, **options)


def test_kv_cache_that_does_not_fit_in_memory(model_path):
    with pytest.raises((lmnative.OutOfMemoryError, lmnative.InvalidArgumentError), match=r"\d"):
        lmnative.LLM(model_path, threads=1, kv_tokens=2**32 - 1)


def write(path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_files(tmp_path, model_path):
    with open(model_path, "rb") as file:
        head = file.read(100_000)
    cases = [
        (str(tmp_path / "absent.gguf"), lmnative.NotFoundError, "absent.gguf"),
        (str(tmp_path), lmnative.Error, "directory"),
        (write(tmp_path / "empty.gguf", b""), lmnative.CorruptError, "empty.gguf"),
        (write(tmp_path / "magic.gguf", b"GGML" + head[4:]), lmnative.CorruptError, "magic.gguf"),
        (write(tmp_path / "version.gguf", head[:4] + b"\x63\0\0\0" + head[8:]), lmnative.Error, "version.gguf"),
        (write(tmp_path / "cut.gguf", head), lmnative.CorruptError, "cut.gguf"),
        ("with\0nul.gguf", lmnative.InvalidArgumentError, "NUL"),
    ]
    for path, error, message in cases:
        for open_it in (lmnative.Model, lmnative.LLM):
            with pytest.raises(error) as caught:
                open_it(path)
            assert message in str(caught.value), path


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        lmnative.Model(tmp_path / "absent.gguf")
    assert isinstance(caught.value, lmnative.Error)
    assert caught.value.status_name == "LMN_NOT_FOUND"


def test_an_unreadable_path_is_an_os_error(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with pytest.raises(OSError):
        lmnative.Model(file / "below.gguf")


def test_every_status_has_a_class():
    from lmnative import _lmnative, errors

    for status in range(1, 13):
        name = _lmnative.status_name(status)
        if name == "LMN_BUFFER_TOO_SMALL":  # the bindings size their buffers
            continue
        error = errors.from_status(status, "why")
        assert (error.status, error.status_name, str(error)) == (status, name, "why")
        assert isinstance(error, lmnative.Error)


def test_progress_that_raises_stops_the_load(model_path):
    def report(what, done, total):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        lmnative.LLM(model_path, threads=1, context_tokens=64, progress=report)


def test_a_child_after_fork_gets_an_error(llm):
    import os

    read, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            llm.generate(OK, max_tokens=1)
            os.write(write_end, b"answered")
        except BaseException as error:
            os.write(write_end, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"ClosedError"
    os.waitpid(child, 0)
    assert llm.generate(OK, max_tokens=1).token_ids
