# SPDX-License-Identifier: Apache-2.0
"""lmnative.Server and its endpoints: models, keys, header fields, log, metrics, stopping."""

from __future__ import annotations

import gc
import http.client
import json
import os
import re
import signal
import socket
import threading
import time

import lmnative
import pytest
from conftest import wait_until
from serving import SLOW, TIMEOUT, ask, connect, events, post, read_all, read_until, send

ONE = {"prompt": "x", "max_tokens": 1}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def engine():
    with lmnative.Engine(SLOW) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine):
    with lmnative.Server({"null": engine}) as server:
        yield server


# Models -------------------------------------------------------------------------------------------


def test_several_models(engine, tmp_path):
    with lmnative.Server() as server:
        assert ask(server, "GET", "/health/live").status == 200
        for path in ("/health", "/health/ready"):
            answer = ask(server, "GET", path)
            assert (answer.status, answer.json()) == (503, {"status": "loading"})
        assert ask(server, "POST", "/v1/completions", ONE).status in (404, 503)
        assert server.add("null:vocab=300") == "null"
        assert server.add(engine, "slow") == "slow"
        assert ask(server, "GET", "/health/ready").status == ask(server, "GET", "/health").status == 200
        assert server.info().models == 2
        assert ask(server, "POST", "/v1/completions", ONE).error()["param"] == "model"
        before = engine.stats()["finished"]
        assert ask(server, "POST", "/v1/completions", {**ONE, "model": "slow"}).json()["model"] == "slow"
        assert engine.stats()["finished"] == before + 1
        with pytest.raises(lmnative.InvalidArgumentError, match="slow"):
            server.add(engine, "slow")
        server.remove("slow")
        with pytest.raises(lmnative.NotFoundError, match="slow"):
            server.remove("slow")
        assert ask(server, "POST", "/v1/completions", {**ONE, "model": "slow"}).error()["code"] == "model_not_found"
        assert ask(server, "POST", "/v1/completions", ONE).json()["model"] == "null"


def test_a_model_is_served_when_its_handle_is_closed():
    with lmnative.Server() as server:
        with lmnative.LLM("null:vocab=300") as llm:
            assert server.add(llm) == "null"
        assert ask(server, "POST", "/v1/completions", ONE).status == 200


def test_a_removed_model_cancels_its_requests(engine):
    with lmnative.Server({"null": engine}) as server, connect(server) as connection:
        cancelled = engine.stats()["cancelled"]
        connection.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True}))
        read_until(connection, b"data: ")
        server.remove("null")
        assert b"error" in read_until(connection, b"\r\n0\r\n\r\n")
        assert wait_until(lambda: engine.stats()["cancelled"] == cancelled + 1)


def test_names_of_models(model_path, tmp_path):
    from lmnative.server import served_name

    assert served_name("smollm2-135m") == "smollm2-135m"
    assert served_name("/a/b/Model.Q4_1.gguf") == "Model.Q4_1"
    assert served_name("null:vocab=300") == "null"


def test_admin():
    with lmnative.Server("null:vocab=300") as server:
        assert ask(server, "GET", "/admin/models").status == 404
    with lmnative.Server("null:vocab=300", admin_keys=["root"], api_keys=["user"]) as server:
        bearer = {"Authorization": "Bearer root"}
        assert ask(server, "GET", "/admin/models").status == 401
        assert ask(server, "GET", "/admin/models", Authorization="Bearer user").status in (401, 403)
        assert ask(server, "GET", "/v1/models", **bearer).status == 200  # it opens the rest as well
        answer = ask(server, "POST", "/admin/models", {"model": "null:vocab=400", "name": "more"}, **bearer)
        assert answer.status == 202

        def state(name: str) -> str | None:
            listed = ask(server, "GET", "/admin/models", **bearer).json()["data"]
            return next((model["state"] for model in listed if model["name"] == name), None)

        assert wait_until(lambda: state("more") == "ready")
        assert ask(server, "POST", "/v1/completions", {**ONE, "model": "more"}, **bearer).status == 200
        assert ask(server, "POST", "/admin/models", {"model": "absent.gguf", "name": "bad"}, **bearer).status == 202
        assert wait_until(lambda: state("bad") == "failed")
        listed = ask(server, "GET", "/admin/models", **bearer).json()["data"]
        assert "absent.gguf" in next(model["error"] for model in listed if model["name"] == "bad")
        assert ask(server, "DELETE", "/admin/models/more", **bearer).status == 204
        assert ask(server, "DELETE", "/admin/models/more", **bearer).status == 404
        assert state("more") is None and state("null") == "ready"
        for body in ({}, {"model": 7}, {"model": "null:", "name": ""}, {"model": "null:", "threads": -1}):
            assert ask(server, "POST", "/admin/models", body, **bearer).status == 400


