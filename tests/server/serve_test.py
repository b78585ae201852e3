# SPDX-License-Identifier: Apache-2.0
"""The command lmnative serve: options, keys, the ready line, signals."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import lmnative
import pytest
from conftest import wait_until
from serving import SLOW, TIMEOUT, events, read_all, send

COMMAND = [sys.executable, "-m", "lmnative", "serve"]
READY = re.compile(r"lmnative: serving (.+) at (http://127\.0\.0\.1:(\d+)|unix:.+?)( \(page at /\))?\n")


@contextlib.contextmanager
def serving(*arguments: str, warnings: int = 0, **environment: str) -> Iterator[tuple[subprocess.Popen, re.Match]]:
    """The running command, and its ready line, which comes after so many warnings."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    try:
        for _ in range(warnings):
            assert process.stderr.readline().startswith("lmnative: warning: ")
        line = process.stderr.readline()
        match = READY.fullmatch(line)
        assert match, line
        yield process, match
    finally:
        process.kill()
        process.communicate()


def connection(match: re.Match) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", int(match[3]), timeout=TIMEOUT)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Exit code, and what it still said on standard error."""
    _, said = process.communicate(timeout=TIMEOUT)
    return process.returncode, said


def test_serves(model_path, llm):
    with serving("--port", "0", f"small={model_path}", "-t", "2", "-c", "512") as (process, match):
        assert (match[1], match[4]) == ("small", " (page at /)")
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}
        answer = send(connection(match), "POST", "/v1/chat/completions", body).json()
        assert answer["choices"][0]["message"]["content"] == llm.chat("Hi", max_tokens=8).text
        process.send_signal(signal.SIGINT)
        assert ended(process) == (0, "")


def start_stream(match: re.Match, tokens: int = 300) -> http.client.HTTPResponse:
    asked = connection(match)
    body = json.dumps({"prompt": "x", "max_tokens": tokens, "temperature": 0, "stream": True})
    asked.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = asked.getresponse()
    assert answer.status == 200
    return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_streams_end(number):
    with serving("--port", "0", "--no-page", SLOW) as (process, match):
        assert (match[1], match[4]) == ("null", None)
        answer = start_stream(match)
        process.send_signal(number)
        text = "".join(event["choices"][0]["text"] for event in events(answer.read()))
        assert text == "a" * 300
        assert ended(process) == (0, "")


def test_the_grace_ends():
    with serving("--port", "0", "--grace", "0.2", SLOW) as (process, match):
        answer = start_stream(match, 4000)
        process.terminate()
        assert b"error" in answer.read()
        code, said = ended(process)
        assert code == 0 and said.startswith("lmnative: warning: ") and said.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_second_signal_ends_at_once(number, code):
    with serving("--port", "0", "--grace", "3600", SLOW) as (process, match):
        answer = start_stream(match, 4000)
        process.send_signal(number)
        with pytest.raises(OSError):
            while True:  # until nothing is accepted any more: the first one has been seen
                socket.create_connection(("127.0.0.1", int(match[3])), timeout=TIMEOUT).close()
        process.send_signal(number)
        assert ended(process)[0] == code
        answer.close()


def test_keys(tmp_path):
    keys, admin = tmp_path / "keys", tmp_path / "admin"
    keys.write_text("one\n\ntwo\n")
    admin.write_text("root\n")
    keys.chmod(0o600)
    admin.chmod(0o644)
    arguments = ("--port", "0", "--api-key-file", str(keys), "--admin-key-file", str(admin), "null:vocab=300")
    with serving(*arguments, warnings=1, LMNATIVE_API_KEY="three") as (_, match):
        for key, status in (("one", 200), ("two", 200), ("three", 200), ("root", 200), ("", 401), ("four", 401)):
            assert send(connection(match), "GET", "/v1/models", Authorization=f"Bearer {key}").status == status
        assert send(connection(match), "GET", "/admin/models", Authorization="Bearer root").status == 200


def test_log_on_standard_output():
    with serving("--port", "0", "--log", "-", "null:vocab=300") as (process, match):
        send(connection(match), "GET", "/version", X_Request_Id="here")
        line = json.loads(process.stdout.readline())
        assert (line["id"], line["path"], line["status"]) == ("here", "/version", 200)


