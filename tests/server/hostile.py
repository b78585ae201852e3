# SPDX-License-Identifier: Apache-2.0
"""What hostile and broken clients send, with the statuses that may come back: thousands of cases from a seed.

A case is a list of steps and the statuses that each answer may have; none at all is right where the client leaves
early (`may_be_silent`). Which statuses are right follows from RFC 9110 and 9112; a section of the latter is named where
it is not plain. A request line that has no "HTTP/1.1" where it belongs may be called malformed (400) or of an unknown
version (505).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Iterator

HALF_CLOSE, RESET, READ = object(), object(), object()
"""Steps beside bytes: end of our side; an abort with an RST; wait for the answer's first byte."""

REFUSED = {400}
ANY = {200, 204, 400, 403, 404, 405, 408, 413, 415, 417, 429, 431, 501, 505}
"""What a request that was changed at random may get: anything but a fault of the server (500, 503)."""


@dataclasses.dataclass
class Case:
    name: str
    steps: list
    allowed: set[int]
    answers: int = 1
    """At most so many; more would be an answer to something that is not a request."""
    may_be_silent: bool = False
    closes: bool = False
    """The server closes by itself."""


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, "Host: x", *fields, "", ""]).encode("latin-1")


def post(path: str, body: bytes, *fields: str) -> bytes:
    return head(f"POST {path} HTTP/1.1", *fields, f"Content-Length: {len(body)}") + body


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


CLOSE = "Connection: close"
TOKENIZE = b'{"content":"a"}'
CHUNKS = chunked(TOKENIZE)
SMUGGLED = head("GET /smuggled HTTP/1.1")
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
COMPLETION = {"prompt": "hi", "max_tokens": 2}


def dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


VALID = [
    (head("GET /health HTTP/1.1", CLOSE), 200),
    (head("GET /v1/models/null HTTP/1.1", CLOSE), 200),
    (head("HEAD /version HTTP/1.1", CLOSE), 200),
    (head("GET /nothing HTTP/1.1", CLOSE), 404),
    (head("OPTIONS /tokenize HTTP/1.1", "Access-Control-Request-Method: POST", CLOSE), 204),
    (post("/tokenize", TOKENIZE, CLOSE), 200),
    (head("POST /tokenize HTTP/1.1", "Transfer-Encoding: chunked", CLOSE) + CHUNKS, 200),
    (post("/detokenize", b'{"tokens":[97,98]}', CLOSE), 200),
    (post("/v1/completions", dumps(COMPLETION), CLOSE), 200),
    (post("/v1/completions", dumps({**COMPLETION, "stream": True}), CLOSE), 200),
    (post("/v1/chat/completions", dumps(CHAT), CLOSE), 400),  # the null model has no template
    (post("/v1/chat/completions", dumps({**CHAT, "stream": True}), CLOSE), 400),
    (post("/v1/embeddings", b'{"input":"a"}', CLOSE), 400),
]


def splits() -> Iterator[Case]:
    """Every valid request in two writes, cut at every byte; and two of them in a row."""
    for data, status in VALID:
        name = data.split(b"\r\n", 1)[0].decode()
        for at in range(1, len(data)):
            yield Case(f"{name} cut at {at}", [data[:at], data[at:]], {status}, closes=True)
    for (first, one), (second, two) in itertools.pairwise(VALID):
        both = first.replace(b"Connection: close\r\n", b"") + second
        for at in range(1, len(both), 5):
            yield Case(f"two requests cut at {at}", [both[:at], both[at:]], {one, two}, answers=2, closes=True)
        # Nothing that follows the last request is answered (RFC 9112, 9.6).
        yield Case("a request behind the last one", [first + second], {one}, closes=True)


