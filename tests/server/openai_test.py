# SPDX-License-Identifier: Apache-2.0
"""The server through the package openai, as its users have it, and through LangChain. What the engine answers to the
same request, without a server, is the reference."""

from __future__ import annotations

import asyncio
import math

import lmnative
import numpy as np
import pytest

openai = pytest.importorskip("openai", reason="openai is not installed (pip install openai)")

PROMPT = "The capital of France is"
QUESTION = [{"role": "user", "content": "What is a lighthouse for?"}]
SIZE, TOKENS = 8, 300  # of the embedding model


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((TOKENS, SIZE)).astype(np.float32)


@pytest.fixture(scope="module")
def server(llm, table):
    graph = lmnative.Graph()
    ids = graph.input("input_ids", "int64", ("batch", "tokens"))
    mask = graph.input("attention_mask", "int64", ("batch", "tokens"))
    kept = graph.op("Unsqueeze", graph.op("Cast", mask, to=1), np.array([-1]))
    graph.output("hidden", graph.op("Gather", table, ids) * kept)
    with lmnative.Server({"smollm2-135m": llm}) as server:
        server.add_embedding(graph.session(threads=1), "bytes", tokenizer=lambda text: list(text.encode()))
        yield server


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def complete(client, prompt=PROMPT, **options):
    return client.completions.create(model="smollm2-135m", prompt=prompt, **options)


def chat(client, messages=QUESTION, **options):
    return client.chat.completions.create(model="smollm2-135m", messages=messages, **options)


def test_models(client):
    listed = client.models.list().data
    assert {model.id for model in listed} == {"smollm2-135m", "bytes"}
    assert all(model.object == "model" for model in listed)
    assert client.models.retrieve("smollm2-135m").id == "smollm2-135m"
    with pytest.raises(openai.NotFoundError) as info:
        client.models.retrieve("absent")
    assert info.value.code == "model_not_found"


def test_completion(client, llm):
    want = llm.generate(PROMPT, max_tokens=12)
    got = complete(client, max_tokens=12, temperature=0)
    choice = got.choices[0]
    assert (choice.text, choice.finish_reason, choice.index) == (want.text, want.finish_reason, 0)
    assert got.object == "text_completion" and got.model == "smollm2-135m" and got.id.startswith("cmpl-")
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (want.usage.prompt_tokens, 12)
    assert got.usage.total_tokens == want.usage.prompt_tokens + 12


def test_completion_of_ids_and_of_a_list(client, llm):
    ids = llm.tokenizer.encode(PROMPT)
    assert complete(client, ids, max_tokens=5, temperature=0).choices[0].text == llm.generate(ids, max_tokens=5).text
    prompts = [PROMPT, "Once upon a time"]
    got = complete(client, prompts, max_tokens=5, temperature=0)
    assert [choice.index for choice in got.choices] == [0, 1]
    assert [choice.text for choice in got.choices] == [one.text for one in llm.generate(prompts, max_tokens=5)]
    assert got.usage.completion_tokens == 10


def test_echo_gives_the_prompt_back(client, llm):
    got = complete(client, max_tokens=3, temperature=0, echo=True)
    assert got.choices[0].text == PROMPT + llm.generate(PROMPT, max_tokens=3).text


def test_chat(client, llm):
    want = llm.chat(QUESTION, max_tokens=24)
    got = chat(client, max_completion_tokens=24, temperature=0)
    message = got.choices[0].message
    assert (message.role, message.content) == ("assistant", want.text)
    assert got.choices[0].finish_reason == want.finish_reason == "length"
    assert got.object == "chat.completion" and got.id.startswith("chatcmpl-")
    assert got.usage.prompt_tokens == want.usage.prompt_tokens
    assert got.usage.prompt_tokens_details.cached_tokens <= got.usage.prompt_tokens


def test_chat_that_ends_by_itself(client, llm):
    messages = [{"role": "user", "content": "Say yes."}]
    want = llm.chat(messages, max_tokens=200)
    got = chat(client, messages, max_tokens=200, temperature=0)
    assert want.finish_reason == got.choices[0].finish_reason == "stop"
    assert got.choices[0].message.content == want.text


def test_contents_in_parts(client, llm):
    parts = [{"type": "text", "text": "What is a lighthouse for?"}]
    got = chat(client, [{"role": "user", "content": parts}], max_tokens=8, temperature=0)
    assert got.choices[0].message.content == llm.chat(QUESTION, max_tokens=8).text


def test_tools_reach_the_template(client, llm):
    # The model's template ignores tools, so they change nothing; Jinja2 renders, as they are not for the library.
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    got = chat(client, tools=[tool], max_tokens=8, temperature=0)
    assert got.choices[0].message.content == llm.chat(QUESTION, max_tokens=8).text


