# SPDX-License-Identifier: Apache-2.0
"""Thousands of hostile requests (hostile.py): each gets a right answer or a closed connection, and the server lives."""

from __future__ import annotations

import contextlib
import json
import random
import re
import select
import selectors
import socket
import struct
import time

import lmnative
import pytest
from conftest import wait_until
from hostile import HALF_CLOSE, READ, RESET, Case, aborts, framing, headers, shortened, splits
from hostile_bodies import bodies, mutated
from serving import TIMEOUT, ask, connect, post, read_all

SEED = 20260101
AT_ONCE = 64
QUIET = 0.05
"""Seconds without a byte on any connection, after which clients close their side."""


@pytest.fixture(scope="module")
def engine():
    with lmnative.Engine("null:vocab=300,context=256") as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine):
    with lmnative.Server({"null": engine}, threads=2) as server:
        yield server


class Client:
    """One case on its way."""

    def __init__(self, case: Case, server: lmnative.Server) -> None:
        self.case = case
        self.socket = connect(server)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.closed = False
        self.left = False
        """The server may have seen that we left, and given up an answer."""

    def step(self, step) -> None:
        with contextlib.suppress(ConnectionError):  # refused already
            if step is HALF_CLOSE:
                self.left = True
                self.socket.shutdown(socket.SHUT_WR)
            elif step is RESET:
                self.left = self.closed = True
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.socket.close()
            elif step is READ:
                select.select([self.socket], [], [], TIMEOUT)
                self.read()
            else:
                self.socket.sendall(step)

    def read(self) -> None:
        try:
            piece = self.socket.recv(1 << 20)
        except ConnectionError:  # it closed while we still wrote
            piece = b""
            self.left = True
        self.data += piece
        self.closed = not piece


def answers(data: bytes, left: bool, heads: bool) -> list[int]:
    """The statuses of well-formed answers; the last one may be cut off if the client `left`."""
    statuses = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z -]*(\r\n[!-9;-~]+: [ -~]*)*$", head)
        if not (match and end):
            assert left, data
            return statuses
        status = int(match[1])
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if status >= 200:
            statuses.append(status)
        if b"transfer-encoding" in fields:
            body = b""
            while chunk := re.match(rb"([0-9a-f]+)\r\n", rest):
                size = int(chunk[1], 16)
                body += rest[chunk.end() : chunk.end() + size]
                rest = rest[chunk.end() + size + 2 :]
                if size == 0:
                    assert body.endswith(b"\n\n")
                    break
            else:
                assert left, data
            body.decode()
        elif b"content-length" in fields and not (heads and rest[:9] in (b"", b"HTTP/1.1 ")):
            size = int(fields[b"content-length"])
            body, rest = rest[:size], rest[size:]
            assert len(body) == size or left, data
            if len(body) == size and fields[b"content-type"] == b"application/json":
                value = json.loads(body)
                if status >= 400 and "error" in value:
                    assert set(value["error"]) == {"message", "type", "param", "code"} and value["error"]["message"]
        elif status not in (100, 204) and b"content-length" not in fields:  # HTTP/1.0: to the end
            rest = b""
        data = rest
    return statuses


def run_batch(server: lmnative.Server, cases: list[Case], problems: list[str]) -> list[int]:
    """All cases at the same time, step by step; returns the statuses of all answers, and notes what is wrong."""
    clients = [Client(case, server) for case in cases]
    for i in range(max(len(case.steps) for case in cases)):
        for client in clients:
            if i < len(client.case.steps) and not client.closed:
                client.step(client.case.steps[i])
    with selectors.DefaultSelector() as selector:
        for client in clients:
            if not client.closed:
                selector.register(client.socket, selectors.EVENT_READ, client)
        end = time.monotonic() + TIMEOUT
        while selector.get_map():
            assert time.monotonic() < end, [key.data.case for key in selector.get_map().values()]
            ready = selector.select(QUIET)
            for key, _ in ready:
                key.data.read()
                if key.data.closed:
                    selector.unregister(key.fileobj)
            for key in [] if ready else list(selector.get_map().values()):
                if not (key.data.left or key.data.case.closes):
                    key.data.step(HALF_CLOSE)
    statuses = []
    for client in clients:
        client.socket.close()
        case = client.case
        heads = b"HEAD" in b"".join(step for step in case.steps if isinstance(step, bytes))
        try:
            got = answers(client.data, client.left, heads)
            right = len(got) <= case.answers and set(got) <= case.allowed
            if not right or not (got or case.may_be_silent or client.left):
                problems.append(
                    f"{case.name}: {got} and not {case.allowed}: {case.steps!r:.300} -> {client.data!r:.900}"
                )
            statuses += got
        except (AssertionError, ValueError) as error:
            problems.append(f"{case.name}: {error!r:.300}: {case.steps!r:.300} -> {client.data!r:.900}")
    return statuses


def test_hostile_requests(server, engine, note):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    cases = [*splits(), *framing(), *headers(), *shortened(), *bodies(), *aborts(rng), *mutated(rng, 5000)]
    rng.shuffle(cases)
    assert len(cases) >= 5000
    accepted, answered, failed = server.info().accepted, server.info().answered, server.info().failed
    statuses: list[int] = []
    problems: list[str] = []
    asked = 0
    begin = time.monotonic()
    for i in range(0, len(cases), AT_ONCE):
        statuses += run_batch(server, cases[i : i + AT_ONCE], problems)
        assert ask(server, "GET", "/health").status == 200
        assert ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 2}).status == 200
        asked += 2
    assert not problems, "\n".join([f"{len(problems)} problems:", *problems[:20]])
    counts = ", ".join(f"{statuses.count(status)} x {status}" for status in sorted(set(statuses)))
    note(f"server torture: {len(cases)} hostile requests in {time.monotonic() - begin:.0f} s: {counts}")
    assert wait_until(lambda: server.info().connections == 0 and server.info().requests == 0)
    info = server.info()
    assert info.accepted == accepted + len(cases) + asked
    assert info.answered >= answered + len(statuses) + asked  # some answers nobody read
    assert info.failed - failed >= sum(status >= 500 for status in statuses)
    assert wait_until(lambda: engine.stats()["running"] == engine.stats()["waiting"] == 0)
    stats = engine.stats()
    assert stats["submitted"] == stats["finished"] + stats["cancelled"] + stats["failed"]
    assert (stats["failed"], stats["kv_pages_used"]) == (0, 0)


def test_trickles_are_cut_off(engine):
    """A byte now and then, of the header or of the body, keeps nobody in; nor does an answer that nobody takes."""
    whole = post("/tokenize", {"content": "a" * 100})
    header_end = whole.index(b"\r\n\r\n") + 4
    with lmnative.Server({"null": engine}, header_timeout=0.4, body_timeout=0.4, idle_timeout=0.6) as server:
        clients = [connect(server) for _ in range(40)]
        sent = [0 if i % 2 else header_end for i in range(len(clients))]
        for client, begin in zip(clients, sent, strict=True):
            client.sendall(whole[:begin])
        end = time.monotonic() + TIMEOUT
        while len(select.select(clients, [], [], 0)[0]) < len(clients):
            assert time.monotonic() < end
            for i, client in enumerate(clients):
                with contextlib.suppress(ConnectionError):
                    client.sendall(whole[sent[i] : sent[i] + 1])
                sent[i] = min(sent[i] + 1, len(whole) - 2)
            time.sleep(0.02)
        for client in clients:
            assert answers(read_all(client), False, False) == [408]
            client.close()
        assert wait_until(lambda: server.info().connections == 0)