def framing() -> Iterator[Case]:
    """Bodies whose length could be read in two ways, and other ways to hide a request in another one."""

    def case(name: str, data: bytes, *allowed: int) -> Case:
        return Case(name, [data + SMUGGLED], set(allowed), closes=True)

    line = "POST /tokenize HTTP/1.1"
    lengths = ("Content-Length", "content-length", "CONTENT-LENGTH")
    codings = ("Transfer-Encoding", "transfer-encoding", "TRANSFER-ENCODING")
    values = (
        "chunked", "Chunked", "chunked ", "\tchunked", "xchunked", "chunked, identity", "identity, chunked", "identity",
        '"chunked"', "chunked;q=1", "", ",", "chunked,chunked", "\x0bchunked",
    )  # fmt: skip
    for length, coding, value, size in itertools.product(lengths, codings, values, ("0", "15", "31")):
        for pair in itertools.permutations([f"{length}: {size}", f"{coding}: {value}"]):
            yield case("both lengths", head(line, *pair) + CHUNKS, 400, 501)
    for value in values[4:]:
        yield case(f"coding {value!r}", head(line, f"Transfer-Encoding: {value}", CLOSE) + CHUNKS, 400, 501)
    for value in values[:4]:
        yield case(f"coding {value!r}", head(line, f"Transfer-Encoding: {value}", CLOSE) + CHUNKS, 200)
    for one, two in itertools.product(codings, codings):
        yield case("coding twice", head(line, f"{one}: chunked", f"{two}: chunked") + CHUNKS, 400)
    yield case("coding in 1.0", head("POST /tokenize HTTP/1.0", "Transfer-Encoding: chunked") + CHUNKS, 400)
    for one, two, size in itertools.product(lengths, lengths, ("0", "15", "16")):
        yield case("length twice", head(line, f"{one}: 15", f"{two}: {size}") + TOKENIZE, 400)
    for value in (
        "", "-1", "+15", "1 5", "15, 15", "15,", "0x0f", "15a", "1e1", "15.0", "\u0661", "18446744073709551616",
        "9" * 40, "-9223372036854775808", "\x0015", "15\x00", "15;", "'15'",
    ):  # fmt: skip
        data = f"{line}\r\nHost: x\r\nContent-Length: {value}\r\n\r\n".encode()
        yield case(f"length {value!r}", data + TOKENIZE, 400, 413)
    for colon in (" :", "\t:", " \t :", ":\r\n ", "\r\n:"):
        for name, value in (("Content-Length", "15"), ("Transfer-Encoding", "chunked")):
            data = f"{line}\r\nHost: x\r\n{name}{colon}{value}\r\n{CLOSE}\r\n\r\n".encode()
            # A folded line may be read as one (5.2); space before a colon may not (5.1).
            yield case(
                f"{name}{colon!r}", data + (TOKENIZE if value == "15" else CHUNKS), 400, *[200][: "\n " in colon]
            )
    for space in ("", " ", "\t", " \t "):
        yield case(f"space {space!r}", head(line, f"Content-Length:{space}15{space}", CLOSE) + TOKENIZE, 200)
    sizes = {
        "g": REFUSED, "-1": REFUSED, "+f": REFUSED, "0xf": REFUSED, "": REFUSED, " f": REFUSED, "f,": REFUSED,
        "f ": {200, 400}, "f\t": {200, 400}, "f;": {200, 400}, "f;a": {200}, 'f;a="b;c"': {200}, "f ;a": {200, 400},
        "f\0": REFUSED,
        "F" * 17: {400, 413}, "7fffffffffffffff": {400, 413}, "ffffffffffffffff": {400, 413}, "00000000000f": {200},
        "e": REFUSED, "10": REFUSED, "f;" + "x" * 20000: {200, 400, 431}, "f\n": REFUSED, "f;a\rb": REFUSED,
    }  # fmt: skip
    for size, allowed in sizes.items():
        data = head(line, "Transfer-Encoding: chunked", CLOSE) + size.encode() + b"\r\n" + TOKENIZE + b"\r\n0\r\n\r\n"
        yield case(f"chunk size {size[:20]!r}", data, *allowed)
    for end in (b"\n", b"\r", b"", b"x", b"\r\r\n", b"\n\n"):
        data = head(line, "Transfer-Encoding: chunked", CLOSE) + b"f\r\n" + TOKENIZE + end + b"0\r\n\r\n"
        yield case(f"chunk end {end!r}", data, 400)
    for trailer in (
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "Host: y",
        "X-Priority: 9",
        "A: b",
        "bad name: x",
    ):
        data = head(line, "Transfer-Encoding: chunked", CLOSE) + CHUNKS[:-2] + trailer.encode() + b"\r\n\r\n"
        yield case(f"trailer {trailer}", data, 200, 400)