@pytest.mark.parametrize("usage", [False, True])
def test_streams(client, llm, usage):
    want = llm.generate(PROMPT, max_tokens=12)
    options = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(complete(client, max_tokens=12, temperature=0, stream=True, **options))
    if usage:
        last = chunks.pop()
        assert last.choices == []
        assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (want.usage.prompt_tokens, 12)
        assert last.usage.total_tokens == want.usage.prompt_tokens + 12
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].text for chunk in chunks) == want.text
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len(chunks) > 3, "they come as they are made"


def test_chat_streams(client, llm):
    chunks = list(chat(client, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}))
    usage = chunks.pop().usage
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant" and all(delta.role is None for delta in deltas[1:])
    assert "".join(delta.content or "" for delta in deltas) == llm.chat(QUESTION, max_tokens=12).text
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    assert usage.completion_tokens == 12


def test_a_stream_that_is_left_is_cancelled(client, llm):
    from conftest import wait_until

    before = llm.stats()["cancelled"]
    with complete(client, max_tokens=3000, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    assert wait_until(lambda: llm.stats()["cancelled"] == before + 1)


def test_samples_with_a_seed(client, llm):
    options = {"max_tokens": 8, "temperature": 1.1, "top_p": 0.9, "seed": 11, "n": 3}
    want = llm.generate(PROMPT, **options)
    texts = [sample.text for sample in want.samples]
    got = complete(client, **options)
    assert [choice.index for choice in got.choices] == [0, 1, 2]
    assert [choice.text for choice in got.choices] == texts and len(set(texts)) > 1
    assert got.usage.completion_tokens == want.usage.completion_tokens
    streamed = ["", "", ""]
    for chunk in complete(client, **options, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_chat_samples_at_the_default_temperature(client, llm):
    got = chat(client, max_tokens=6, seed=5, n=2)
    want = llm.chat(QUESTION, max_tokens=6, seed=5, n=2, temperature=1.0)  # OpenAI's default
    assert [choice.message.content for choice in got.choices] == [sample.text for sample in want.samples]


def test_stop(client, llm):
    text = llm.generate(PROMPT, max_tokens=30).text
    stop = text[len(text) // 2 : len(text) // 2 + 4]
    want = llm.generate(PROMPT, max_tokens=30, stop=stop)
    assert want.finish_reason == "stop"
    for given in (stop, ["never this", stop]):
        got = complete(client, max_tokens=30, temperature=0, stop=given).choices[0]
        assert (got.text, got.finish_reason) == (want.text, "stop")
    chunks = list(complete(client, max_tokens=30, temperature=0, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == want.text


def test_penalties(client, llm):
    options = {"max_tokens": 24, "frequency_penalty": 1.5, "presence_penalty": 0.5}
    want = llm.generate("one one one one", **options).text
    assert want != llm.generate("one one one one", max_tokens=24).text
    assert complete(client, "one one one one", temperature=0, **options).choices[0].text == want


def test_logit_bias(client, llm):
    first = llm.generate(PROMPT, max_tokens=1).token_ids[0]
    want = llm.generate(PROMPT, max_tokens=4, logit_bias={first: -100}).text
    assert want != llm.generate(PROMPT, max_tokens=4).text
    got = complete(client, max_tokens=4, temperature=0, logit_bias={str(first): -100})
    assert got.choices[0].text == want


def test_logprobs_of_completions(client, llm):
    want = llm.generate(PROMPT, max_tokens=5, top_logprobs=3)
    got = complete(client, max_tokens=5, temperature=0, logprobs=3).choices[0].logprobs
    texts = [llm.tokenizer.decode([token]) for token in want.token_ids]
    assert got.tokens == texts
    assert got.token_logprobs == pytest.approx(want.logprobs, abs=1e-5)
    for top, expected in zip(got.top_logprobs, want.top_logprobs, strict=True):
        names = {llm.tokenizer.decode([token]): value for token, value in expected.items()}
        assert top == pytest.approx(names, abs=1e-5)
    # The logits say the same: the first token's probability, by another road.
    logits = np.from_dlpack(llm.score(PROMPT))[-1].astype(np.float64)
    first = logits[want.token_ids[0]] - logits.max() - math.log(np.exp(logits - logits.max()).sum())
    assert got.token_logprobs[0] == pytest.approx(first, abs=1e-4)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_chats(client, llm, stream):
    want = llm.chat(QUESTION, max_tokens=5, top_logprobs=2)
    got = chat(client, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2, stream=stream)
    choices = [chunk.choices[0] for chunk in got] if stream else got.choices
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
    assert [entry.token for entry in entries] == [llm.tokenizer.decode([token]) for token in want.token_ids]
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == want.text
    assert [entry.logprob for entry in entries] == pytest.approx(want.logprobs, abs=1e-5)
    for entry, expected in zip(entries, want.top_logprobs, strict=True):
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(list(expected.values()), abs=1e-5)


def test_unknown_fields_are_ignored(client, llm):
    got = complete(client, max_tokens=3, temperature=0, user="me", extra_body={"frobnicate": {"a": [1]}})
    assert got.choices[0].text == llm.generate(PROMPT, max_tokens=3).text


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"stop": 7}, "stop"),
        ({"seed": "x"}, "seed"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"1000000": 1}}, "logit_bias"),
        ({"presence_penalty": True}, "presence_penalty"),
        ({"stream": "yes"}, "stream"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_errors_name_the_field(client, options, param):
    with pytest.raises(openai.BadRequestError) as info:
        chat(client, extra_body=options)
    assert info.value.param == param
    assert info.value.type == "invalid_request_error" and info.value.code
    assert param in info.value.body["message"]


def test_errors_of_messages(client):
    for messages in ([], "x", [{"content": "x"}], [{"role": "user", "content": 7}], [{"role": 1, "content": "x"}]):
        with pytest.raises(openai.BadRequestError) as info:
            chat(client, messages)
        assert info.value.param.startswith("messages")
    image = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    with pytest.raises(openai.BadRequestError):
        chat(client, [{"role": "user", "content": image}])


def test_an_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as info:
        client.completions.create(model="gpt-17", prompt="x")
    assert (info.value.code, info.value.param) == ("model_not_found", "model")
    assert "gpt-17" in info.value.body["message"]


def test_a_prompt_that_is_too_long(client):
    with pytest.raises(openai.BadRequestError) as info:
        complete(client, "word " * 5000)
    assert info.value.code == "context_length_exceeded"
    assert "4096" in info.value.body["message"]


def test_the_model_of_another_kind(client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="bytes", prompt="x")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="smollm2-135m", input="x")


def mean_vector(table: np.ndarray, text: str) -> np.ndarray:
    mean = table[list(text.encode())].astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_embeddings(client, table, encoding):
    texts = ["lighthouse", "a", "Größe"]
    options = {} if encoding is None else {"encoding_format": encoding}
    got = client.embeddings.create(model="bytes", input=texts, **options)
    assert [item.index for item in got.data] == [0, 1, 2]
    for text, item in zip(texts, got.data, strict=True):
        vector = item.embedding
        if encoding == "base64":
            import base64

            vector = np.frombuffer(base64.b64decode(vector), np.float32)
        assert np.asarray(vector) == pytest.approx(mean_vector(table, text), abs=1e-6)
    assert got.usage.prompt_tokens == sum(len(text.encode()) for text in texts)


def test_embeddings_of_one_text_and_of_ids(client, table):
    for given in ("abc", [97, 98, 99], [[97, 98, 99]]):
        got = client.embeddings.create(model="bytes", input=given)
        assert np.asarray(got.data[0].embedding) == pytest.approx(mean_vector(table, "abc"), abs=1e-6)
    with pytest.raises(openai.BadRequestError) as info:
        client.embeddings.create(model="bytes", input=[])
    assert info.value.param == "input"


def test_keys():
    with lmnative.Server("null:vocab=300", api_keys=["secret", "other"]) as server:
        for key in ("wrong", "secre", "secret2"):
            with openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) as client:
                with pytest.raises(openai.AuthenticationError) as info:
                    client.models.list()
                assert info.value.code == "invalid_api_key"
        for key in ("secret", "other"):
            with openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) as client:
                assert [model.id for model in client.models.list()] == ["null"]