# Endpoints ----------------------------------------------------------------------------------------


def test_tokenize_and_detokenize(llm, golden):
    with lmnative.Server({"m": llm}) as server:
        for case in golden["tokenizer"]:
            answer = ask(server, "POST", "/tokenize", {"content": case["text"], "add_special": False}).json()
            assert answer == {"tokens": case["ids_no_special"], "count": len(case["ids_no_special"])}
            back = ask(server, "POST", "/detokenize", {"tokens": answer["tokens"]}).json()
            assert back["content"] == llm.tokenizer.decode(answer["tokens"])
        for special in (False, True):
            answer = ask(server, "POST", "/tokenize", {"content": "<|im_start|>", "parse_special": special}).json()
            assert answer["tokens"] == llm.tokenizer.encode("<|im_start|>", parse_special=special)
        assert ask(server, "POST", "/detokenize", {"tokens": [10**6]}).error()["param"] == "tokens"


def test_version_and_openapi(server):
    version = ask(server, "GET", "/version").json()
    info = lmnative.build_info()
    assert version == {name: info[name] for name in ("version", "abi_version", "cpu_target")}
    api = ask(server, "GET", "/openapi.json").json()
    assert api["openapi"].startswith("3.")
    assert {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"} <= set(api["paths"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/absent", 404),
        ("GET", "/v1/completions", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/models/absent", 404),
        ("DELETE", "/v1/models/null", 405),
    ],
)
def test_wrong_paths_and_methods(server, method, path, status):
    answer = ask(server, method, path)
    assert answer.status == status and answer.error()["type"] == "invalid_request_error"
    assert status != 405 or answer.headers["Allow"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"prompt": "\xff"}', b"{" * 10000, b'{"prompt": 1e999}'])
def test_bodies_that_are_no_request(server, body):
    answer = ask(server, "POST", "/v1/completions", body)
    assert answer.status == 400 and answer.error()["type"] == "invalid_request_error"


def test_the_page(server):
    assert ask(server, "GET", "/").headers["Content-Type"].startswith("text/html")
    with lmnative.Server("null:", page=False) as plain:
        assert ask(plain, "GET", "/").status == 404
        assert ask(plain, "GET", "/health").status == 200


def test_stats_are_the_engines(server, engine):
    ask(server, "POST", "/v1/completions", ONE)

    def figures() -> dict:
        return ask(server, "GET", "/stats").json()

    # A step is counted when it has ended, after its answers are on their way.
    assert wait_until(
        lambda: (
            figures()["models"][0]["latency"]["step"]["count"] == engine.histograms()["step"].count
            and engine.stats()["running"] == 0
        )
    )
    stats, want = figures(), engine.stats()
    (model,) = stats["models"]
    assert model["name"] == "null" and model["kind"] == "engine"
    for name in ("threads", "context_tokens", "submitted", "finished", "cancelled", "generated_tokens", "kv_pages"):
        assert model[name] == want[name], name
    assert stats["server"]["accepted"] <= server.info().accepted


SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})? ([-+.\deE]+|NaN|[+-]Inf)')


