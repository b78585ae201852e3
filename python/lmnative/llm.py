# SPDX-License-Identifier: Apache-2.0
"""LLM: a model ready to answer."""

from __future__ import annotations

from lmnative import _lmnative
from lmnative._progress import reporter
from lmnative._record import Record
from lmnative.errors import CancelledError, QueueFullError
from lmnative.model import Model, ModelInfo
from lmnative.results import FINISH_REASONS, Chunk, Completion, Usage, joined
from lmnative.sampling import integer, request_options
from lmnative.tokenizer import Tokenizer

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, overload

    from typing_extensions import Unpack

    from lmnative.sampling import GenerateOptions

    Prompt = str | bytes | Sequence[int] | _lmnative.DLPackArray
    Messages = str | Sequence[Mapping[str, object]]


class MemoryUse(Record):
    """Bytes that one owner holds."""

    __slots__ = ("current", "peak")

    current: int
    peak: int
    """The most so far."""


class Stream:
    """An answer while it is generated: iterate over it for its chunks.

    Closing it, leaving a ``with`` block or dropping it before the end cancels the request. One thread at a time.
    """

    def __init__(self, request: _lmnative.Request) -> None:
        self._request = request
        self._chunks: list[Chunk] = []
        self._stats: dict[str, int] | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if self._stats is not None:
            raise StopIteration
        try:
            item = self._request.next()
        except BaseException:  # KeyboardInterrupt as well: whatever ends the wait ends the request.
            self.close()
            raise
        if item is None:
            self.close()
            raise StopIteration
        token_ids, text, finish, logprobs, top_logprobs, logits = item
        chunk = Chunk(
            text=text,
            token_ids=token_ids,
            finish_reason=FINISH_REASONS[finish],
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            logits=None if logits is None else logits.numpy(),
        )
        self._chunks.append(chunk)
        return chunk

    def close(self) -> None:
        """Cancels the request unless it has ended, and frees it. May be called more than once."""
        if self._stats is None:
            self._stats = self._request.stats()
            self._request.close()

    def result(self) -> Completion:
        """Everything up to now as one Completion; its finish_reason is None while the answer goes on."""
        return joined(self._chunks, self._stats if self._stats is not None else self._request.stats())

    @property
    def usage(self) -> Usage:
        """Tokens and time up to now."""
        return Usage.from_stats(self._stats if self._stats is not None else self._request.stats())

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class LLM:
    """A model with its weights packed for this machine, its threads and its KV cache.

    Results are reproducible: the same request gives the same tokens and bit-identical logits, whatever the thread
    count, the prefill chunk, or what else is running. Any number of threads may use an LLM at once. Calls release the
    GIL and stop on KeyboardInterrupt. ``close()``, or a ``with`` block, frees everything.

    Args:
        model: Path of a GGUF file, a known name ("smollm2-135m"), or an open Model.
        threads: Worker threads, 1 to 1024. Default None: the CPUs usable here (affinity and cgroup quota).
        context_tokens: Longest sequence, prompt and answer together. Default None: the model's context length.
        kv_tokens: Tokens that the KV cache holds, which sets its memory. Default None: `context_tokens`.
        prefill_chunk_tokens: Prompt tokens computed in one step, 1 to 4096. Default 512. Never changes a result.
        queue_capacity: Requests that may wait, 1 or more. Default 1024.
        read_mode, progress: As for Model.

    Raises:
        NotFoundError, CorruptError, IoError: as for Model.
        UnsupportedError: names an architecture or tensor type that this version lacks.
        OutOfMemoryError: names the size that was refused.
        InvalidArgumentError: names a keyword and its range.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model,
        *,
        threads: int | None = None,
        context_tokens: int | None = None,
        kv_tokens: int | None = None,
        prefill_chunk_tokens: int = 512,
        queue_capacity: int = 1024,
        read_mode: str = "map",
        progress: bool | Callable[[str, int, int], None] | None = None,
    ) -> None:
        sizes = (
            0 if threads is None else integer("threads", threads, 1, 1024),
            0 if context_tokens is None else integer("context_tokens", context_tokens, 1, 2**32 - 1),
            0 if kv_tokens is None else integer("kv_tokens", kv_tokens, 1, 2**32 - 1),
            integer("prefill_chunk_tokens", prefill_chunk_tokens, 1, 4096),
            integer("queue_capacity", queue_capacity, 1, 2**32 - 1),
        )
        self.model: Model = model if isinstance(model, Model) else Model(model, read_mode=read_mode, progress=progress)
        """The open model file."""
        with reporter(progress) as report:
            self._engine = _lmnative.Engine(self.model._handle, *sizes, report)
        self._tokenizer: Tokenizer | None = None

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self.model.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, built at first use."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.model)
        return self._tokenizer

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
            deadline: Seconds from now, above 0; then the answer ends with finish_reason "deadline". Default None: none.
            keep_special: True: control tokens appear in the text. Default False.
            parse_special: True: the text of control tokens in a text prompt becomes those tokens. Default False.
            add_bos: Put the BOS token before a text prompt. Default None: as the model says.

        Raises:
            InvalidArgumentError: names the keyword and its range, or the token id, or says that the prompt is longer
                than the context.
            TypeError: a keyword of the wrong type, or an unknown one.
            QueueFullError: for a single prompt, when too many requests are waiting. A list waits for room.
            ClosedError: after close(); CancelledError: closed by another thread while it answered.
        """
        if _is_one_prompt(prompt):
            return self._finish(self._submit(prompt, options))
        waiting: list[Stream] = []
        results: list[Completion] = []
        try:
            for item in prompt:
                while True:
                    try:
                        waiting.append(self._submit(item, options))
                        break
                    except QueueFullError:
                        if not waiting:
                            raise
                        results.append(self._finish(waiting.pop(0)))
            while waiting:
                results.append(self._finish(waiting.pop(0)))
        finally:
            for stream in waiting:
                stream.close()
        return results

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """As generate for one prompt, but returns at once: iterate over the Stream for the chunks of the answer."""
        return self._submit(prompt, options)

    def chat(self, messages: Messages, **options: Unpack[GenerateOptions]) -> Completion:
        """Answers a conversation.

        Args:
            messages: Mappings with "role" and "content", rendered by Tokenizer.apply_chat_template; or one str, which
                is a single user message.

        Keywords and errors as for generate; ChatTemplateError when there is no template or it refuses the messages.
        """
        return self._finish(self.chat_stream(messages, **options))

    def chat_stream(self, messages: Messages, **options: Unpack[GenerateOptions]) -> Stream:
        """As chat, but returns at once: iterate over the Stream for the chunks of the answer."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        tokenizer = self.tokenizer
        text = tokenizer.apply_chat_template(messages)
        # A template that writes the BOS token itself must not get a second one.
        if tokenizer.bos_id is not None:
            bos = tokenizer.token_bytes(tokenizer.bos_id).decode("utf-8", "replace")
            if bos and text.startswith(bos):
                options = {"add_bos": False, **options}
        return self._submit(text, {"parse_special": True, **options})

    def score(self, prompt: Prompt, *, chunk_tokens: int | None = None) -> _lmnative.Tensor:
        """The logits after every token of a sequence: a Tensor, float32 [tokens, vocab].

        ``numpy.from_dlpack`` and ``torch.from_dlpack`` share its memory. Row i predicts token i + 1. KeyboardInterrupt
        stops the engine within one step.

        Args:
            prompt: Token ids, as for generate; or text, which is encoded as generate would.
            chunk_tokens: Tokens computed in one step, 1 to 4096. Default None: `prefill_chunk_tokens`. Never changes
                the result.

        Raises:
            InvalidArgumentError: a token id out of range, no token at all, or more than the context holds.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, (str, bytes)) else prompt
        return self._engine.score(ids, 0 if chunk_tokens is None else integer("chunk_tokens", chunk_tokens, 1, 4096))

    def memory(self) -> dict[str, MemoryUse]:
        """Bytes per owner ("mapped", "packed_weights", "kv", "requests", …): what is held now, and the most so far.

        "mapped" counts the model file's address space, which costs memory only where it was touched and not given back.
        With read_mode="copy" it is 0, and "file_copy" counts the copy, which is held as long as the model.
        """
        return {owner: MemoryUse(current=now, peak=most) for owner, (now, most) in self._engine.memory().items()}

    def stats(self) -> dict[str, int]:
        """Counters of the engine since it was created, its sizes, and what waits and runs now."""
        return self._engine.stats()

    def close(self) -> None:
        """Cancels what is running and frees everything. May be called more than once."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._engine.closed else ""
        return f"<lmnative.LLM {self.info.name or self.info.architecture!r} {self.info.path!r}{state}>"

    def _submit(self, prompt: Prompt, options: Mapping[str, Any]) -> Stream:
        return Stream(self._engine.submit(prompt, **request_options(**options)))

    def _finish(self, stream: Stream) -> Completion:
        for _ in stream:
            pass
        result = stream.result()
        if result.finish_reason == "cancelled":
            raise CancelledError("the LLM was closed while it answered")
        return result


def _is_one_prompt(prompt: object) -> bool:
    """True for text and for one sequence of ids; False for a list of prompts (an empty list is one)."""
    if isinstance(prompt, (list, tuple)):
        return bool(prompt) and not hasattr(prompt[0], "__len__")
    if not hasattr(prompt, "__iter__") and not hasattr(prompt, "__dlpack__"):
        raise TypeError(f"prompt must be text, token ids or a list of those, not {type(prompt).__name__}")
    return True
