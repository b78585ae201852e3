# SPDX-License-Identifier: Apache-2.0
"""What the server asks Python for: chats by templates that the library does not know, and ids of embedding models."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lmnative
import numpy as np
import pytest
from conftest import wait_until
from serving import ask, connect

TEMPLATE = (
    "{%- if messages[0].role == 'tool' %}{{ raise_exception('no tools first') }}{% endif -%}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | upper }}<|im_end|>\n{% endfor -%}"
    "{%- if tools %}T{{ tools[0].function.name }}{% endif %}{% if word %}W{{ word }}{% endif -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BROKEN = "{% for m in messages %}{{ m.content }}{% endfor %}{{ absent.attribute.of_nothing }}"
MESSAGES = [{"role": "user", "content": "Where is north?"}]


def with_template(model_path: str, template: str, folder: Path) -> str:
    """A copy of the model with another chat template, as long as its own."""
    data = Path(model_path).read_bytes()
    own = lmnative.Model(model_path).metadata["tokenizer.chat_template"].encode()
    assert data.count(own) == 1
    path = folder / "model.gguf"
    padded = template.encode() + b"{#" + b" " * (len(own) - len(template.encode()) - 4) + b"#}"
    path.write_bytes(data.replace(own, padded))
    return str(path)


@pytest.fixture(scope="module")
def templated(model_path, tmp_path_factory):
    path = with_template(model_path, TEMPLATE, tmp_path_factory.mktemp("templated"))
    with lmnative.LLM(path, threads=2, context_tokens=512) as llm:
        yield llm


@pytest.fixture(scope="module")
def server(templated):
    with lmnative.Server({"m": templated}) as server:
        yield server


def chat(server, messages=MESSAGES, **options):
    return ask(
        server,
        "POST",
        "/v1/chat/completions",
        {"messages": messages, "max_tokens": 6, "temperature": 0, **options},
    )


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({}, "<|im_start|>user\nWHERE IS NORTH?<|im_end|>\n<|im_start|>assistant\n"),
        (
            {"tools": [{"type": "function", "function": {"name": "clock"}}]},
            "<|im_start|>user\nWHERE IS NORTH?<|im_end|>\nTclock<|im_start|>assistant\n",
        ),
        (
            {"chat_template_kwargs": {"word": "up", "add_generation_prompt": False}},
            "<|im_start|>user\nWHERE IS NORTH?<|im_end|>\nWup",
        ),
    ],
)
def test_a_template_by_jinja2(server, templated, options, prompt):
    want = templated.generate(prompt, max_tokens=6, parse_special=True)
    got = chat(server, **options).json()
    assert got["choices"][0]["message"]["content"] == want.text
    assert got["usage"]["prompt_tokens"] == want.usage.prompt_tokens


def test_the_same_as_without_a_server(server, templated):
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    assert (
        chat(server, messages).json()["choices"][0]["message"]["content"] == templated.chat(messages, max_tokens=6).text
    )


def test_a_template_that_refuses(server):
    answer = chat(server, [{"role": "tool", "content": "x", "tool_call_id": "1"}])
    assert answer.status == 400 and "no tools first" in answer.error()["message"]


def test_messages_on_which_a_template_fails(server):
    answer = chat(server, [{"role": "user", "content": None}, {"role": "user", "content": "x"}])
    assert answer.status in (200, 400)
    answer = chat(server, chat_template_kwargs=[1])
    assert answer.status == 400 and "chat_template_kwargs" in answer.error()["message"]
    answer = chat(server, tools=7)
    assert answer.status == 400


def test_a_template_that_is_broken(model_path, tmp_path):
    path = with_template(model_path, BROKEN, tmp_path)
    with lmnative.LLM(path, threads=1, context_tokens=64) as llm, lmnative.Server({"m": llm}) as server:
        answer = chat(server)
        assert answer.status == 500 and answer.error()["type"] == "server_error"
        assert "absent" in answer.error()["message"]
        assert ask(server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}).status == 200


def test_a_model_without_a_template():
    with lmnative.Server("null:vocab=300") as server:
        assert chat(server).status == 400


def test_calls_as_templates_expect_them(model_path):
    from lmnative.server_callbacks import render_chat

    tokenizer = lmnative.Tokenizer(lmnative.Model(model_path))._handle
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, "b"]}'}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    template = (
        b"{{ messages[1].tool_calls[0].function.arguments.a[1] }}{{ messages[1].content is none }}{{ eos_token }}"
    )
    assert render_chat(tokenizer, template, json.dumps({"messages": messages}).encode()) == (0, "bTrue<|im_end|>")


# Tokenizers of Python -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((300, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def session(table):
    graph = lmnative.Graph()
    ids = graph.input("input_ids", "int64", ("batch", "tokens"))
    graph.input("attention_mask", "int64", ("batch", "tokens"))
    graph.output("hidden", graph.op("Gather", table, ids))
    return graph.session(threads=1)


def embed(server, text="abc", **options):
    return ask(server, "POST", "/v1/embeddings", {"input": text, **options})


def vector(answer) -> np.ndarray:
    return np.array(answer.json()["data"][0]["embedding"])


@pytest.mark.parametrize(
    "tokenizer",
    [
        lambda text: list(text.encode()),
        lambda text: np.frombuffer(text.encode(), np.uint8),
        lambda text: {"input_ids": list(text.encode()), "attention_mask": [1] * len(text)},
        SimpleNamespace(encode=lambda text: SimpleNamespace(ids=list(text.encode()))),
    ],
    ids=["list", "array", "mapping", "encode"],
)
def test_kinds_of_tokenizers(session, table, tokenizer):
    with lmnative.Server() as server:
        server.add_embedding(session, "e", tokenizer=tokenizer, normalize=False)
        assert vector(embed(server)) == pytest.approx(table[[97, 98, 99]].mean(axis=0), abs=1e-6)


def test_a_tokenizer_of_the_library(session, table):
    tokenizer = lmnative.Tokenizer(lmnative.Model("null:vocab=300"))
    with lmnative.Server() as server:
        server.add_embedding(session, "e", tokenizer=tokenizer, normalize=False)
        del tokenizer
        assert vector(embed(server)) == pytest.approx(table[[97, 98, 99]].mean(axis=0), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_of_inputs_of_several_lengths(session, table, pooling, normalize):
    texts = ["a", "bcd", "efghijk", "lm"]
    with lmnative.Server() as server:
        server.add_embedding(
            session,
            "e",
            tokenizer=lambda text: list(text.encode()),
            pooling=pooling,
            normalize=normalize,
            max_batch=3,
            pad_id=299,
        )
        data = embed(server, texts).json()["data"]
    for text, item in zip(texts, data, strict=True):
        rows = table[list(text.encode())].astype(np.float64)
        want = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[pooling]
        want = want / np.linalg.norm(want) if normalize else want
        assert np.array(item["embedding"]) == pytest.approx(want, abs=1e-6)


def test_failures_of_tokenizers(session):
    def refuse(text: str):
        raise {"bad": ValueError("no such word"), "bug": RuntimeError("boom")}.get(text, AssertionError)

    with lmnative.Server() as server:
        server.add_embedding(session, "e", tokenizer=refuse)
        answer = embed(server, "bad")
        assert answer.status == 400 and "no such word" in answer.error()["message"]
        answer = embed(server, "bug")
        assert answer.status == 500 and "boom" in answer.error()["message"]
        server.add_embedding(session, "wrong", tokenizer=lambda text: ["x"])
        assert embed(server, "x", model="wrong").status in (400, 500)
        assert server.info().failed >= 1


def test_a_server_that_its_own_callback_frees(session):
    held = []

    def drop(text: str) -> list[int]:
        held.clear()  # the last reference: this is a thread of that server
        return [1]

    held.append(lmnative.Server())
    held[0].add_embedding(session, "e", tokenizer=drop)
    server = SimpleNamespace(port=held[0].port)
    with contextlib.suppress(OSError, http.client.HTTPException):
        embed(server)
    assert held == []

    def gone() -> bool:
        try:
            connect(server).close()
        except OSError:
            return True
        return False

    assert wait_until(gone)


EXIT = """
import json, threading, time, urllib.request
import lmnative