def test_metrics(server, engine):
    answer = ask(server, "GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    types: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in answer.body.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram", "summary")
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in types or family in types, f"{line}: its type comes first"
            assert line.rpartition(" ")[0] not in samples
            samples[line.rpartition(" ")[0]] = float(match[3])
    generated = engine.stats()["generated_tokens"]
    assert any(value == generated for name, value in samples.items() if 'model="null"' in name and "token" in name)
    for name, kind in types.items():
        assert kind != "counter" or name.endswith("_total"), name


# Who may ------------------------------------------------------------------------------------------


def test_keys():
    with lmnative.Server("null:vocab=300", api_keys=["secret"]) as server:
        for path in ("/", "/health", "/health/ready", "/version", "/openapi.json"):
            assert ask(server, "GET", path).status == 200, path
        for path in ("/v1/models", "/metrics", "/stats"):
            for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "secret"}, {"X_Api_Key": "secret"}):
                answer = ask(server, "GET", path, **headers)
                assert answer.status == 401 and answer.error()["type"] == "authentication_error"
            assert ask(server, "GET", path, Authorization="Bearer secret").status == 200
        assert ask(server, "POST", "/v1/completions", ONE, Authorization="bearer secret").status == 200


def test_cors():
    with lmnative.Server("null:vocab=300", cors_origins=["https://a.example"], api_keys=["k"]) as server:
        ask_for = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
        answer = ask(server, "OPTIONS", "/v1/completions", Origin="https://a.example", **ask_for)
        assert answer.status in (200, 204)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()
        answer = ask(server, "POST", "/v1/completions", ONE, Origin="https://a.example")
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, "https://a.example")
        answer = ask(server, "POST", "/v1/completions", ONE, Origin="https://a.example", Authorization="Bearer k")
        assert answer.status == 200
        for method in ("OPTIONS", "POST"):  # other pages may not, key or not
            headers = {"Origin": "https://b.example", "Authorization": "Bearer k", **ask_for}
            answer = ask(server, method, "/v1/completions", ONE if method == "POST" else None, **headers)
            assert answer.headers["Access-Control-Allow-Origin"] is None
            assert method == "OPTIONS" or answer.error()["code"] == "origin_not_allowed"
    with lmnative.Server("null:vocab=300", cors_origins=["*"]) as server:
        assert ask(server, "GET", "/v1/models", Origin="https://x").headers["Access-Control-Allow-Origin"] == "*"
    with lmnative.Server("null:vocab=300") as server:
        assert ask(server, "GET", "/v1/models", Origin="https://x").status == 403
        assert ask(server, "GET", "/v1/models", Origin=server.url).status == 200  # its own page
        rebound = {"Origin": "http://a.example", "Host": "a.example"}  # a name that points here
        assert ask(server, "GET", "/v1/models", **rebound).status == 403


# Header fields ------------------------------------------------------------------------------------


def test_request_ids_and_traces(server):
    answer = ask(server, "GET", "/health", X_Request_Id="job-7", traceparent=TRACE)
    assert answer.headers["X-Request-Id"] == "job-7"
    version, trace, span, flags = answer.headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE.split("-")[1], "01")
    assert re.fullmatch("[0-9a-f]{16}", span) and span != TRACE.split("-")[2]
    made = set()
    for bad in ("", "y" * 129, "a\tb"):
        answer = ask(server, "GET", "/health", X_Request_Id=bad, traceparent=TRACE.replace("4", "G"))
        made.add(answer.headers["X-Request-Id"])
        assert answer.headers["X-Request-Id"] not in ("", bad)
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", answer.headers["traceparent"])
    assert len(made) == 3


def test_deadline(server):
    body = {"prompt": "x", "max_tokens": 2000}
    answer = ask(server, "POST", "/v1/completions", body, X_Deadline_Ms="60")
    assert answer.status == 200 and answer.json()["usage"]["completion_tokens"] < 100
    for field, value in (
        ("X_Deadline_Ms", "soon"),
        ("X_Deadline_Ms", "-1"),
        ("X_Priority", "3"),
        ("X_Priority", "high"),
        ("X_Token_Interval_Ms", "x"),
    ):
        answer = ask(server, "POST", "/v1/completions", body, **{field: value})
        assert answer.status == 400 and answer.error()["param"].lower() == field.replace("_", "-").lower()


