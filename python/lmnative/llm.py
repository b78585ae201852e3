# SPDX-License-Identifier: Apache-2.0
"""LLM: a model ready to answer, for programs without an event loop."""

from __future__ import annotations

from time import sleep

from lmnative.engine import Engine, MemoryUse, ProfileEntry, chat_prompt, is_one_prompt
from lmnative.errors import QueueFullError
from lmnative.model import Model, ModelInfo
from lmnative.request import Request
from lmnative.results import Completion
from lmnative.tokenizer import Tokenizer

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any, overload

    from typing_extensions import Unpack

    from lmnative import _lmnative
    from lmnative.engine import EngineOptions, Messages, Prompt
    from lmnative.sampling import GenerateOptions


class LLM:
    """A model ready to answer: an Engine whose calls wait.

    Results are reproducible: the same request gives the same tokens and bit-identical logits, whatever the thread
    count, the prefill chunk, or what else is running. Any number of threads may use an LLM at once; their requests are
    computed together. Calls release the GIL and stop on KeyboardInterrupt. ``close()``, or a ``with`` block, frees
    everything.

    Args:
        model: Path of a GGUF file, a known name ("smollm2-135m"), "null:" (see Model), or an open Model.
        options: Every keyword of Engine, with its defaults and errors: threads, context_tokens, kv_tokens,
            max_sequences, prefix_cache, prefill_chunk_tokens, queue_capacity, kv_type, read_mode, progress and more.
    """

    def __init__(self, model: str | os.PathLike[str] | Model, **options: Unpack[EngineOptions]) -> None:
        """Opens the model; arguments and errors are described with the class."""
        self.engine: Engine = Engine(model, **options)
        """The engine beneath, with its asynchronous calls."""

    @property
    def model(self) -> Model:
        """The open model file."""
        return self.engine.model

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self.model.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, built at first use."""
        return self.engine.tokenizer

    if TYPE_CHECKING:

        @overload  # text is a sequence, too: the first one that fits counts
        def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Completion: ...  # type: ignore[overload-overlap]
        @overload
        def generate(self, prompt: Sequence[Prompt], **options: Unpack[GenerateOptions]) -> list[Completion]: ...

    def generate(self, prompt: Any, **options: Unpack[GenerateOptions]) -> Completion | list[Completion]:
        """Continues a prompt, or each of several.

        Args:
            prompt: Text, token ids (list, numpy, torch, any 1-D DLPack array), or a list of those; a list gives a list.

            max_tokens: Tokens to generate at most, 1 or more. None: as many as the context allows. Default 256.
            temperature: 0 (default): always the likeliest token. Higher is more random, up to 100.
            top_k: Keep the k likeliest tokens. Default 0: all.
            top_p: Keep the likeliest tokens that together have this probability, (0, 1]. Default 1: all.
            min_p: Keep tokens with at least this times the likeliest one's probability, [0, 1]. Default 0: all.
            repetition_penalty: Divides positive and multiplies negative logits of tokens in prompt and answer, above 0.
                Default 1: off.
            presence_penalty: Subtracted from the logit of every token seen in the answer, [-100, 100]. Default 0.
            frequency_penalty: Subtracted once per occurrence in the answer, [-100, 100]. Default 0.
            penalty_last_n: How many of the last tokens the penalties look at, 1 or more. Default None: all.
            seed: 0 to 2**64 - 1. The same seed gives the same tokens. Default None: drawn, and told in the result.
            stop: A string or several; the text ends before the first match, also one across tokens. Default: none.
            stop_token_ids: Token ids that end the answer, beside the model's own. Default: none.
            ignore_eos: True: the model's end-of-generation tokens do not end the answer. Default False.
            logprobs: True: report each token's log probability. Default False.
            top_logprobs: How many likeliest alternatives to report with it, 0 to 64; above 0 implies `logprobs`.
                Default 0.
            logits: True: give the logits of each generated token, float32 [tokens, vocab]. Default False.
            logit_bias: {token id: number added to its logit}; -inf forbids the token. Default: none.
            priority: -2 to 2, higher goes first. Default 0.
            tenant: 0 to 2**64 - 1. Tenants whose requests wait take turns, within a priority. Default 0: none.
            n: Answers to the prompt, "samples", 1 to 64. The result is sample 0, its ``samples`` are all of them, and
                chunks tell their ``sample``. Sample i has the seed plus i. Default 1.
            deadline: Seconds from now, above 0; then the answer ends with finish_reason "deadline". Default None: none.
            token_interval: Seconds from one token to the next at least, above 0: an answer at reading speed, which
                leaves the machine to others. It changes no token. Default None: as fast as it can.
            keep_special: True: control tokens appear in the text. Default False.
            parse_special: True: the text of control tokens in a text prompt becomes those tokens. Default False.
            add_bos: Put the BOS token before a text prompt. Default None: as the model says.

        Raises:
            InvalidArgumentError: names the keyword and its range, or the token id, or says that the prompt is longer
                than the context.
            TypeError: a keyword of the wrong type, or an unknown one.
            QueueFullError: for a single prompt, when too many requests are waiting. A list waits for room; as many of
                its prompts as the engine holds are answered together.
            ClosedError: after close(); CancelledError: closed by another thread while it answered.
        """
        if is_one_prompt(prompt):
            return self.engine.submit(prompt, **options)._finish()
        requests: list[Request] = []
        started = 0  # the first ones, as far as known
        results: list[Completion] = []
        try:
            for item in prompt:
                while True:
                    try:
                        requests.append(self.engine.submit(item, **options))
                        break
                    except QueueFullError:
                        if started < len(requests):  # one that starts makes room in the queue
                            requests[started].next()
                            started += 1
                        elif len(results) < len(requests):  # one that ends makes room for its buffers
                            results.append(requests[len(results)]._finish())
                        else:  # others fill the queue, who give no sign when they are done
                            sleep(0.005)
            while len(results) < len(requests):
                results.append(requests[len(results)]._finish())
        finally:
            for request in requests:
                request.close()
        return results

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Request:
        """As generate for one prompt, but returns at once: iterate over the Request for the chunks of the answer."""
        return self.engine.submit(prompt, **options)

    def chat(self, messages: Messages, **options: Unpack[GenerateOptions]) -> Completion:
        """Answers a conversation.

        Args:
            messages: Mappings with "role" and "content", rendered by Tokenizer.apply_chat_template; or one str, which
                is a single user message.

        Keywords and errors as for generate; ChatTemplateError when there is no template or it refuses the messages.
        """
        return self.chat_stream(messages, **options)._finish()

    def chat_stream(self, messages: Messages, **options: Unpack[GenerateOptions]) -> Request:
        """As chat, but returns at once: iterate over the Request for the chunks of the answer."""
        text, options = chat_prompt(self.tokenizer, messages, options)
        return self.engine.submit(text, **options)

    def score(self, prompt: Prompt, *, chunk_tokens: int | None = None) -> _lmnative.Tensor:
        """The logits after every token of a sequence: a Tensor, float32 [tokens, vocab]. As Engine.score."""
        return self.engine.score(prompt, chunk_tokens=chunk_tokens)

    def memory(self) -> dict[str, MemoryUse]:
        """Bytes per owner, as Engine.memory."""
        return self.engine.memory()

    def stats(self) -> dict[str, int]:
        """Counters and sizes, as Engine.stats."""
        return self.engine.stats()

    def profile(self) -> list[ProfileEntry]:
        """Where the time of steps went, as Engine.profile."""
        return self.engine.profile()

    def close(self) -> None:
        """Cancels what is running and frees everything. May be called more than once."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return self.engine._describe("LLM")