asked = threading.Event()

def slow(text):
    asked.set()
    time.sleep(0.5)
    return [1]

graph = lmnative.Graph()
ids = graph.input("input_ids", "int64", ("batch", "tokens"))
graph.input("attention_mask", "int64", ("batch", "tokens"))
graph.output("hidden", graph.op("Cast", graph.op("Unsqueeze", ids, [2]), to=1))
server = lmnative.Server()
server.add_embedding(graph.session(threads=1), "e", tokenizer=slow)

def ask():
    body, kind = json.dumps({"input": "x"}).encode(), {"Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(server.url + "/v1/embeddings", body, kind)).read()
    except Exception:
        pass

threading.Thread(target=ask, daemon=True).start()
while not asked.wait(0.01):
    pass
"""


def test_the_end_of_the_interpreter_with_a_callback_running():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_limits_of_embeddings(session):
    with lmnative.Server() as server:
        server.add_embedding(session, "e", max_tokens=4)
        assert embed(server, [1, 2, 3, 4]).status == 200
        answer = embed(server, [1, 2, 3, 4, 5])
        assert answer.status == 400 and "4" in answer.error()["message"]
        assert embed(server, "text").status == 400  # no tokenizer
        assert embed(server, [10**6]).status in (400, 500)


def test_arguments(session):
    with lmnative.Server() as server:
        for keywords, error in (
            ({"pooling": "max"}, lmnative.InvalidArgumentError),
            ({"tokenizer": 7}, TypeError),
            ({"normalize": 1}, TypeError),
            ({"max_tokens": 0}, lmnative.InvalidArgumentError),
        ):
            with pytest.raises(error, match=next(iter(keywords))):
                server.add_embedding(session, "e", **keywords)
        with pytest.raises(TypeError, match="session"):
            server.add_embedding("model.onnx", "e")
        other = lmnative.Graph()
        other.output("y", other.op("Relu", other.input("x", "float32", ("n",))))
        with pytest.raises(lmnative.Error, match="input_ids"):
            server.add_embedding(other.session(), "e")
