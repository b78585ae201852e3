# SPDX-License-Identifier: Apache-2.0
"""What attackers, other processes and bad luck do to a server: it refuses, waits or lets go, and serves the others."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import lmnative
import pytest
from conftest import wait_until
from serving import SLOW, TIMEOUT, ask, connect, post, read_all, read_until, statuses

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
MANY = 300  # documents, which are more than buffers of sockets take
ONE = {"prompt": "x", "max_tokens": 1}
ENDLESS = {"prompt": "x", "max_tokens": 4000, "stream": True}


@pytest.fixture(scope="module")
def engine():
    with lmnative.Engine(SLOW) as engine:
        yield engine


def reader_of_little(server: lmnative.Server) -> socket.socket:
    """A connection whose buffer is small; the server's may grow to 4 MB."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.settimeout(TIMEOUT)
    client.connect(("127.0.0.1", server.port))
    return client


def test_a_slow_reader_cannot_shake_off_the_deadline_of_its_request(engine):
    """Answers that leave slowly are no reason to wait for ever for the end of a body that came meanwhile."""
    with lmnative.Server({"null": engine}, body_timeout=1, max_stream_bytes=1 << 30) as server:
        with reader_of_little(server) as client:
            client.sendall(DOCUMENT * MANY + post("/tokenize", {"content": "a"})[:-3])
            data = b""
            while len(data) < 1 << 20:
                data += client.recv(65536)
            assert statuses(data)[0] == 200
            data += read_all(client)
        assert statuses(data) == [200] * MANY + [408]


@pytest.mark.parametrize("limit", [1 << 30, 1000])
def test_answers_are_whole_for_who_has_said_all(engine, limit):
    """A client that closes its side gets what was answered to the end, also where it does not fit into buffers."""
    with lmnative.Server({"null": engine}, max_stream_bytes=limit) as server:
        document = ask(server, "GET", "/openapi.json").body
        with reader_of_little(server) as client:
            client.sendall(DOCUMENT * MANY)
            client.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            answers = read_all(client).split(b"HTTP/1.1 200 OK\r\n")[1:]
        assert all(answer.partition(b"\r\n\r\n")[2] == document for answer in answers)
        assert len(answers) == MANY or limit < len(document)
        assert wait_until(lambda: server.info().connections == 0)


def test_a_reader_that_takes_nothing_is_dropped_between_requests(engine):
    with lmnative.Server({"null": engine}, write_timeout=0.3, max_stream_bytes=1 << 30) as server:
        with reader_of_little(server) as client:
            client.sendall(DOCUMENT * MANY)
            assert wait_until(lambda: server.info().answered == MANY)
            assert wait_until(lambda: server.info().connections == 0)
        assert server.info().aborted == 1


def test_keys(engine):
    with lmnative.Server({"null": engine}, api_keys=["alpha", "beta"], admin_keys=["gamma"]) as server:
        for field in (
            "", "Bearer", "Bearer ", "Bearer  ", "Bearer alph", "Bearer alphaa", "Bearer lpha", "Bearer alphaalpha",
            "alpha", "Bearer ALPHA", "Bearer alpha beta", "Bearer alpha,beta", "Basic alpha", "Bearer\talpha",
            "Bearer alpha\xff", "Bearer beta" + "b" * 8000,
        ):  # fmt: skip
            answer = ask(server, "GET", "/v1/models", Authorization=field.encode("latin-1"))
            assert (answer.status, answer.error()["code"]) == (401, "invalid_api_key"), field
        for field in ("Bearer alpha", "bearer beta", "BEARER gamma", "Bearer alpha "):
            assert ask(server, "GET", "/v1/models", Authorization=field).status == 200, field
        assert ask(server, "GET", "/admin/models", Authorization="Bearer alpha").status == 403
        assert ask(server, "GET", "/admin/models", Authorization="Bearer gamma").status == 200
        assert ask(server, "POST", "/v1/completions", ONE).status == 401
        assert ask(server, "GET", "/metrics").status == 401
        assert ask(server, "GET", "/health").status == 200


def test_bad_files_of_models(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "short.gguf").write_bytes(b"GGUF\3\0\0\0")
    os.truncate(os.open(tmp_path / "holes.gguf", os.O_CREAT | os.O_WRONLY), 1 << 40)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    files = ["/etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem", tmp_path, "/nothing", "null:vocab=99999999999"]
    files += [tmp_path / name for name in ("fifo", "empty", "short.gguf", "holes.gguf", "loop")]
    key = {"Authorization": "Bearer k"}
    with lmnative.Server("null:vocab=300", admin_keys=["k"]) as server:
        for i, path in enumerate(files):
            answer = ask(server, "POST", "/admin/models", {"model": str(path), "name": f"m{i}"}, **key)
            assert (answer.status, answer.json()) == (202, {"name": f"m{i}", "state": "loading"})
        for body, param in [
            ({"model": ""}, "model"), ({"model": "a\0b"}, "model"), ({"model": "a" * 5000}, "model"), ({}, "model"),
            ({"model": "x", "name": ""}, "name"), ({"model": "x", "name": "a b"}, "name"), ({"model": "x/"}, None),
            ({"model": "x", "name": "a\0"}, "name"), ({"model": "x", "name": "é" * 128}, "name"),
        ]:  # fmt: skip
            answer = ask(server, "POST", "/admin/models", body, **key)
            assert (answer.status, answer.error()["param"]) == (400, param), body

        def states() -> list[dict]:
            return [
                model for model in ask(server, "GET", "/admin/models", **key).json()["data"] if model["name"] != "null"
            ]

        assert wait_until(lambda: {model["state"] for model in states()} == {"failed"})
        assert len(states()) == len(files) and all(model["error"] for model in states())
        for model in states():
            assert ask(server, "DELETE", f"/admin/models/{model['name']}", **key).status == 204
        assert states() == []
        assert ask(server, "POST", "/v1/completions", ONE).status == 200