def test_token_interval(server):
    start = time.monotonic()
    answer = ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 6}, X_Token_Interval_Ms="40")
    assert answer.json()["usage"]["completion_tokens"] == 6
    assert time.monotonic() - start >= 5 * 0.040


def test_priority():
    with lmnative.Engine(SLOW, max_sequences=1) as engine, lmnative.Server({"n": engine}) as server:
        ended: list[str] = []

        def request(name: str, priority: str) -> None:
            ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 50}, X_Priority=priority)
            ended.append(name)

        threads = []
        for number, (name, priority) in enumerate((("running", "2"), ("low", "-2"), ("high", "2"))):
            threads.append(threading.Thread(target=request, args=(name, priority)))
            threads[-1].start()
            assert wait_until(lambda number=number: engine.stats()["submitted"] == number + 1)
        for thread in threads:
            thread.join()
        assert ended == ["running", "high", "low"]


# The log ------------------------------------------------------------------------------------------


def test_log(tmp_path):
    path = tmp_path / "log"
    with path.open("ab") as log, lmnative.Server(SLOW, log=log) as server:
        ask(server, "GET", "/health", X_Request_Id="one")
        ask(
            server, "POST", "/v1/completions", {"prompt": "abc", "max_tokens": 5}, traceparent=TRACE, X_Request_Id="two"
        )
        ask(server, "POST", "/v1/completions", {"prompt": 7}, X_Request_Id='a"quote')
        with connect(server) as connection:
            connection.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True}))
            read_until(connection, b"data: ")
            connection.sendall(b"")
        assert wait_until(lambda: path.read_bytes().count(b"\n") == 4)
        assert server.info().log_lost == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_id = {line["id"]: line for line in lines}
    assert (by_id["one"]["method"], by_id["one"]["path"], by_id["one"]["status"]) == ("GET", "/health", 200)
    assert "model" not in by_id["one"]
    two = by_id["two"]
    assert (two["model"], two["prompt_tokens"], two["completion_tokens"], two["finish"]) == ("null", 3, 5, "length")
    assert two["trace_id"] == TRACE.split("-")[1]
    assert 0 <= two["queue_ms"] <= two["first_token_ms"] <= two["total_ms"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", two["time"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", two["client"])
    assert by_id['a"quote']["status"] == 400
    (gone,) = (line for line in lines if line.get("aborted"))
    assert gone["path"] == "/v1/completions"


def test_a_log_that_nobody_reads_stops_nothing():
    reader, writer = os.pipe()
    try:
        with lmnative.Server("null:vocab=300", log=writer) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
            for _ in range(600):  # a pipe takes 64 KiB
                assert send(connection, "GET", "/health").status == 200
            connection.close()
    finally:
        os.close(reader)
        os.close(writer)


# The object ---------------------------------------------------------------------------------------


def test_stop_lets_what_runs_end(engine):
    server = lmnative.Server({"null": engine})
    with connect(server) as running, connect(server) as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(idle, b"}")
        running.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 200, "temperature": 0, "stream": True}))
        read_until(running, b"data: ")
        outcome = []
        stopping = threading.Thread(target=lambda: outcome.append(server.stop(grace=20)))
        stopping.start()
        assert read_all(idle) == b""
        with pytest.raises(OSError):
            connect(server)
        rest = read_all(running)
        stopping.join()
    assert outcome == [True]
    assert sum(map(len, re.findall(rb'"text": ?"(a*)"', rest))) > 150 and b"[DONE]" in rest
    assert server.stop() and server.wait(0)
    server.close()


def test_stop_cancels_after_the_grace(engine):
    with lmnative.Server({"null": engine}) as server, connect(server) as running:
        running.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True}))
        read_until(running, b"data: ")
        assert server.stop(grace=0.2) is False
        assert b"error" in read_all(running)
        assert wait_until(lambda: engine.stats()["running"] == 0)


