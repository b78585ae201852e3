# SPDX-License-Identifier: Apache-2.0
"""Connections of the server, byte by byte: framing, limits, time-outs, clients that go or do not read."""

from __future__ import annotations

import http.client
import os
import re
import select
import socket
import stat

import lmnative
import pytest
from conftest import wait_until
from serving import SLOW, TIMEOUT, ask, connect, events, exchange, post, read_all, read_until, send, statuses

ONE = {"prompt": "x", "max_tokens": 1}
ENDLESS = {"prompt": "x", "max_tokens": 4000, "stream": True}
CLOSE = "Connection: close"


@pytest.fixture(scope="module")
def engine():
    with lmnative.Engine(SLOW) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine):
    with lmnative.Server({"null": engine}) as server:
        yield server


def test_keep_alive(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
    accepted = server.info().accepted
    for _ in range(5):
        assert send(connection, "POST", "/v1/completions", ONE).status == 200
        assert send(connection, "POST", "/v1/completions", b"{").status == 400
        assert len(events(send(connection, "POST", "/v1/completions", {**ONE, "stream": True}).body)) == 2
    connection.close()
    assert server.info().accepted == accepted + 1


def test_pipelining(server):
    names = [b"a", b"b", b"c"]
    requests = [post("/tokenize", {"content": name.decode()}) for name in names]
    requests.insert(1, post("/v1/completions", ONE))
    answers = exchange(
        server, b"".join(requests) + b"GET /health/live HTTP/1.1\r\nHost: x\r\n" + CLOSE.encode() + b"\r\n\r\n"
    )
    assert statuses(answers) == [200] * 5
    bodies = re.findall(rb"\r\n\r\n(\{.*?\})(?=HTTP/1|$)", answers, re.DOTALL)
    assert b"97" in bodies[0] and b"choices" in bodies[1] and b"98" in bodies[2] and b"99" in bodies[3]


def test_a_request_in_pieces(server):
    data = post("/tokenize", {"content": "hello"}, CLOSE)
    with connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            connection.sendall(data[i : i + 1])
        assert statuses(read_all(connection)) == [200]


def test_chunked_bodies(server):
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    body = b'1\r\n{\r\n11;name="value"\r\n"content": "abc"}\r\n0\r\nTrailer: x\r\n\r\n'
    answer = exchange(server, head + CLOSE.encode() + b"\r\n\r\n" + body)
    assert statuses(answer) == [200] and b'"tokens":[97,98,99]' in answer.replace(b" ", b"")
    assert statuses(exchange(server, head + b"\r\nzz\r\n{}\r\n0\r\n\r\n")) == [400]


def test_expect_100_continue(server):
    data = post("/tokenize", {"content": "abc"}, "Expect: 100-continue", CLOSE)
    head, body = data.split(b"\r\n\r\n")
    with connect(server) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert statuses(read_all(connection)) == [200]


def test_head(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
    head, get = (send(connection, method, "/v1/models") for method in ("HEAD", "GET"))
    assert head.status == get.status == 200
    assert head.body == b"" and head.headers["Content-Length"] == get.headers["Content-Length"]
    connection.close()


def test_http_1_0(server):
    plain = exchange(server, post("/v1/completions", ONE, version="1.0"))
    assert statuses(plain) == [200] and b"chunked" not in plain.lower()
    streamed = exchange(server, post("/v1/completions", {**ONE, "stream": True}, version="1.0"))
    head, body = streamed.split(b"\r\n\r\n", 1)
    assert b"transfer-encoding" not in head.lower()
    assert events(body)[-1]["choices"][0]["finish_reason"] == "length"
    with connect(server) as connection:
        for _ in range(2):
            connection.sendall(post("/tokenize", {"content": "a"}, "Connection: keep-alive", version="1.0"))
            assert b"keep-alive" in read_until(connection, b"}").lower()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nName: a\0b\r\n\r\n", 400),
    ],
)
def test_malformed_requests_are_refused_and_closed(server, data, status):
    assert statuses(exchange(server, data)) == [status]


def test_limits():
    with lmnative.Server("null:vocab=300", max_header_bytes=1000, max_body_bytes=1000) as server:
        assert ask(server, "POST", "/tokenize", {"content": "a" * 900}).status == 200
        for body in (b"x" * 1001, b"x" * 10**6):
            answer = ask(server, "POST", "/tokenize", body)
            assert (answer.status, answer.error()["type"]) == (413, "invalid_request_error")
        head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert statuses(exchange(server, head + b"3e9\r\n" + b"x" * 1001)) == [413]
        assert ask(server, "GET", "/health", X_Long="y" * 500).status == 200
        assert ask(server, "GET", "/health", X_Long="y" * 1500).status == 431
        assert ask(server, "GET", "/" + "y" * 1500).status in (414, 431)
        assert ask(server, "GET", "/health").status == 200


