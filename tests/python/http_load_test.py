# SPDX-License-Identifier: Apache-2.0
"""The load generator of the benchmarks (bench/macro/http_load.c) against a server that cuts its answers at every byte,
closes connections, or answers wrongly. Nothing is timed here."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent.parent / "bench" / "macro" / "http_load.c"
COMPILER = os.environ.get("CC", "cc")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the load generator is for Linux"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("http_load") / "http_load"
    subprocess.run([COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-o", out, SOURCE], check=True)
    return out


def completion(tokens: int) -> bytes:
    answer = {"choices": [{"text": "a", "finish_reason": "length"}], "usage": {"completion_tokens": tokens}}
    return json.dumps(answer).encode()


def event(content: str | None, finish: str | None = None, tokens: int | None = None) -> bytes:
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    answer = {"choices": [{"delta": {"content": content}, "finish_reason": finish}], **usage}
    return b"data: " + json.dumps(answer).encode() + b"\n\n"


def chunked(pieces: list[bytes], kind: str) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n%s" % (kind.encode(), body)


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\nX: y\r\n\r\n%s" % (status.encode(), len(body), body)


STREAM = [event(None), event("a"), event("b"), event("", "length"), event(None, None, 2), b"data: [DONE]\n\n"]
TEXT = b"".join(STREAM)


@contextmanager
def serving(answer):
    """The port of a server; answer(connection number, request number on it, body) gives the bytes to send, or writes
    them by itself. None closes the connection."""
    connections = iter(range(1_000_000))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            connection = next(connections)
            for number in range(1_000_000):
                length = None
                while (line := self.rfile.readline().strip().lower()) or length is None:
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    if not line:
                        return
                out = answer(connection, number, self.rfile.read(length), self.wfile)
                if out is None:
                    return
                for byte in range(0, len(out), self.server.step):
                    self.wfile.write(out[byte : byte + self.server.step])

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
        request_queue_size = 64
        step = 1

        def handle_error(self, request, client_address):
            pass  # the client has gone

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def load(program: Path, kind: str, port: int, *arguments: object) -> subprocess.CompletedProcess:
    command = [program, kind, str(port), "m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("framed", [whole(completion(1)), chunked([completion(1)[:9], completion(1)[9:]], "text/json")])
def test_answers_that_come_byte_by_byte(program, framed):
    prompts = []

    def answer(connection, number, body, out):
        prompts.append(json.loads(body)["prompt"])
        return framed

    with serving(answer) as port:
        done = load(program, "closed", port, 2, 0.2, "number %u!")
    got = json.loads(done.stdout)
    assert got["requests"] == len(prompts) > 2 and got["reconnects"] == 0
    assert sorted(prompts) == sorted(f"number {i}!" for i in range(len(prompts)))


@pytest.mark.parametrize("pieces", [STREAM, [TEXT], [TEXT[i : i + 7] for i in range(0, len(TEXT), 7)]])
def test_streams_however_they_are_cut(program, pieces):
    with serving(lambda *_: chunked(pieces, "text/event-stream")) as port:
        got = json.loads(load(program, "chat", port, 3, 10, 2, "x").stdout)
    assert got["requests"] == 10
    assert 0 < got["ttft_p50_ms"] <= got["ttft_p99_ms"]


def test_a_connection_that_is_closed_between_requests_is_opened_anew(program):
    def answer(connection, number, body, out):
        return None if number == 2 else whole(completion(1))

    with serving(answer) as port:
        got = json.loads(load(program, "closed", port, 1, 0.3, "x").stdout)
    assert got["reconnects"] == (got["requests"] - 1) // 2 > 0


@pytest.mark.parametrize(
    "kind, answer, reason",
    [
        ("closed", whole(completion(2)), "2 tokens and not of 1"),
        ("closed", whole(b"{}"), "-1 tokens"),
        ("closed", whole(completion(1).replace(b'"length"', b"null")), "without a finish_reason"),
        ("closed", whole(b"no", "500 Internal Server Error"), "500"),
        ("closed", whole(completion(1)) + b"x", "no answer: x"),
        ("closed", b"HTTP/1.1 200 OK\r\n\r\n", "no length"),
        ("closed", None, "lost"),
        ("chat", chunked(STREAM[:-1], "text/event-stream"), "DONE"),
        ("chat", chunked([*STREAM[:2], b'data: {"error": {}}\n\n'], "text/event-stream"), "an error"),
        ("chat", chunked([b"<html>\n"], "text/event-stream"), "no event"),
        ("chat", chunked([*STREAM[:4], event(None, None, 3), STREAM[5]], "text/event-stream"), "3 tokens"),
    ],
)
def test_wrong_answers_end_it(program, kind, answer, reason):
    arguments = (1, 1, "x") if kind == "closed" else (1, 2, 2, "x")
    with serving(lambda *_: answer) as port:
        done = load(program, kind, port, *arguments)
    assert done.returncode == 1 and done.stdout == ""
    assert reason in done.stderr


def test_paced_streams_and_idle_connections(program):
    """Four streams of a token each 50 ms, of which one is dropped."""
    idle, streams = 5, 4
    lock, begun = threading.Lock(), [0]

    def answer(connection, number, body, out):
        if not json.loads(body).get("stream"):
            return whole(completion(1))
        with lock:
            begun[0] += 1
            left = 4 if begun[0] == 2 else 1_000
        out.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        start = time.monotonic()
        for token in range(left):
            time.sleep(max(0.0, start + 0.05 * token - time.monotonic()))
            piece = event("a")
            out.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        return None

    with serving(answer) as port:
        done = load(program, "streams", port, idle, streams, 1, 50, os.getpid())
    got = json.loads(done.stdout)
    assert got["dropped"] == 1 and got["new_requests"] > 0
    assert got["tokens"] > 10 and got["p50_ms"] >= 0
