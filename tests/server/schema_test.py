# SPDX-License-Identifier: Apache-2.0
"""What the server answers is what /openapi.json says, for thousands of requests that schemathesis makes of it.

The document is narrowed first where a right request would take long: a token a minute, an answer of a whole context.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import lmnative
import numpy as np
import pytest
from serving import ask

ADMIN_KEY = "admin-key"
SECONDS = 240  # after which a run is stuck
CONFORMS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)
REFUSES = ("not_a_server_error", "negative_data_rejection", "unsupported_method", "missing_required_header")
ANSWERS = ("not_a_server_error", "positive_data_acceptance")


@pytest.fixture(scope="module")
def schemathesis() -> str:
    program = Path(sysconfig.get_path("scripts")) / "schemathesis"
    if importlib.util.find_spec("schemathesis") is None or not program.exists():
        pytest.skip("schemathesis is not installed (pip install schemathesis)")
    return str(program)


def narrowed(server: lmnative.Server, model: str) -> dict:
    """The server's document for requests that name `model`, or none, and end soon."""
    document = ask(server, "GET", "/openapi.json").json()
    parts = document["components"]
    parts["schemas"]["ModelName"] = {"enum": [model, None]}
    parts["schemas"]["Sampling"]["properties"]["n"]["maximum"] = 4
    for name in ("ChatCompletionRequest", "CompletionRequest"):
        for field in ("max_tokens", "max_completion_tokens"):
            if field in parts["schemas"][name]["properties"]:
                parts["schemas"][name]["properties"][field]["maximum"] = 64
    parts["parameters"]["TokenIntervalMs"]["schema"]["maximum"] = 1
    return document


def run(program: str, server: lmnative.Server, document: dict, folder: Path, checks: tuple, *options: str) -> None:
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    command = [
        *(sys.executable, program, "run", str(path), f"--url={server.url}", "--no-color", "--warnings=off"),
        *(f"--header=Authorization: Bearer {ADMIN_KEY}", "--request-timeout=20", "--continue-on-failure"),
        *("--generation-deterministic", "--suppress-health-check=all", f"--checks={','.join(checks)}"),
        *options,
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, cwd=folder
    )
    assert done.returncode == 0, done.stdout[-20000:]
    assert server.info().failed == 0


@pytest.fixture(scope="module")
def null_server():
    with lmnative.Server({"null": lmnative.Engine("null:context=256")}, admin_keys=[ADMIN_KEY]) as server:
        yield server


def test_answers_conform(schemathesis, tmp_path, null_server):
    """Of every endpoint, to right and wrong requests."""
    document = narrowed(null_server, "null")
    options = ("--exclude-operation-id=unloadModel", "--phases=examples,coverage,fuzzing", "--max-examples=12")
    run(schemathesis, null_server, document, tmp_path, CONFORMS, *options)


def test_wrong_requests_are_refused(schemathesis, tmp_path, null_server):
    document = ask(null_server, "GET", "/openapi.json").json()
    for path in document["paths"].values():  # header fields that nobody knows would count as wrong ones
        for operation in path.values():
            kept = [one for one in operation.get("parameters", []) if one["$ref"].endswith("ModelPath")]
            operation["parameters"] = kept
    options = ("--exclude-operation-id=unloadModel", "--phases=coverage,fuzzing", "--mode=negative")
    run(schemathesis, null_server, document, tmp_path, REFUSES, "--max-examples=12", *options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("X-Priority", value) for value in ("3", "-3", "0.5", "high", "")),
        *(("X-Deadline-Ms", value) for value in ("0", "-1", "4294967296", "soon")),
        *(("X-Token-Interval-Ms", value) for value in ("-1", "60001", "1e3")),
        ("X-Tenant", "x" * 257),
    ],
)
def test_wrong_header_fields_are_refused(null_server, name, value):
    answer = ask(null_server, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, **{name: value})
    assert (answer.status, answer.error()["param"]) == (400, name)


def test_right_requests_are_answered(schemathesis, tmp_path, null_server):
    """As far as the document alone can tell that they are right: the rest is taken out of it."""
    document = narrowed(null_server, "null")
    schemas = document["components"]["schemas"]
    schemas["TokenId"]["maximum"] = 999  # the vocabulary
    schemas["LogitBias"]["propertyNames"] = {"enum": ["0", "7", "999"]}
    del schemas["Sampling"]["properties"]["stream_options"]  # with stream only
    del schemas["CompletionRequest"]["properties"]["best_of"]  # must be n
    del schemas["CompletionRequest"]["properties"]["echo"]  # without logprobs only
    options = ("--include-operation-id=createCompletion", "--include-tag=tokens", "--phases=examples,coverage,fuzzing")
    run(schemathesis, null_server, document, tmp_path, ANSWERS, "--mode=positive", "--max-examples=30", *options)


def test_embeddings(schemathesis, tmp_path):
    """A model of one table of vectors, for right and wrong requests."""
    graph = lmnative.Graph()
    ids = graph.input("input_ids", "int64", ("batch", "tokens"))
    graph.input("attention_mask", "int64", ("batch", "tokens"))
    graph.output("hidden", graph.op("Gather", np.eye(300, 8, dtype=np.float32), ids))
    with lmnative.Server(admin_keys=[ADMIN_KEY]) as server:
        tokenizer = lmnative.Tokenizer(lmnative.Model("null:vocab=300"))
        server.add_embedding(graph.session(threads=1), "table", tokenizer=tokenizer)
        document = narrowed(server, "table")
        document["components"]["schemas"]["TokenId"]["maximum"] = 400  # the table has 300
        select = ("--include-operation-id=createEmbedding", "--phases=examples,coverage,fuzzing", "--max-examples=30")
        run(schemathesis, server, document, tmp_path, CONFORMS, *select)


def test_admin(schemathesis, tmp_path):
    """Models that are loaded, most of which do not exist, and unloaded."""
    with lmnative.Server({"null": lmnative.Engine("null:context=256")}, admin_keys=[ADMIN_KEY]) as server:
        document = ask(server, "GET", "/openapi.json").json()
        run(schemathesis, server, document, tmp_path, CONFORMS, "--max-examples=10", "--include-tag=admin")


def test_chat_of_a_model(schemathesis, tmp_path, llm):
    """Chats that end soon, of a model with a tokenizer and a template."""
    name = "smollm2-135m"
    with lmnative.Server({name: llm}, admin_keys=[ADMIN_KEY]) as server:
        document = narrowed(server, name)
        document["components"]["schemas"]["Sampling"]["properties"]["n"]["maximum"] = 1
        request = document["components"]["schemas"]["ChatCompletionRequest"]
        for field in ("max_tokens", "max_completion_tokens"):
            request["properties"][field] = {"type": "integer", "minimum": 1, "maximum": 4}
        request["required"] += ["max_tokens", "max_completion_tokens"]
        select = ("--include-operation-id=createChatCompletion", "--max-examples=20", "--phases=examples,fuzzing")
        run(schemathesis, server, document, tmp_path, CONFORMS, "--mode=positive", *select)
        assert server.info().answered > 20