def test_too_many_requests(engine):
    with lmnative.Server({"null": engine}, max_requests=1) as server:
        with connect(server) as running:
            running.sendall(post("/v1/completions", ENDLESS))
            read_until(running, b"data: ")
            answer = ask(server, "POST", "/v1/completions", ONE)
            assert answer.status == 429 and answer.error()["type"] == "rate_limit_error"
            assert int(answer.headers["Retry-After"]) >= 1
        assert wait_until(lambda: server.info().requests == 0)
        assert ask(server, "POST", "/v1/completions", ONE).status == 200


def test_a_full_queue():
    engine = lmnative.Engine(SLOW, queue_capacity=1, max_sequences=1)
    with engine, lmnative.Server({"n": engine}) as server, connect(server) as one, connect(server) as two:
        one.sendall(post("/v1/completions", ENDLESS))
        read_until(one, b"data: ")
        two.sendall(post("/v1/completions", ENDLESS))
        assert wait_until(lambda: engine.stats()["waiting"] == 1)
        answer = ask(server, "POST", "/v1/completions", ONE)
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1


def test_time_outs(engine):
    limits = {"header_timeout": 0.2, "body_timeout": 0.2, "idle_timeout": 0.3}
    with lmnative.Server({"null": engine}, **limits) as server:
        with connect(server) as trickling:  # a byte now and then keeps nobody in
            trickling.sendall(b"GET /")
            while not select.select([trickling], [], [], 0.02)[0]:
                trickling.sendall(b"x")
            assert statuses(read_all(trickling)) == [408]
        with connect(server) as bodiless:
            bodiless.sendall(post("/tokenize", {"content": "a"})[:-3])
            assert statuses(read_all(bodiless)) == [408]
        with connect(server) as idle:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert statuses(read_all(idle)) == [200]
        with connect(server) as silent:
            assert read_all(silent) == b""
        # What is being answered is none of that.
        answer = ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 300})
        assert answer.json()["usage"]["completion_tokens"] == 300
        assert wait_until(lambda: server.info().connections == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_cancels(server, engine, stream):
    cancelled, aborted = engine.stats()["cancelled"], server.info().aborted
    with connect(server) as connection:
        connection.sendall(post("/v1/completions", {**ENDLESS, "stream": stream}))
        assert wait_until(lambda: engine.stats()["running"] == 1)
    assert wait_until(lambda: engine.stats()["cancelled"] == cancelled + 1, 2)
    assert wait_until(lambda: engine.stats()["running"] == 0 and server.info().requests == 0)
    assert server.info().aborted == aborted + 1
    assert engine.stats()["kv_pages_used"] == 0


def test_a_slow_reader_is_dropped_and_slows_nobody():
    options = {"max_stream_bytes": 4096, "write_timeout": 0.5}
    with (
        lmnative.Engine("null:vocab=300,context=100000") as engine,
        lmnative.Server({"n": engine}, **options) as server,
    ):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 90000, "stream": True, "n": 8}))
        read_until(slow, b"data: ")
        for _ in range(20):
            assert ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 20}).status == 200
        assert wait_until(lambda: server.info().connections == 0 and server.info().requests == 0)
        assert server.info().aborted == 1
        assert wait_until(lambda: engine.stats()["running"] == 0)
        slow.close()


def test_characters_are_whole_in_every_event(llm):
    prompt = "🦙🦙🦙🦙🦙🦙 Größe Größe Größe 🦙🦙🦙🦙🦙🦙🦙🦙🦙🦙🦙🦙"
    want = llm.generate(prompt, max_tokens=24)
    assert any(len(llm.tokenizer.token_bytes(token).decode("utf-8", "ignore")) == 0 for token in want.token_ids), (
        "some token is a part of a character"
    )
    with lmnative.Server({"m": llm}) as server:
        body = ask(
            server, "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True}
        ).body
    pieces = [event["choices"][0]["text"] for event in events(body)]
    assert "".join(pieces) == want.text
    assert "\ufffd" not in "".join(pieces[:-1])


def test_unix_socket(tmp_path, engine):
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # nobody listens there any more
    with lmnative.Server({"null": engine}, unix_path=path, unix_mode=0o660) as server:
        assert (server.address, server.port, server.url) == (f"unix:{path}", 0, "")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(path))
            connection.sendall(post("/v1/completions", ONE, CLOSE))
            assert statuses(read_all(connection)) == [200]
        with pytest.raises(lmnative.IoError, match=str(path)):
            lmnative.Server(unix_path=path)  # in use
    assert not path.exists()
    with lmnative.Server(unix_path=path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_many_connections_at_once(server):
    connections = [connect(server) for _ in range(200)]
    for connection in connections:
        connection.sendall(post("/v1/completions", ONE, CLOSE))
    assert [statuses(read_all(connection)) for connection in connections] == [[200]] * 200
    for connection in connections:
        connection.close()
    assert wait_until(lambda: server.info().connections == 0)
