#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP server under half a million requests of mixed shape: memory flat, counters consistent, nothing left.

    python tests/stress/server_soak.py [-n 500000] [--connections 64] [--seed 1] [--threads 1] [--under "valgrind …"]

The server serves the null model in a process of its own. Of the requests 10 % are aborted at a random moment, by an RST
or a close, and 5 % are malformed; the others are answers as a whole and streams, of one prompt and several, one sample
and several, with log-probabilities and stop texts, and questions about tokens, models, figures and health, four in five
over connections that stay. Each answer must have the status that its request asks for. Prints the server's resident
memory each tenth of the requests and a summary as JSON; exits with 1 if memory grew after the first fifth by more than
2 % and 1 MiB, if counters do not add up, or if a descriptor, a thread or memory of the engine is left. With --under the
server runs under the command given, and its memory is not judged, but its exit code is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shlex
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import lmnative

MAX_GROWTH, SLACK_BYTES = 0.02, 1 << 20
ABORTED, MALFORMED, KEPT = 0.1, 0.05, 0.8  # shares of the requests
ANSWER_SECONDS = 60.0
MODEL = "null:vocab=300,context=512"


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def post(path: str, value: object, *fields: str) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return head(f"POST {path}", f"Content-Length: {len(body)}", *fields) + body


def make_request(rng: random.Random, *fields: str) -> tuple[bytes, int]:
    """What a client sends, and the status that it gets."""
    prompt = "".join(rng.choice("abcdefgh") for _ in range(rng.choice([1, 5, 30, 200])))
    tokens = rng.choice([1, 1, 1, 2, 8, 30])
    stream = rng.random() < 0.4
    value = {"prompt": prompt, "max_tokens": tokens, "stream": stream}
    kind = rng.randrange(16)
    if kind == 0:
        value |= {"n": rng.randint(2, 4), "temperature": 0.7, "seed": rng.randrange(1 << 40)}
    elif kind == 1:
        value["prompt"] = [prompt] * rng.randint(2, 4)
    elif kind == 2:
        value |= {"logprobs": rng.randint(0, 5)}
    elif kind == 3:
        value |= {"stop": ["aaa", "q"], "logit_bias": {"97": 5}}
    elif kind == 4 and stream:
        value |= {"stream_options": {"include_usage": True}}
    elif kind == 5:
        value |= {"prompt": list(prompt.encode()), "echo": True}
    elif kind == 6:
        return post("/tokenize", {"content": prompt * rng.choice([1, 1, 1, 500])}, *fields), 200
    elif kind == 7:
        return post("/detokenize", {"tokens": list(prompt.encode())}, *fields), 200
    elif kind == 8:
        return head("GET /v1/models", *fields), 200
    elif kind == 9:
        return head(f"GET {rng.choice(['/metrics', '/stats', '/', '/openapi.json', '/page.js'])}", *fields), 200
    elif kind == 10:
        return head("GET /health", *fields), 200
    elif kind == 11:  # the null model has no chat template
        return post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]}, *fields), 400
    elif kind == 12:
        fields = ("X-Priority: 1", f"X-Tenant: {prompt[0]}", "X-Deadline-Ms: 60000", *fields)
    return post("/v1/completions", value, *fields), 200


