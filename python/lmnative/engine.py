# SPDX-License-Identifier: Apache-2.0
"""Engine: a model that answers many requests at once, for threads and for event loops."""

from __future__ import annotations

from _thread import allocate_lock

from lmnative import _lmnative
from lmnative._progress import reporter
from lmnative._record import Record
from lmnative.errors import InvalidArgumentError, QueueFullError
from lmnative.model import Model, ModelInfo
from lmnative.request import Request
from lmnative.sampling import boolean, integer, number, one_of, request_options, seconds_to_ns, yes_or_no
from lmnative.tokenizer import Tokenizer

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypedDict, overload

    from typing_extensions import Unpack

    from lmnative.results import Completion
    from lmnative.sampling import GenerateOptions
    from lmnative.stream import AsyncStream, Watchers

    Prompt = str | bytes | Sequence[int] | _lmnative.DLPackArray
    Messages = str | Sequence[Mapping[str, object]]

    class EngineOptions(TypedDict, total=False):
        """Every keyword of Engine; documented there."""

        threads: int | None
        context_tokens: int | None
        kv_tokens: int | None
        prefill_chunk_tokens: int
        queue_capacity: int
        max_sequences: int
        prefix_cache: bool
        queue_tokens: int | None
        queue_bytes: int
        inter_token_target: float | None
        idle_spin: float
        trace_events: int
        activation_bits: int | None
        profile: bool
        kv_type: str
        device: str
        read_mode: str
        progress: bool | Callable[[str, int, int], None] | None


KV_TYPES = {"f16": _lmnative.KV_F16, "f32": _lmnative.KV_F32, "q8_0": _lmnative.KV_Q8_0}


class MemoryUse(Record):
    """Bytes that one owner holds."""

    __slots__ = ("current", "peak")

    current: int
    peak: int
    """The most so far."""