def test_connections_beyond_the_limit_wait(engine):
    with lmnative.Server({"null": engine}, max_connections=64, threads=4) as server:
        clients = [connect(server) for _ in range(70)]
        for client in clients:
            client.sendall(HEALTH)
        assert wait_until(lambda: server.info().answered == 64)
        time.sleep(0.1)
        assert (server.info().connections, server.info().accepted) == (64, 64)
        first = clients[:64]
        for client in first:
            assert statuses(read_until(client, b"}")) == [200]
        for gone, waiting in zip(first, clients[64:], strict=False):
            gone.close()
            assert statuses(read_until(waiting, b"}")) == [200]
        for client in clients:
            client.close()
        assert wait_until(lambda: server.info().connections == 0)

        # Many come and go at the limit, on several threads, and none is forgotten.
        def come_and_go() -> None:
            for _ in range(100):
                assert ask(server, "GET", "/health").status == 200

        threads = [threading.Thread(target=come_and_go) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.info().accepted == 70 + 800


CHILD = """
import resource, sys, lmnative
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with lmnative.Server("null:vocab=300", port=int(sys.argv[1])) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def test_no_descriptors_left():
    """What cannot be accepted waits, and is served when others go."""
    command = [sys.executable, "-c", CHILD, "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        port = int(child.stdout.readline())
        clients = [socket.create_connection(("127.0.0.1", port), TIMEOUT) for _ in range(100)]
        for client in clients:
            client.sendall(HEALTH)
        for client in clients:  # the first ones are answered, and make room
            assert statuses(read_until(client, b"}")) == [200]
            client.close()
        child.stdin.close()
        assert child.wait(TIMEOUT) == 0


def test_a_log_whose_reader_has_gone(engine):
    reader, writer = os.pipe()
    with lmnative.Server({"null": engine}, log=writer) as server:
        assert ask(server, "GET", "/health").status == 200
        assert b'"path":"/health"' in os.read(reader, 4096)
        os.close(reader)  # a pipe without a reader is no signal
        assert ask(server, "GET", "/health").status == 200
        assert wait_until(lambda: server.info().log_lost == 1)
    os.close(writer)


def test_a_socket_in_another_ones_place_stays(tmp_path, engine):
    path = tmp_path / "s"
    first = lmnative.Server({"null": engine}, unix_path=path)
    path.unlink()
    with lmnative.Server({"null": engine}, unix_path=path):
        first.close()
        assert path.is_socket()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(HEALTH)
            assert statuses(read_until(client, b"}")) == [200]
    assert not path.exists()


def test_a_socket_whose_backlog_is_full_is_in_use(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as clients:
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(2):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(str(path))
        with pytest.raises(lmnative.IoError, match="another process listens there"):
            lmnative.Server(unix_path=path)
    path.unlink()
    path.write_text("not a socket")
    with pytest.raises(lmnative.IoError, match="something else"):
        lmnative.Server(unix_path=path)
    assert path.read_text() == "not a socket"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_everything_at_once_while_it_stops(threads):
    """Requests, aborts, models that come and go, and several stops at the same time: all of it ends."""
    with lmnative.Engine("null:vocab=300,step_ns=100000") as engine:
        for round_ in range(3):
            server = lmnative.Server({"null": engine}, threads=threads)
            stopped = threading.Event()

            def clients(seed: int, server: lmnative.Server = server, stopped: threading.Event = stopped) -> None:
                while not stopped.is_set():
                    with contextlib.suppress(OSError), connect(server) as client:
                        client.settimeout(TIMEOUT)
                        client.sendall(post("/v1/completions", ENDLESS) if seed % 2 else HEALTH * 3)
                        client.recv(1000)
                        if seed % 3 == 0:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

            def models(server: lmnative.Server = server, stopped: threading.Event = stopped) -> None:
                with contextlib.suppress(lmnative.Error):
                    while not stopped.is_set():
                        server.add(engine, "other")
                        server.remove("other")

            crowd = [threading.Thread(target=clients, args=(i,)) for i in range(6)] + [threading.Thread(target=models)]
            for thread in crowd:
                thread.start()
            time.sleep(0.1)
            stops = [threading.Thread(target=server.stop, args=(grace,)) for grace in (60, 0.1 * round_, 30)]
            for thread in stops:
                thread.start()
            for thread in stops:
                thread.join(TIMEOUT)
                assert not thread.is_alive()
            stopped.set()
            server.close()
            for thread in crowd:
                thread.join(TIMEOUT)
                assert not thread.is_alive()
        assert wait_until(lambda: engine.stats()["running"] == engine.stats()["waiting"] == 0)
        stats = engine.stats()
        assert stats["submitted"] == stats["finished"] + stats["cancelled"] + stats["failed"]
        assert stats["kv_pages_used"] == 0
