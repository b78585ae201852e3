# SPDX-License-Identifier: Apache-2.0
"""`lmnative serve` under load from macro/http_load.c, on the same CPUs, over loopback.

server.null: completions of one token by the null model over connections that stay open: requests a second with 64 of
them; p50 and p99 with 8; overhead is the server's own figure, with one: from the request's last byte to the answer's
first one, without the engine.
server.streams: 10,000 idle connections and as many streams of a token a second: p99 of how late tokens come, memory of
a connection (growth of the process), p99 of a new connection's completion beside them. A stream or a connection that is
dropped fails the check.
server.chat.cN: N clients, short chat prompts, answers of 32 tokens, streamed; one_rps: completions of one token to one
word. The peer has the same file and threads; it is built for AVX2, and so are our kernels where it takes part."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import harness
import lmnative

HOST = "127.0.0.1"
READY_S = 120  # for a peer that loads while others compute
CLIENTS = (1, 8, 32)
TOKENS = 32
STREAMS = 10_000
DESCRIPTORS = 65_536
OTHER_DESCRIPTORS = 128  # of a process, beside its connections
WORD = "Hi"  # the prompt of completions of one token: what is measured is a request's way, and a step
NULL_CLIENTS = 8
NULL_CROWD = 64


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return taken.getsockname()[1]


def connection_counts() -> tuple[int, int]:
    """(idle, streams): STREAMS of both, or fewer idle ones where the hard limit of descriptors is lower and cannot be
    raised. Servers and load generator raise their soft one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < DESCRIPTORS:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, DESCRIPTORS))
            hard = DESCRIPTORS
    connections = hard - OTHER_DESCRIPTORS
    streams = min(STREAMS, connections * 11 // 20)
    return min(STREAMS, connections - streams), streams


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=10) as answer:
        return answer.read()


