# SPDX-License-Identifier: Apache-2.0
"""Writes seed files for the fuzz target of the HTTP server into a folder. Usage: make_server_corpus.py FOLDER

Each is what a client sends, followed by the nine bytes that tell the target how (tests/fuzz/server_fuzz.cc).
"""

import json
import pathlib
import sys

AT_ONCE = bytes(9)
IN_PIECES = bytes([0, 3, 40, 1, 100, 7, 60, 2, 0])
IN_A_HURRY = bytes([1, 0, 0, 0, 0, 0, 0, 0, 0])

CHAT = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}], "max_tokens": 3}
SAMPLING = {
    "temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": 5, "seed": 7, "presence_penalty": 1,
    "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"97": -100, "98": 5}, "ignore_eos": True,
}  # fmt: skip
POSTS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2, "n": 2, "max_completion_tokens": 2}),
    ("/v1/chat/completions", {**CHAT, "tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_object"}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "é"}]}]}),
    ("/v1/completions", {"model": "null", "prompt": "a", "max_tokens": 2, **SAMPLING}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2, "stop": ["zz", "y"], "stream": True}),
    ("/v1/completions", {"prompt": [97, 98], "logprobs": 2, "max_tokens": 2}),
    ("/v1/completions", {"prompt": [[97], [98]], "echo": True, "max_tokens": 2, "stop": "q"}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
    ("/tokenize", {"content": "hello \u00e9\ud83d\ude00", "add_special": False, "parse_special": True}),
    ("/detokenize", {"tokens": [104, 105]}),
]  # fmt: skip
PATHS = [
    "/", "/page.css", "/health", "/health/live", "/v1/models", "/v1/models/null", "/v1/models/%6eull", "/metrics",
    "/stats", "/version", "/nothing?a=b#c", "http://x/version", "*", "/admin/models",
]  # fmt: skip
FIELDS = [
    "Connection: close", "Connection: keep-alive", "X-Priority: 2", "X-Deadline-Ms: 5000", "X-Tenant: t",
    "X-Request-Id: r", "traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
    "Origin: https://example.com", "Origin: http://localhost", "Expect: 100-continue", "Authorization: Bearer k",
    "Transfer-Encoding: chunked", "Content-Encoding: gzip", "Content-Type: application/json; charset=utf-8",
]  # fmt: skip


def request(line: str, *fields: str, body: bytes = b"", length: bool = True) -> bytes:
    fields = ("Host: localhost", *fields, *([f"Content-Length: {len(body)}"] if body and length else []))
    return "\r\n".join([line, *fields, "", ""]).encode() + body


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"


def seeds():
    whole = [request(f"GET {path} HTTP/1.1") for path in PATHS]
    posts = []
    for path, value in POSTS:
        body = json.dumps(value).encode()
        posts.append(request(f"POST {path} HTTP/1.1", body=body))
        posts.append(request(f"POST {path} HTTP/1.0", body=body))
        posts.append(
            request(f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", body=chunked(body, 20), length=False)
        )
    fields = [request("GET /version HTTP/1.1", field) for field in FIELDS]
    fields += [request("POST /tokenize HTTP/1.1", field, body=b'{"content":"a"}') for field in FIELDS]
    fields.append(
        request("OPTIONS /v1/models HTTP/1.1", "Origin: https://example.com", "Access-Control-Request-Method: GET")
    )
    fields.append(request("HEAD /v1/models HTTP/1.1") + request("DELETE /v1/models HTTP/1.1"))
    for i, data in enumerate(whole + posts + fields):
        yield f"whole{i}", data + AT_ONCE
        yield f"pieces{i}", data + IN_PIECES
    for i in range(0, len(posts) - 3, 3):
        yield f"pipelined{i}", posts[i] + whole[i % len(whole)] + posts[i + 1] + posts[i + 2] + IN_A_HURRY


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