def test_ctrl_c_ends_waits(engine):
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with lmnative.Server({"null": engine}) as server, connect(server) as running:
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, interrupt).start()
            server.wait()
        running.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True}))
        read_until(running, b"data: ")
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, interrupt).start()
            server.stop(grace=3600)


def test_info_counts():
    with lmnative.Server("null:vocab=300") as server:
        assert server.address == server.url == f"http://127.0.0.1:{server.port}"
        ask(server, "GET", "/health")
        ask(server, "GET", "/absent")
        info = server.info()
        assert (info.port, info.models, info.threads >= 1) == (server.port, 1, True)
        assert (info.accepted, info.answered, info.refused, info.failed) == (2, 2, 1, 0)
        assert wait_until(lambda: server.info().connections == 0)
        assert server.info().requests == 0
    assert server.closed and "closed" in repr(server)
    with pytest.raises(lmnative.ClosedError):
        server.info()
    server.close()


def test_a_port_in_use(server):
    with pytest.raises(lmnative.IoError, match=str(server.port)):
        lmnative.Server(port=server.port)
    with pytest.raises(lmnative.IoError, match="192.0.2.1"):
        lmnative.Server(host="192.0.2.1")


def test_ipv6():
    try:
        server = lmnative.Server("null:", host="::1")
    except lmnative.IoError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert server.url == f"http://[::1]:{server.port}"
        connection = http.client.HTTPConnection("::1", server.port, timeout=TIMEOUT)
        assert send(connection, "GET", "/health").status == 200
        connection.close()


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"port": 70000}, lmnative.InvalidArgumentError, "port is 70000"),
        ({"port": "80"}, TypeError, "port"),
        ({"threads": 65}, lmnative.InvalidArgumentError, "threads is 65"),
        ({"threads": 0}, lmnative.InvalidArgumentError, "threads is 0"),
        ({"max_header_bytes": 2**21}, lmnative.InvalidArgumentError, "max_header_bytes"),
        ({"header_timeout": 0}, lmnative.InvalidArgumentError, "header_timeout"),
        ({"api_keys": "secret"}, TypeError, "api_keys"),
        ({"api_keys": [""]}, lmnative.InvalidArgumentError, "api_keys"),
        ({"api_keys": [b"x"]}, TypeError, "api_keys"),
        ({"log": "file"}, TypeError, "log"),
        ({"log": 0}, lmnative.InvalidArgumentError, "log is 0"),
        ({"log": 9999}, lmnative.Error, "9999"),
        ({"page": 1}, TypeError, "page"),
        ({"host": ""}, lmnative.InvalidArgumentError, "host"),
        ({"unix_path": "/" + "x" * 200}, lmnative.Error, "xxx"),
        ({"models": "absent.gguf"}, lmnative.NotFoundError, "absent.gguf"),
        ({"frobnicate": 1}, TypeError, "frobnicate"),
    ],
)
def test_errors(keywords, error, message):
    with pytest.raises(error, match=re.escape(message)):
        lmnative.Server(**keywords)


def test_a_child_gets_an_error_and_leaves_the_server_alone(tmp_path):
    path = tmp_path / "socket"
    with lmnative.Server("null:vocab=300", unix_path=path) as server:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                server.info()
            except lmnative.ClosedError:
                server.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(TIMEOUT)
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b" 200 " in read_all(client)
    assert not path.exists()


def test_dropping_a_server_ends_it():
    server = lmnative.Server("null:")
    port = server.port
    del server
    gc.collect()
    with pytest.raises(OSError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT).connect()


def test_streams_of_many_clients_are_whole(server):
    texts: list[str] = []

    def client() -> None:
        body = {"prompt": "x", "max_tokens": 30, "temperature": 0, "stream": True}
        texts.append(
            "".join(e["choices"][0]["text"] for e in events(ask(server, "POST", "/v1/completions", body).body))
        )

    threads = [threading.Thread(target=client) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["a" * 30] * 24