def post(port: int, path: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://{HOST}:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def running(start: Callable[[int], subprocess.Popen]) -> Iterator[tuple[int, int]]:
    """(port, process id) of a server that is ready; ended afterwards."""
    port = free_port()
    process = start(port)
    try:
        deadline = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError):
                get(port, "/health")
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {' '.join(map(str, process.args))}")
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ours(model: str, *options: object, avx2: bool = False) -> Callable[[int], subprocess.Popen]:
    command = [sys.executable, "-m", "lmnative", "serve", f"bench={model}", "--host", HOST, *map(str, options)]
    environment = os.environ | ({"LMN_CPU_TARGET": "avx2"} if avx2 else {})
    return lambda port: subprocess.Popen(
        [*command, "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Load:
    """The load generator."""

    def __init__(self, folder: str):
        self._program = Path(folder) / "http_load"
        source = harness.BENCH / "macro" / "http_load.c"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", self._program, source], check=True)

    def __call__(self, kind: str, port: int, *arguments: object) -> dict[str, float]:
        command = [str(self._program), kind, str(port), "bench", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"server: {kind}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def ours_checked(load: Load, *arguments: object) -> dict[str, float]:
    """Against our server: what is wrong there is a failed check."""
    try:
        return load(*arguments)
    except RuntimeError as error:
        raise harness.CheckFailed(str(error)) from None


def check_answer(port: int, model: str, prompt: str) -> None:
    """The server answers as the library does."""
    body = {"model": "bench", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    got = post(port, "/v1/completions", body)["choices"][0]["text"]
    with lmnative.LLM(model, threads=1) as llm:
        want = llm.generate(prompt, max_tokens=8, temperature=0).text
    if got != want:
        raise harness.CheckFailed(f"server: {model} answers {got!r}, the library {want!r}")


def null_suite(context: harness.Context, load: Load) -> None:
    rounds, seconds = (3, 2) if context.quick else (9, 3)
    with running(ours("null:", "--threads", 1)) as (port, _):
        check_answer(port, "null:", "x")
        ours_checked(load, "closed", port, 1, 2 * seconds, "x")
        overhead = json.loads(get(port, "/stats"))["server"]["overhead"]["p50_ns"] / 1e3
        few = [ours_checked(load, "closed", port, NULL_CLIENTS, seconds, "x") for _ in range(rounds)]
        many = [ours_checked(load, "closed", port, NULL_CROWD, seconds, "x") for _ in range(rounds)]
    context.add("server.null.rps", "requests/s", "higher", {"lmnative": [run["rps"] for run in many]})
    context.add("server.null.p50", "us", "lower", {"lmnative": [run["p50_us"] for run in few]})
    context.add("server.null.p99", "us", "lower", {"lmnative": [run["p99_us"] for run in few]})
    context.add("server.null.overhead", "us", "lower", {"lmnative": [overhead]})


def streams_suite(context: harness.Context, load: Load) -> None:
    rounds, seconds = 3, 10 if context.quick else 30
    idle, streams = connection_counts()
    if idle < STREAMS:
        print(f"bench: server.streams: {idle} idle, {streams} streams: the limit of descriptors", file=sys.stderr)
    sequences = streams + 64
    tokens = sequences * (seconds + 200)  # of the KV cache, which costs nothing here
    options = ("--threads", 1, "--max-sequences", sequences, "--kv-tokens", tokens, "--queue-capacity", sequences)
    runs = []
    for _ in range(rounds):
        with running(ours("null:", *options)) as (port, process):
            got = ours_checked(load, "streams", port, idle, streams, seconds, 1000, process)
        if got["dropped"]:
            raise harness.CheckFailed(f"server.streams: {got['dropped']} connections were dropped")
        if got["tokens"] < 0.9 * streams * seconds:
            raise harness.CheckFailed(f"server.streams: {got['tokens']} tokens of {streams} streams in {seconds} s")
        runs.append(got)
    for name, unit, metric in (("p99", "ms", "p99_ms"), ("kb", "KB", "kb"), ("new_p99", "ms", "new_p99_ms")):
        context.add(f"server.streams.{name}", unit, "lower", {"lmnative": [run[metric] for run in runs]})


def chat_suite(context: harness.Context, load: Load) -> None:
    metrics = ("tok_s", "ttft_p50", "ttft_p99", "one_rps")
    wanted = [n for n in CLIENTS if any(context.is_wanted(f"server.chat.c{n}.{metric}") for metric in metrics)]
    rounds = 2 if context.quick else 5
    if not wanted:
        return
    peers = context.peers(["llama_server"])
    avx2 = bool(peers) and context.machine["isa"].startswith("avx512")
    versions = {peer.NAME: peer.version() for peer in peers}
    with contextlib.ExitStack() as stack:
        options = ("--threads", context.threads, "--kv-tokens", 1024 * max(CLIENTS))
        ports = {"lmnative": stack.enter_context(running(ours(context.model, *options, avx2=avx2)))[0]}
        for peer in peers:
            start = partial(peer.start, context.model, context.threads, slots=max(CLIENTS))
            try:
                ports[peer.NAME] = stack.enter_context(running(lambda port, start=start: start(port=port)))[0]
            except RuntimeError as error:
                context.leave_out(f"server of {peer.NAME}", str(error))
        check_answer(ports["lmnative"], context.model, "The capital of France is")
        counted = 0

        def measure(kind: str, metric: str, into: dict[str, list[dict]], arguments: tuple, name: str) -> float:
            nonlocal counted
            counted += 1  # prompts differ from their beginning on, as those of strangers do
            prompt = f"%u is a number, and so is {counted}: write about both." if kind == "chat" else WORD
            run = ours_checked if name == "lmnative" else Load.__call__
            into.setdefault(name, []).append(run(load, kind, ports[name], *arguments, prompt))
            return into[name][-1][metric]

        def drop(name: str, reason: str) -> None:
            context.leave_out(f"server of {name}", reason)

        for clients in wanted:
            requests = max(4, 2 * clients) * (1 if context.quick else 2)
            plans = {"chat": ("tok_s", (clients, requests, TOKENS)), "closed": ("rps", (clients, 2))}
            for kind, (metric, arguments) in plans.items():
                runs: dict[str, list[dict]] = {}
                contenders = {name: partial(measure, kind, metric, runs, arguments, name) for name in ports}
                samples = harness.alternate(contenders, rounds, drop)
                if kind == "closed":
                    context.add(f"server.chat.c{clients}.one_rps", "requests/s", "higher", samples, None, versions)
                    continue
                context.add(f"server.chat.c{clients}.tok_s", "tok/s", "higher", samples, None, versions)
                for percentile in ("ttft_p50", "ttft_p99"):
                    times = {name: [run[f"{percentile}_ms"] for run in runs[name][1:]] for name in samples}
                    context.add(f"server.chat.c{clients}.{percentile}", "ms", "lower", times, None, versions)


def run(context: harness.Context, suite: str) -> None:
    null, streams = ("rps", "p50", "p99", "overhead"), ("p99", "kb", "new_p99")
    with tempfile.TemporaryDirectory() as folder:
        load = Load(folder)
        if any(context.is_wanted(f"server.null.{metric}") for metric in null):
            null_suite(context, load)
        if any(context.is_wanted(f"server.streams.{metric}") for metric in streams):
            streams_suite(context, load)
        chat_suite(context, load)
