# SPDX-License-Identifier: Apache-2.0
"""Hostile JSON for every endpoint, and requests that were changed at random: cases as in hostile.py."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hostile import ANY, CHAT, CLOSE, COMPLETION, HALF_CLOSE, VALID, Case, dumps, post

BASES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/embeddings": {"input": "a"},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [97]},
}
MAIN = {
    "/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input", "/tokenize": "content",
    "/detokenize": "tokens",
}  # fmt: skip
FIELDS = {
    "/v1/chat/completions": (
        "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "n",
        "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias", "presence_penalty",
        "frequency_penalty", "repetition_penalty", "ignore_eos", "tools", "tool_choice", "chat_template_kwargs",
        "response_format", "user",
    ),
    "/v1/completions": (
        "model", "prompt", "max_tokens", "temperature", "n", "best_of", "seed", "stop", "stream", "logprobs", "echo",
        "suffix", "logit_bias", "top_k",
    ),
    "/v1/embeddings": ("model", "input", "encoding_format", "dimensions", "user"),
    "/tokenize": ("model", "content", "add_special", "parse_special"),
    "/detokenize": ("model", "tokens"),
}  # fmt: skip
VALUES = (
    b"null", b"true", b"0", b"-1", b"0.5", b"1e308", b"1e400", b"-1e999999999", b"1E+2", b"9223372036854775808",
    b"9" * 400, b"4294967296", b"1e-999", b"-0", b'""', b'"\\u0000"', b'"a\\u0000b"', '"é€😀"'.encode(),
    b'"' + "é".encode() * 200 + b'"', b'"' + b"x" * 300 + b'"', b"[]", b"[[]]", b"[null]", b"[1.5]", b"[1e30]", b"[-1]",
    b'["a",1]', b'[""]', b"{}", b'{"":1}', b'{"type":"x"}', b'{"97":1e99}', b'{"' + "é".encode() * 60 + b'":1}',
    b'["' + "é".encode() * 60 + b'"]', b'[{"role":"user"}]',
    b'[{"role":"user","content":[{"type":"' + "é".encode() * 60 + b'"}]}]', b"[" * 40 + b"]" * 40,
    b"[" + b"0," * 5000 + b"0]", b'["x"' + b',"x"' * 3000 + b"]",
)  # fmt: skip
# Not JSON, as RFC 8259 has it, or not an object.
BROKEN = (
    b"", b" ", b"{", b"}", b"[]", b"1", b'"a"', b"null", b"true", b"{}{}", b"{} x", b'{"a":1,}', b"{,}", b"{a:1}",
    b"{'a':1}",
    b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":5.}', b'{"a":0x10}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e}',
    b'{"a":--1}', b'{"a":tru}', b'{"a":"\n"}', b'{"a":"\0"}', b'{"a":"\x1f"}', b'{"a":"\\x"}', b'{"a":"\\u12"}',
    b'{"a":"\\ud800"}', b'{"a":"\\udc00"}', b'{"a":"\\ud800\\u0041"}', b'{"a":"\\ud800\\ud800"}', b'{"a":"\xff"}',
    b'{"a":"\xc0\x80"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xe2\x82"}', b'{"a":"\xf5\x80\x80\x80"}', b'{"\xff":1}',
    b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"\0", b"{}\0", b'{"a":' + b"[" * 65 + b"]" * 65 + b"}", b"[" * 100000,
    b'{"a":' * 50000, b"/**/{}", b'{"a":1 "b":2}', b'{"a" 1}', b'{"a":1', b'{"a":"b', b"{" + b" " * 10000,
)  # fmt: skip


def bodies() -> Iterator[Case]:
    """Every field with values of every kind, and bodies that are no JSON at all."""
    for path, base in BASES.items():
        for body in BROKEN:
            yield Case(f"{path} {body[:30]!r}", [post(path, body, CLOSE)], {400}, closes=True)
        for field in FIELDS[path]:
            rest = b"".join(b',"%s":%s' % (name.encode(), dumps(v)) for name, v in base.items() if name != field)
            for value in VALUES:
                body = b'{"%s":%s%s}' % (field.encode(), value, rest)
                # 404 is for models, 429 for more than the engine takes at once.
                allowed = {200, 400, 404} if field == "model" else {200, 400, 429}
                yield Case(f"{path} {body[:60]!r}", [post(path, body, CLOSE)], allowed, closes=True)
        twice = b'{"%s":1,"%s":%s}' % (MAIN[path].encode(), MAIN[path].encode(), dumps(base[MAIN[path]]))
        yield Case(f"{path} with a key twice", [post(path, twice, CLOSE)], {200, 400}, closes=True)
        many = b"{" + b"".join(b'"k%d":%d,' % (i, i) for i in range(20000)) + dumps(base)[1:]
        yield Case(f"{path} with many fields", [post(path, many, CLOSE)], {200, 400}, closes=True)
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "\xff",
            "application/json/x",
        ):
            data = post(path, dumps(base), f"Content-Type: {kind}", CLOSE)
            yield Case(f"{path} as {kind}", [data], {415}, closes=True)


def mutated(rng: random.Random, count: int) -> Iterator[Case]:
    """Valid requests with some bytes changed, taken out, put in, doubled or moved, in up to three pieces."""
    special = [
        b"\0",
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b":",
        b"%",
        b'"',
        b"{",
        b"[",
        b"\xff",
        b"\x80",
        b"9" * 20,
    ]
    for i in range(count):
        data = bytearray(b"".join(rng.choice(VALID)[0] for _ in range(rng.choice([1, 1, 2]))))
        for _ in range(rng.randint(1, 4)):
            at, length = rng.randrange(len(data) + 1), rng.randint(1, 12)
            change = rng.randrange(6)
            if change == 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            elif change == 1:
                del data[at : at + length]
            elif change == 2:
                data[at:at] = rng.choice(special)
            elif change == 3:
                data[at:at] = data[at : at + length]
            elif change == 4:
                piece = data[at : at + length]
                del data[at : at + length]
                to = rng.randrange(len(data) + 1)
                data[to:to] = piece
            elif at < len(data):
                data[at] ^= 1 << rng.randrange(8)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(3)))
        pieces = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        # What was valid may now be many small requests, or one that never ends.
        yield Case(f"mutation {i}", [*pieces, HALF_CLOSE], ANY, answers=99, may_be_silent=True)
