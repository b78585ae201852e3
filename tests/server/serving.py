# SPDX-License-Identifier: Apache-2.0
"""What tests of the server share: asking it by http.client or by a bare socket, and reading event streams."""

from __future__ import annotations

import http.client
import json
import re
import socket
from typing import NamedTuple

import lmnative

TIMEOUT = 20.0
SLOW = "null:vocab=300,step_ns=2000000"
"""A model that takes 2 ms for a token: its answers last as long as a test needs."""


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)

    def error(self) -> dict:
        """The error of OpenAI's shape; all its fields are there."""
        error = self.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"} and error["message"]
        return error


def ask(server: lmnative.Server, method: str, path: str, body: object = None, **headers: str) -> Answer:
    """One request on a connection of its own. `body`: JSON, or bytes as they are. Header X_Name is X-Name."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
    try:
        return send(connection, method, path, body, **headers)
    finally:
        connection.close()


def send(connection: http.client.HTTPConnection, method: str, path: str, body: object = None, **headers: str) -> Answer:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if data is not None:
        names = {"Content-Type": "application/json", **names}
    connection.request(method, path, data, names)
    response = connection.getresponse()
    return Answer(response.status, response.headers, response.read())


def events(body: bytes) -> list[dict]:
    """The data of a stream's events, all but the last one, which is [DONE]."""
    parts = body.decode("utf-8").split("\n\n")
    assert parts.pop() == "", "an event ends with an empty line"
    lines = [line.removeprefix("data: ") for part in parts for line in part.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def connect(server: lmnative.Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        assert piece, f"closed after {data!r}"
        data += piece
    return data


def exchange(server: lmnative.Server, data: bytes) -> bytes:
    """Sends requests of which the last one asks to close, and reads all."""
    with connect(server) as connection:
        connection.sendall(data)
        return read_all(connection)


def post(path: str, body: object, *lines: str, version: str = "1.1") -> bytes:
    """The bytes of a request. `lines`: more header lines."""
    data = json.dumps(body).encode()
    head = [f"POST {path} HTTP/{version}", "Host: x", "Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*head, *lines, "", ""]).encode() + data


def statuses(data: bytes) -> list[int]:
    """Of the answers that a connection has given."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+) ", data)]