class Histogram(Record):
    """How long something took since the engine was created. Times in nanoseconds."""

    __slots__ = ("count", "sum_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "buckets")

    count: int
    sum_ns: int
    max_ns: int
    p50_ns: int
    """Percentiles are exact to their bucket, a fifth of the value."""
    p90_ns: int
    p99_ns: int
    buckets: list[int]
    """Bucket b counts what took less than 64 ns (b = 0), or from (4 + b % 4) << (b // 4 + 4) ns on."""


class TraceEvent(Record):
    """A span of time on the engine's thread (request is 0), or of a request's life."""

    __slots__ = ("name", "begin_ns", "end_ns", "request", "tokens", "sequences")

    name: str
    """A step's "schedule", "prepare", "run", "sample", "deliver"; a request's "queue", "prefill", "decode"."""
    begin_ns: int
    """time.monotonic_ns()."""
    end_ns: int
    request: int
    """Its number in the engine, from 1."""
    tokens: int
    """Computed in the step; of the request's prompt or answer."""
    sequences: int
    """In the step; samples of the request."""


class ProfileEntry(Record):
    """What a part of the steps of one kind did since the engine was created."""

    __slots__ = ("op", "name", "step_kind", "calls", "run_ns", "wait_ns", "bytes", "operations")

    op: str
    """An operator ("linear", "paged_attention", …), "team" or "engine"."""
    name: str
    """Of the operator in the model: "blk.0.attn_output"."""
    step_kind: str
    """"decode": steps in which each sequence has one token; "prefill": steps that hold parts of prompts."""
    calls: int
    run_ns: int
    """On the engine's thread, which has its share of the work."""
    wait_ns: int
    """After that for other threads, that were longer at theirs."""
    bytes: int
    """Of all threads, as the operator needs at least: weights once, rows in and out, keys and values attended to."""
    operations: int
    """Arithmetic ones: 2 for a weight and a row, 4 * head_dim for a head, a row and a position attended to, …"""


class Engine:
    """A model with its weights packed for this machine, its threads and its KV cache, for many requests at once.

    What is being answered is computed together, step by step. Results are reproducible: the same request gives the same
    tokens, whatever else is running. Three ways to ask, which may be mixed:

        request = engine.submit(prompt)                  # returns at once; poll, wait, or iterate over it
        completion = await engine.generate(prompt)       # in an event loop
        async for chunk in engine.stream(prompt): ...

    In event loops the engine's one descriptor is watched by ``loop.add_reader``, and one wake-up takes the news of all
    requests: no threads, no polling. Any number of threads and of event loops (asyncio, uvloop) may use an engine at
    once. ``close()``, or a ``with`` or ``async with`` block, frees everything. A child process after fork gets
    ClosedError and makes its own.

    Args:
        model: Path of a GGUF file, a known name ("smollm2-135m"), "null:" (see Model), or an open Model.
        threads: Worker threads, 1 to 1024. Default None: the CPUs usable here (affinity and cgroup quota).
        context_tokens: Longest sequence, prompt and answer together. Default None: the model's context length.
        kv_tokens: Tokens that the KV cache holds, all sequences together, which sets its memory; in pages of 32, of
            which it has as many as that needs. Default None: `context_tokens`.
        prefill_chunk_tokens: Prompt tokens computed in one step, 1 to 4096. Default 512. Never changes a result.
        queue_capacity: Requests that may wait, 1 to 2**20. Default 1024.
        max_sequences: Sequences that run at once, 1 to 16384; a step takes up to 1024, in turn. Default 64.
        prefix_cache: True (default): what was computed of a prompt is kept while there is room, for the next one that
            begins with the same tokens. Never changes a result.
        queue_tokens: Prompt tokens that may wait, all requests together, 1 or more. Default None: no bound.
        queue_bytes: Bytes of live requests' buffers, logits not counted, 1 or more. Default 1 GiB.
        inter_token_target: Seconds, above 0. While answers are generated, prompts are computed in chunks that keep a
            step below this. Default None: below twice what a step takes without, and up to eight times with more
            prompts than answers.
        idle_spin: Seconds that an idle engine spins before it sleeps, which saves microseconds at the next request.
            Default 50e-6; 0: none.
        trace_events: Spans kept for `trace`, up to 2**24; 40 bytes each. Default 0: no trace.
        activation_bits: What quantised weights are multiplied with. Default None: 8 on the CPU, 16 on other devices,
            where decoding takes as long. 8: inputs rounded to 8 bits in blocks of 32, but to 16 bits where that moves
            logits most: for q, k and v, the last layer and the output layer. The
            logits of SmolLM2-135M move by 0.05 (root mean square; with 8 bits everywhere by 0.1). 16: to 16 bits, which
            moves them by less than 0.002, and computes prompts and batches up to 1.6 times as long: of 4-bit weights on
            any CPU, of 5-bit ones with AVX2 too, and of 8-bit ones with VNNI or dotprod. Others, as Q6_K, get 16 bits
            always; float weights are not affected.
        profile: True: keep what `profile()` tells; a step takes about 1 % longer. Default False.
        kv_type: Element type of the KV cache: "f16" (default), "f32", or "q8_0", which takes half the memory of f16,
            and less time where reading it takes long (many threads, long contexts). Keys and values are then rounded to
            8 bits in blocks of 32, which moves the logits of SmolLM2-135M by 0.05 to 0.09 (root mean square).
        device: Where the model runs: "cpu" (default), "cuda", or "cuda:N", the N-th NVIDIA device from 0. Layers that
            do not fit into its memory run on the CPU (`stats()["device_layers"]`). Results are reproducible on each
            kind of device and with as many layers on it; between kinds they differ in the last bits where
            `activation_bits` is the same, which by default it is not.
        read_mode, progress: As for Model.

    Raises:
        NotFoundError, CorruptError, IoError: as for Model.
        UnsupportedError: names an architecture or tensor type that this version lacks, a kv_type that the model's
            heads do not fit, or why there is no such device.
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
        max_sequences: int = 64,
        prefix_cache: bool = True,
        queue_tokens: int | None = None,
        queue_bytes: int = 2**30,
        inter_token_target: float | None = None,
        idle_spin: float = 50e-6,
        trace_events: int = 0,
        activation_bits: int | None = None,
        profile: bool = False,
        kv_type: str = "f16",
        device: str = "cpu",
        read_mode: str = "map",
        progress: bool | Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Opens the model; arguments and errors are described with the class."""
        if not isinstance(kv_type, str):
            raise TypeError(f"kv_type must be a str, not {type(kv_type).__name__}")
        if kv_type not in KV_TYPES:
            raise InvalidArgumentError(f"kv_type is {kv_type!r}, must be one of {', '.join(map(repr, KV_TYPES))}")
        if not isinstance(device, str):
            raise TypeError(f"device must be a str, not {type(device).__name__}")
        options = {
            "threads": 0 if threads is None else integer("threads", threads, 1, 1024),
            "context_tokens": 0 if context_tokens is None else integer("context_tokens", context_tokens, 1, 2**31 - 1),
            "kv_tokens": 0 if kv_tokens is None else integer("kv_tokens", kv_tokens, 1, 2**31 - 1),
            "prefill_chunk_tokens": integer("prefill_chunk_tokens", prefill_chunk_tokens, 1, 4096),
            "queue_capacity": integer("queue_capacity", queue_capacity, 1, 2**20),
            "max_sequences": integer("max_sequences", max_sequences, 1, 16384),
            "prefix_cache": yes_or_no("prefix_cache", prefix_cache),
            "queue_tokens": 0 if queue_tokens is None else integer("queue_tokens", queue_tokens, 1, 2**63 - 1),
            "queue_bytes": integer("queue_bytes", queue_bytes, 1, 2**63 - 1),
            "inter_token_target_ns": 0
            if inter_token_target is None
            else seconds_to_ns("inter_token_target", inter_token_target),
            "idle_spin_ns": idle_spin_ns(idle_spin),
            "trace_events": integer("trace_events", trace_events, 0, 2**24),
            "kv_type": KV_TYPES[kv_type],
            "activation_bits": 0 if activation_bits is None else one_of("activation_bits", activation_bits, (8, 16)),
            "profile": boolean("profile", profile),
            "device": device,
        }
        self.model: Model = model if isinstance(model, Model) else Model(model, read_mode=read_mode, progress=progress)
        """The open model file."""
        with reporter(progress) as report:
            self._handle = _lmnative.Engine(self.model._handle, **options, progress=report)
        self._tokenizer: Tokenizer | None = None
        self._watchers: Watchers | None = None
        self._watchers_lock = allocate_lock()  # two threads' first streams share one

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

    def submit(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Request:
        """Queues one prompt and returns at once, for programs without an event loop.

        Prompt, keywords and errors as for LLM.generate; QueueFullError, with the figures, when the queue has no room.
        """
        checked = request_options(**options)
        return Request(self._handle.submit(one_prompt(prompt), **checked), checked["n"])

    if TYPE_CHECKING:

        @overload  # text is a sequence, too: the first one that fits counts
        async def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Completion: ...  # type: ignore[overload-overlap]
        @overload
        async def generate(self, prompt: Sequence[Prompt], **options: Unpack[GenerateOptions]) -> list[Completion]: ...

    async def generate(self, prompt: Any, **options: Unpack[GenerateOptions]) -> Completion | list[Completion]:
        """``await engine.generate(…)``: the answer to a prompt, or to each of several.

        Prompt, keywords and errors as for LLM.generate. Cancelling the task cancels the request at once. CancelledError
        (lmnative's, not asyncio's) when the engine is closed meanwhile.
        """
        from lmnative import stream

        if is_one_prompt(prompt):
            return await self.stream(prompt, **options)._finish()
        streams: list[AsyncStream] = []
        started = 0  # the first ones, as far as known
        results: list[Completion] = []
        try:
            for item in prompt:
                while True:
                    try:
                        streams.append(self.stream(item, **options))
                        break
                    except QueueFullError:
                        if started < len(streams):  # one that starts makes room in the queue
                            await streams[started]._started()
                            started += 1
                        elif len(results) < len(streams):  # one that ends makes room for its buffers
                            results.append(await streams[len(results)]._finish())
                        else:  # others fill the queue, who give no sign when they are done
                            await stream.pause()
            while len(results) < len(streams):
                results.append(await streams[len(results)]._finish())
        finally:
            for one in streams:
                one._close()
        return results

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncStream:
        """``async for chunk in engine.stream(…)``: the chunks of an answer as they come.

        Submits at once, in the running event loop. Prompt, keywords and errors as for LLM.generate, raised here; a
        failure of the request itself by the iteration. Leaving the loop, closing the stream or cancelling the task
        cancels the request at once. CancelledError (lmnative's) when the engine is closed meanwhile, after what it had.
        """
        from lmnative import stream

        with self._watchers_lock:
            if self._watchers is None:
                self._watchers = stream.Watchers(self._handle)
        return stream.stream(self._watchers, one_prompt(prompt), request_options(**options))

    async def chat(self, messages: Messages, **options: Unpack[GenerateOptions]) -> Completion:
        """``await engine.chat(…)``: answers a conversation. Messages as for LLM.chat, the rest as for generate."""
        return await self.chat_stream(messages, **options)._finish()

    def chat_stream(self, messages: Messages, **options: Unpack[GenerateOptions]) -> AsyncStream:
        """As chat, but for ``async for``: see stream."""
        text, options = chat_prompt(self.tokenizer, messages, options)
        return self.stream(text, **options)

    def score(self, prompt: Prompt, *, chunk_tokens: int | None = None) -> _lmnative.Tensor:
        """The logits after every token of a sequence: a Tensor, float32 [tokens, vocab].

        ``numpy.from_dlpack`` and ``torch.from_dlpack`` share its memory. Row i predicts token i + 1. KeyboardInterrupt
        stops the engine within one step. It blocks: in an event loop ``await asyncio.to_thread(engine.score, ids)``.

        Args:
            prompt: Token ids, as for generate; or text, which is encoded as generate would.
            chunk_tokens: Tokens computed in one step, 1 to 4096. Default None: `prefill_chunk_tokens`. Never changes
                the result.

        Raises:
            InvalidArgumentError: a token id out of range, no token at all, or more than the context holds.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, (str, bytes)) else prompt
        return self._handle.score(ids, 0 if chunk_tokens is None else integer("chunk_tokens", chunk_tokens, 1, 4096))

    def stats(self) -> dict[str, int]:
        """The engine's sizes, what waits and runs now, and counters since it was created. Names as in lmn_engine_stats:
        threads, context_tokens, layers (of the model), device_layers (of those on `device`; the others are on the CPU),
        waiting, running, kv_pages, kv_pages_used, kv_pages_cached, submitted, finished, cancelled, failed, rejected
        (and rejected_queue, … by reason), prompt_tokens, generated_tokens, steps, prefix_hit_tokens, preemptions and
        more. Each figure is exact; together they are not one moment."""
        return self._handle.stats()

    def histograms(self) -> dict[str, Histogram]:
        """How long things took: of steps "step" and its parts "schedule", "prepare", "run", "sample", "deliver"; of
        requests "queue" (submit to start), "first_token" (submit to first token) and "inter_token"."""
        return {name: Histogram(**fields) for name, fields in self._handle.histograms().items()}

    def memory(self) -> dict[str, MemoryUse]:
        """Bytes per owner ("mapped", "packed_weights", "kv", "requests", …): what is held now, and the most so far.

        "mapped" counts the model file's address space, which costs memory only where it was touched and not given back.
        With read_mode="copy" it is 0, and "file_copy" counts the copy, which is held as long as the model. "pinned" is
        page-locked memory of the host, for inputs and outputs of an engine on a GPU.
        """
        return {owner: MemoryUse(current=now, peak=most) for owner, (now, most) in self._handle.memory().items()}

    def trace(self) -> tuple[list[TraceEvent], int]:
        """Takes the spans since the last call, oldest first; and how many were lost since the engine was created,
        because there were more than `trace_events` between two calls. UnsupportedError if `trace_events` was 0."""
        events, lost = self._handle.trace()
        names = TraceEvent.__slots__
        return [TraceEvent(**dict(zip(names, event, strict=True))) for event in events], lost

    def profile(self) -> list[ProfileEntry]:
        """Where the time of steps went: for each kind of step the operators of the model in their order, before them
        "team" "start" (setting the other threads going; on a GPU, sending it the inputs), then "engine" "schedule",
        "prepare", "run", "sample" and "deliver", of which "run" holds "team" "start" and all operators. An operator
        takes run_ns + wait_ns, on a GPU by the GPU's clock, each by itself. Each figure is exact; together they are not
        one moment. UnsupportedError if `profile` was off."""
        names = ProfileEntry.__slots__
        return [ProfileEntry(**dict(zip(names, entry, strict=True))) for entry in self._handle.profile()]

    def close(self) -> None:
        """Cancels what is running and frees everything: waits for the step that runs. Whoever waits for an answer gets
        CancelledError. May be called more than once."""
        self._handle.close()
        if self._watchers is not None:
            self._watchers.finish()

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle.closed

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return self._describe("Engine")

    def _describe(self, name: str) -> str:
        state = " (closed)" if self.closed else ""
        return f"<lmnative.{name} {self.info.name or self.info.architecture!r} {self.info.path!r}{state}>"


def idle_spin_ns(idle_spin: float) -> int:
    """Of the ABI, where 0 is the default and a negative number none."""
    seconds = number("idle_spin", idle_spin)
    if not seconds >= 0:
        raise InvalidArgumentError(f"idle_spin is {seconds:g}, must be 0 (none) or more seconds")
    return -1 if seconds == 0 else seconds_to_ns("idle_spin", seconds)


def chat_prompt(tokenizer: Tokenizer, messages: Messages, options: GenerateOptions) -> tuple[str, GenerateOptions]:
    """The text of a conversation, and the keywords to submit it with."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    text = tokenizer.apply_chat_template(messages)
    # A template that writes the BOS token itself must not get a second one.
    if tokenizer.bos_id is not None:
        bos = tokenizer.token_bytes(tokenizer.bos_id).decode("utf-8", "replace")
        if bos and text.startswith(bos):
            options = {"add_bos": False, **options}
    return text, {"parse_special": True, **options}


def is_one_prompt(prompt: object) -> bool:
    """True for text and for one sequence of ids; False for a list of prompts (an empty list is one)."""
    if isinstance(prompt, (list, tuple)):
        return bool(prompt) and not hasattr(prompt[0], "__len__")
    one_prompt(prompt)
    return True


def one_prompt(prompt: Any) -> Any:
    """`prompt`, or TypeError for what cannot be one."""
    octets = isinstance(prompt, bytearray) or (isinstance(prompt, memoryview) and prompt.itemsize == 1)
    ids = hasattr(prompt, "__iter__") or hasattr(prompt, "__dlpack__")
    if octets or not ids or isinstance(prompt, (dict, set, frozenset)):
        raise TypeError(f"prompt must be text, token ids or a list of those, not {type(prompt).__name__}")
    return prompt