def test_async(server, llm):
    prompts = [f"{number}, {number + 1}," for number in range(8)]

    async def stream(client, prompt) -> str:
        chunks = await client.completions.create(
            model="smollm2-135m", prompt=prompt, max_tokens=8, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].text async for chunk in chunks])

    async def main() -> tuple[list[str], list[str]]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            ask = client.completions.create
            whole = await asyncio.gather(
                *(ask(model="smollm2-135m", prompt=prompt, max_tokens=8, temperature=0) for prompt in prompts)
            )
            streamed = await asyncio.gather(*(stream(client, prompt) for prompt in prompts))
        return [one.choices[0].text for one in whole], streamed

    whole, streamed = asyncio.run(main())
    assert whole == streamed == [one.text for one in llm.generate(prompts, max_tokens=8)]


def test_langchain(server, llm):
    reason = "langchain-openai is not installed (pip install langchain-openai)"
    langchain = pytest.importorskip("langchain_openai", reason=reason)
    options = {"base_url": server.url + "/v1", "api_key": "none", "model": "smollm2-135m", "temperature": 0}
    plain = langchain.OpenAI(**options, max_tokens=8)
    want = llm.generate(PROMPT, max_tokens=8).text
    assert plain.invoke(PROMPT) == want
    assert "".join(plain.stream(PROMPT)) == want
    chats = langchain.ChatOpenAI(**options, max_tokens=8)
    want = llm.chat(QUESTION, max_tokens=8).text
    assert chats.invoke(QUESTION[0]["content"]).content == want
    assert "".join(piece.content for piece in chats.stream(QUESTION[0]["content"])) == want