def headers() -> Iterator[Case]:
    """Request lines and fields."""

    def case(name: str, data: bytes, *allowed: int) -> Case:
        return Case(name, [data], set(allowed), closes=True)

    get = "GET /health HTTP/1.1"
    for name, data, *allowed in [
        ("no host", b"GET /health HTTP/1.1\r\n\r\n", 400),
        ("no host in 1.0", b"GET /health HTTP/1.0\r\n\r\n", 200),
        ("two hosts", head(get, "Host: x"), 400),
        ("two hosts, other spelling", head(get, "hOST: y"), 400),
        ("absolute form", head("GET http://x/health HTTP/1.1", CLOSE), 200),
        ("absolute form, other host", head("GET http://y/health HTTP/1.1", CLOSE), 200, 400),
        ("absolute form without path", head("GET http://x HTTP/1.1", CLOSE), 200),
        ("no form", head("GET health HTTP/1.1", CLOSE), 400, 404),
        ("authority form", head("CONNECT x:80 HTTP/1.1", CLOSE), 400, 404, 405, 501),
        ("asterisk form", head("OPTIONS * HTTP/1.1", CLOSE), 200, 204, 404, 405),
        ("TRACE", head("TRACE /health HTTP/1.1", CLOSE), 405, 501),
        ("0.9", b"GET /health\r\n", 400),
        ("0.9 said", head("GET /health HTTP/0.9"), 400, 505),
        ("1.2", head("GET /health HTTP/1.2"), 400, 505),
        ("2.0", head("GET /health HTTP/2.0"), 400, 505),
        ("2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 400, 505),
        ("TLS", bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(range(256)) * 2, 400),
        ("SSH", b"SSH-2.0-OpenSSH_9.0\r\n\r\n", 400),
        ("lower case", head("GET /health http/1.1"), 400, 505),
        ("two spaces", head("GET  /health HTTP/1.1"), 400),
        ("a tab", head("GET\t/health HTTP/1.1"), 400),
        ("no target", head("GET HTTP/1.1"), 400),
        ("space behind", head("GET /health HTTP/1.1 ", CLOSE), 400, 505),
        ("space in the target", head("GET /hea lth HTTP/1.1"), 400, 505),
        ("bare LF", b"GET /health HTTP/1.1\nHost: x\nConnection: close\n\n", 200, 400, 505),
        ("bare LF within", b"GET /health HTTP/1.1\r\nHost: x\nA: b\r\nConnection: close\r\n\r\n", 200, 400),
        ("bare CR", b"GET /health HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400),
        ("a space before the first field", b"GET /health HTTP/1.1\r\n Host: x\r\n\r\n", 400),
        ("empty name", head(get, ": x"), 400),
        ("no colon", head(get, "x"), 400),
        ("empty lines before", b"\r\n\r\n\r\n" + head(get, CLOSE), 200),
        ("many empty lines before", b"\r\n" * 50000 + head(get, CLOSE), 200),
        ("folded", head(get, "A: b\r\n c", CLOSE), 200, 400),
        ("expects something", head(get, "Expect: x", CLOSE), 417),
        ("expects something in 1.0", head("GET /health HTTP/1.0", "Expect: x"), 200, 417),
        ("bad connection", head(get, "Connection: close, \x01"), 400),
        ("origin of bad bytes", head(get, "Origin: \xff\xfe://\xc3", CLOSE), 403),
        ("upgrade", head(get, "Connection: Upgrade, close", "Upgrade: h2c", "HTTP2-Settings: x"), 200),
    ]:
        yield case(name, data, *allowed)
    for byte in (*range(32), 127):
        if byte not in (9, 10, 13):
            yield case(f"byte {byte} in a value", head(get, f"A: b{chr(byte)}c"), 400)
            yield case(f"byte {byte} in a name", head(get, f"A{chr(byte)}: b"), 400)
            yield case(f"byte {byte} in the target", head(f"GET /h{chr(byte)} HTTP/1.1"), 400)
            yield case(f"byte {byte} in the method", head(f"G{chr(byte)}T / HTTP/1.1"), 400)
    for byte in range(128, 256):
        yield case(f"byte {byte} in a value", head(get, f"X-Tenant: b{chr(byte)}c", CLOSE), 200)
        yield case(f"byte {byte} in the target", head(f"GET /h{chr(byte)} HTTP/1.1"), 400)
    for path in ("%", "%0", "%zz", "%00", "%ff", "%c3%28", "%e2%82", "..", "a" * 1000, "%2e%2e%2f", "\\", '"', "<b>"):
        yield case(f"model {path[:10]}", head(f"GET /v1/models/{path} HTTP/1.1", CLOSE), 400, 404)
    for size in (100, 10000, 16000, 17000, 60000, 70000, 300000):
        fine = size < 16000
        edge = 15000 < size < 17000
        for name, data, status in [
            ("value", head(get, "A: " + "b" * size, CLOSE), 200),
            ("name", head(get, "A" * size + ": b", CLOSE), 200),
            ("target", head("GET /" + "b" * size + " HTTP/1.1", CLOSE), 404),
            ("method", head("G" * size + " / HTTP/1.1", CLOSE), 405),
            ("query", head("GET /health?" + "b" * size + " HTTP/1.1", CLOSE), 200),
            ("line without end", b"GET /" + b"b" * size, None),
            ("fields", head(get, *["A: b"] * (size // 6), CLOSE), 200),
        ]:
            allowed = {431} if not fine and not edge else {status, 431} if edge else {status}
            if status is None:
                yield Case(f"{name} of {size}", [data, HALF_CLOSE], {431}, may_be_silent=fine or edge)
            else:  # a name is limited by itself, too
                yield case(f"{name} of {size}", data, *allowed, *([400, 431] if name in ("name", "method") else []))
    for field in ("X-Priority", "X-Deadline-Ms", "X-Token-Interval-Ms"):
        for value in (
            "",
            " ",
            "-",
            "--1",
            "1.0",
            "1e3",
            "0x1",
            "9" * 30,
            "-" + "9" * 30,
            "01",
            "\xb2",
            "nan",
            "1 1",
            "3,4",
        ):
            yield case(
                f"{field} {value!r}", post("/v1/completions", dumps(COMPLETION), f"{field}: {value}", CLOSE), 400
            )


def shortened() -> Iterator[Case]:
    """Requests that end before their end, and lengths that are wrong, both ways."""
    for data, _ in VALID:
        for at in range(0, len(data), 6):
            yield Case(f"{data[:20]!r} ends at {at}", [data[:at], HALF_CLOSE], set(), answers=0, may_be_silent=True)
    for more in (1, 2, 1000):
        data = head("POST /tokenize HTTP/1.1", f"Content-Length: {len(TOKENIZE) + more}") + TOKENIZE
        yield Case(f"length {more} too long", [data, HALF_CLOSE], set(), answers=0, may_be_silent=True)
    for less in range(1, len(TOKENIZE)):
        data = head("POST /tokenize HTTP/1.1", f"Content-Length: {len(TOKENIZE) - less}") + TOKENIZE
        yield Case(f"length {less} too short", [data, HALF_CLOSE], {400}, answers=2)
    for size in (8 << 20, (8 << 20) + 1, 1 << 62):
        data = head("POST /tokenize HTTP/1.1", f"Content-Length: {size}") + b"{"
        yield Case(f"length {size}", [data, HALF_CLOSE], {413}, may_be_silent=size <= 8 << 20)


def aborts(rng: random.Random) -> Iterator[Case]:
    """Clients that reset the connection or close their side at any moment."""
    stream = post("/v1/completions", dumps({"prompt": "hi", "max_tokens": 200, "stream": True, "n": 3}))
    whole = post("/v1/completions", dumps({"prompt": "hi", "max_tokens": 200}))
    for _ in range(300):
        data = rng.choice([stream, whole, stream + whole, VALID[5][0], *(data for data, _ in VALID)])
        end = rng.choice([RESET, RESET, HALF_CLOSE])
        at = rng.choice([0, 1, len(data) // 2, len(data) - 1, len(data), len(data), len(data)])
        steps = [data[:at], end] if rng.random() < 0.6 or at < len(data) else [data, READ, end]
        yield Case("abort", steps, {200, 204, 400, 404}, answers=2, may_be_silent=True)