def make_malformed(rng: random.Random) -> tuple[bytes, int]:
    whole = post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    return rng.choice(
        [
            (post("/v1/completions", b'{"prompt":'), 400),
            (post("/v1/completions", {"prompt": "a", "max_tokens": "many"}), 400),
            (post("/v1/completions", {"prompt": "a", "model": "another"}), 404),
            (post("/nothing", {}), 404),
            (head("GET /v1/completions"), 405),
            (whole.replace(b"Host: localhost\r\n", b""), 400),
            (whole.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length"), 400),
            (whole.replace(b"HTTP/1.1", b"HTTP/3.0"), 505),
            (head("GET /health", "X: " + "y" * 20000), 431),
            (head("POST /tokenize", f"Content-Length: {1 << 40}"), 413),
            (bytes(rng.randrange(1, 256) for _ in range(100)) + b"\r\n\r\n", 400),
        ]
    )


class Client(asyncio.Protocol):
    """One connection. answer: a future of the status, or None if the server closed; begun: of the first byte."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.data = bytearray()
        self.answer: asyncio.Future | None = None
        self.begun: asyncio.Future | None = None
        self.closed = False

    def connection_made(self, transport) -> None:
        self.transport = transport

    def ask(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.data.clear()
        self.answer, self.begun = loop.create_future(), loop.create_future()
        self.transport.write(data)

    def data_received(self, piece: bytes) -> None:
        if self.answer is None or self.answer.done():
            raise AssertionError(f"bytes that nobody asked for: {piece[:200]!r}")
        self.data += piece
        if not self.begun.done():
            self.begun.set_result(True)
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return
        length = re.search(rb"\r\nContent-Length: (\d+)", self.data[:end])
        if self.data.endswith(b"\r\n0\r\n\r\n") if length is None else len(self.data) >= end + 4 + int(length[1]):
            self.answer.set_result(int(self.data[9:12]))

    def connection_lost(self, error) -> None:
        self.closed = True
        for future in (self.answer, self.begun):
            if future is not None and not future.done():
                future.set_result(None)

    def abort(self, by_reset: bool) -> None:
        if by_reset and not self.closed:
            number = self.transport.get_extra_info("socket")
            number.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Soak:
    def __init__(self, server: Server, given: argparse.Namespace) -> None:
        self.server, self.given = server, given
        self.left, self.sent, self.connected = given.n, 0, 0
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        self.memory: list[int] = []

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def work(self, seed: int) -> None:
        rng = random.Random(seed)
        loop = asyncio.get_running_loop()
        client = None
        while self.left > 0:
            self.left -= 1
            if client is None or client.closed:
                _, client = await loop.create_connection(Client, "127.0.0.1", self.server.port)
                self.connected += 1
            dice = rng.random()
            stays = rng.random() < KEPT
            if dice < MALFORMED:
                self.count("malformed")
                data, status = make_malformed(rng)
            else:
                data, status = make_request(rng, *([] if stays else ["Connection: close"]))
            aborts = dice > 1 - ABORTED
            if aborts and rng.random() < 0.2:
                data = data[: rng.randrange(len(data))]
            client.ask(data)
            if aborts:
                self.count("aborted")
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.003)
                else:
                    await asyncio.wait([client.begun], timeout=0.01)
                client.abort(rng.random() < 0.5)
                client = None
            else:
                got = await asyncio.wait_for(client.answer, ANSWER_SECONDS)
                self.count(str(got))
                if got != status:
                    self.wrong.append(f"{got}, not {status}: {data[:200]!r} -> {bytes(client.data[:300])!r}")
                if not stays or b"\r\nConnection: close\r\n" in client.data[:600]:
                    client.transport.abort()
                    client = None
            self.sent += 1
            if self.sent % (self.given.n // 10) == 0:
                self.memory.append(self.server.resident_bytes())
                print(f"{self.sent:>8} requests, {self.memory[-1] >> 10} KiB", flush=True)
        if client is not None:
            client.transport.abort()

    async def run(self) -> None:
        await asyncio.gather(*(self.work(self.given.seed * 1000 + i) for i in range(self.given.connections)))


class Server:
    """A process that serves the null model, and answers what it counts, a line for a line."""

    def __init__(self, given: argparse.Namespace) -> None:
        command = [*shlex.split(given.under), sys.executable, __file__, "--serve", "--threads", str(given.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = self.ask()["port"]
        self.folder = Path("/proc") / str(self.ask()["pid"])

    def ask(self) -> dict:
        print("?", file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def resident_bytes(self) -> int:
        return int(re.search(r"VmRSS:\s+(\d+)", (self.folder / "status").read_text())[1]) << 10

    def counts(self) -> dict[str, int]:
        return {name: len(os.listdir(self.folder / folder)) for name, folder in [("files", "fd"), ("threads", "task")]}

    def close(self) -> int:
        self.process.stdin.close()
        return self.process.wait()


def serve(threads: int) -> None:
    """The server's process: a line of JSON for each line, until there are no more."""
    with lmnative.Engine(MODEL) as engine, lmnative.Server({"null": engine}, threads=threads) as server:
        for _ in sys.stdin:
            info = server.info()
            names = ("port", "connections", "requests", "accepted", "answered", "refused", "failed", "aborted")
            memory = {owner: use.current for owner, use in engine.memory().items()}
            figures = {name: getattr(info, name) for name in names}
            print(json.dumps({"pid": os.getpid(), **figures, "engine": engine.stats(), "memory": memory}), flush=True)


def check(soak: Soak, begin: dict, resources: dict[str, int]) -> list[str]:
    """What is not as it should be in the end."""
    wrong = soak.wrong[:10]
    end = {}
    for _ in range(200):  # what was aborted last
        end, left = soak.server.ask(), soak.server.counts()
        if end["connections"] == end["requests"] == end["engine"]["running"] == 0 and left == resources:
            break
        time.sleep(0.05)
    answers = {int(status): count for status, count in soak.counts.items() if status.isdigit()}
    engine = end["engine"]
    for name, got, least, most in [
        ("connections", end["connections"], 0, 0),
        ("requests", end["requests"], 0, 0),
        ("accepted", end["accepted"] - begin["accepted"], soak.connected, soak.connected),
        ("answered", end["answered"], sum(answers.values()), soak.given.n),
        ("failed", end["failed"], answers.get(505, 0), answers.get(505, 0)),
        ("aborted", end["aborted"], 1, soak.counts["aborted"]),
        ("running", engine["running"] + engine["waiting"], 0, 0),
        (
            "ended",
            engine["finished"] + engine["cancelled"] + engine["failed"],
            engine["submitted"],
            engine["submitted"],
        ),
        ("kv_pages_used", engine["kv_pages_used"], 0, 0),
        *((name, left[name], resources[name], resources[name]) for name in resources),
        *((f"memory of {owner}", end["memory"].get(owner), old, old) for owner, old in begin["memory"].items()),
    ]:
        if not least <= (got if got is not None else -1) <= most:
            wrong.append(f"{name} is {got}, not {least} to {most}")
    warm, last = soak.memory[1], soak.memory[-1]
    if not soak.given.under and last > warm * (1 + MAX_GROWTH) + SLACK_BYTES:
        wrong.append(f"memory grew from {warm} to {last} bytes")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=500_000, help="requests, 10 at least")
    parser.add_argument("--connections", type=int, default=64, help="at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of the server, for connections")
    parser.add_argument("--under", default="", help="a command that runs the server's process")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.threads)
        return 0
    server = Server(given)
    begin, resources = server.ask(), server.counts()
    soak = Soak(server, given)
    start = time.monotonic()
    asyncio.run(soak.run())
    seconds = time.monotonic() - start
    wrong = check(soak, begin, resources)
    if code := server.close():
        wrong.append(f"the server's process ended with {code}")
    summary = {"requests": soak.sent, "seconds": round(seconds, 1), "connections": soak.connected, **soak.counts}
    print(json.dumps({**summary, "resident_kib": [bytes_ >> 10 for bytes_ in soak.memory], "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