def test_log_into_a_file_and_a_unix_socket(tmp_path):
    log, path = tmp_path / "log", tmp_path / "socket"
    log.write_text("before\n")
    with serving("--unix-socket", str(path), "--log", str(log), "null:vocab=300") as (process, match):
        assert match[2] == f"unix:{path}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b" 200 " in read_all(client)
        process.terminate()
        assert ended(process) == (0, "")
    assert log.read_text().startswith("before\n{") and not path.exists()


def test_several_models_and_a_warning():
    arguments = ("--host", "0.0.0.0", "--port", "0", "a=null:vocab=300", "b=null:vocab=400", "--max-sequences", "2")
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert "--api-key-file" in process.stderr.readline()
        assert "serving a, b at http://0.0.0.0:" in process.stderr.readline()
        process.terminate()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "MODEL"),
        (["null:", "--port", "many"], 2, "--port"),
        (["null:", "--port", "70000"], 2, "--port is 70000"),
        (["null:", "--io-threads", "100"], 2, "--io-threads is 100"),
        (["null:", "--grace", "-1"], 2, "--grace"),
        (["null:", "--max-sequences", "0"], 2, "--max-sequences"),
        (["null:", "null:"], 2, "same name"),
        (["=null:"], 2, "NAME=MODEL"),
        (["null:", "--api-key-file", "/absent/keys"], 1, "/absent/keys"),
        (["null:", "--api-key-file", os.devnull], 2, os.devnull),
        (["null:", "--log", "/absent/log"], 1, "/absent/log"),
        (["null:", "--host", "192.0.2.1", "--api-key-file", "KEYS"], 1, "192.0.2.1"),
        (["null:", "--unix-socket", "/absent/socket"], 1, "/absent/socket"),
        (["absent.gguf", "--port", "0"], 1, "absent.gguf"),
        (["null:", "--api-key-file", "BYTES"], 2, "line 2 of "),
        (["null:", "--api-key-file", "KEYS", "--admin-key-file", "KEYS"], 2, "admin key"),
        (["null:", "--cors-origin", "example.com"], 2, "--cors-origin example.com"),
        (["null:", "--cors-origin", "https://example.com/"], 2, "--cors-origin https://example.com/"),
        (["null:", "--unix-socket", "/tmp/socket", "--port", "80"], 2, "--unix-socket"),
        (["null:", "--unix-mode", "660"], 2, "--unix-mode"),
    ],
)
def test_errors(tmp_path, arguments, code, message):
    keys = tmp_path / "keys"
    keys.write_text("key")
    keys.chmod(0o600)
    octets = tmp_path / "octets"
    octets.write_bytes(b"key\n\xff\xfe\n")
    octets.chmod(0o600)
    files = {"KEYS": str(keys), "BYTES": str(octets)}
    words = [files.get(word, word) for word in arguments]
    done = subprocess.run([*COMMAND, *words], capture_output=True, encoding="utf-8", timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (code, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("lmnative: warning: ")]
    assert len(lines) == 1 and lines[0].startswith("lmnative: error: ") and message in lines[0], done.stderr


def test_a_key_that_is_set_and_empty():
    done = subprocess.run(
        [*COMMAND, "null:"],
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        env={**os.environ, "LMNATIVE_API_KEY": ""},
    )
    assert done.returncode == 2 and "LMNATIVE_API_KEY is set and empty" in done.stderr


def test_a_log_that_cannot_be_written():
    with serving("--port", "0", "--log", "/dev/full", "null:vocab=300") as (process, match):
        for _ in range(3):
            assert send(connection(match), "GET", "/health/live").status == 200
        assert wait_until(lambda: b"lmnative_http_log_lost_total 3" in send(connection(match), "GET", "/metrics").body)
        process.terminate()
        code, said = ended(process)
    assert code == 0 and "lines of the log were lost" in said


def test_a_port_in_use():
    with lmnative.Server() as other:
        done = subprocess.run([*COMMAND, "null:", "--port", str(other.port)], capture_output=True, encoding="utf-8")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(other.port) in done.stderr


def test_help():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "  lmnative serve " in done.stdout and "SIGTERM" in done.stdout
