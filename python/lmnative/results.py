# SPDX-License-Identifier: Apache-2.0
"""What a request gives back: Completion as a whole, Chunk piece by piece, Usage for its cost."""

from __future__ import annotations

from lmnative._record import Record

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    import numpy

    from lmnative import _lmnative

FINISH_REASONS = (None, "stop", "length", "cancelled", "error", "deadline")
"""By lmn_chunk.finish_reason."""


class Usage(Record):
    """Tokens and time of one request."""

    __slots__ = (
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "queue_seconds",
        "prefill_seconds",
        "decode_seconds",
    )

    prompt_tokens: int
    """Tokens of the prompt."""
    completion_tokens: int
    """Tokens generated, of all samples."""
    cached_tokens: int
    """Prompt tokens that the prefix cache held, which were not computed."""
    queue_seconds: float
    """From submit until the engine took it up."""
    prefill_seconds: float
    """From then to the first token."""
    decode_seconds: float
    """From the first token to the last."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that were computed (not found in the prefix cache) over prefill time; 0.0 if there was none."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first one over decode time; 0.0 with fewer than two tokens."""
        return (self.completion_tokens - 1) / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @classmethod
    def from_stats(cls, stats: dict[str, int]) -> Usage:
        """From the extension module's request statistics."""
        return cls(
            prompt_tokens=stats["prompt_tokens"],
            completion_tokens=stats["generated_tokens"],
            cached_tokens=stats["cached_tokens"],
            queue_seconds=stats["queue_ns"] / 1e9,
            prefill_seconds=stats["prefill_ns"] / 1e9,
            decode_seconds=stats["decode_ns"] / 1e9,
        )


class Chunk(Record):
    """A piece of an answer while it is generated. ``str(chunk)`` is its text."""

    __slots__ = ("text", "token_ids", "finish_reason", "sample", "logprobs", "top_logprobs", "logits")

    text: str
    """Complete characters only; may lag behind the tokens."""
    token_ids: list[int]
    """The new tokens; may be empty in the last chunk."""
    finish_reason: str | None
    """None until the sample's last chunk; see Completion.finish_reason."""
    sample: int
    """Which of the n answers this belongs to, 0 to n - 1."""
    logprobs: list[float] | None
    """Per token the natural log of its probability (of the model, before sampling); None unless asked for."""
    top_logprobs: list[dict[int, float]] | None
    """Per token the likeliest alternatives as {token id: logprob}, likeliest first; None unless asked for."""
    logits: numpy.ndarray | None
    """float32 [len(token_ids), vocab]; None unless asked for."""

    def __init__(
        self,
        text: str,
        token_ids: list[int],
        finish_reason: int,
        sample: int,
        logprobs: list[float] | None,
        top_logprobs: list[dict[int, float]] | None,
        logits: _lmnative.Tensor | None,
    ) -> None:
        """Made by what generates."""
        # From the extension module's tuple. Field by field: there are as many chunks as tokens.
        self.text = text
        self.token_ids = token_ids
        self.finish_reason = FINISH_REASONS[finish_reason]
        self.sample = sample
        self.logprobs = logprobs
        self.top_logprobs = top_logprobs
        self.logits = None if logits is None else logits.numpy()

    def __str__(self) -> str:
        return self.text


class Completion(Record):
    """A finished answer. ``str(completion)`` is its text."""

    __slots__ = (
        "text",
        "token_ids",
        "finish_reason",
        "logprobs",
        "top_logprobs",
        "logits",
        "usage",
        "seed",
        "other_samples",
    )

    text: str
    """The answer; a stop string is not part of it."""
    token_ids: list[int]
    """Every generated token, the end-of-generation token included."""
    finish_reason: str | None
    """"stop" (end-of-generation token, stop token or stop string), "length" (max_tokens or the context's end),
    "deadline" (it passed), "cancelled", or None for an answer that is not finished."""
    logprobs: list[float] | None
    """As in Chunk."""
    top_logprobs: list[dict[int, float]] | None
    """As in Chunk."""
    logits: numpy.ndarray | None
    """As in Chunk: float32 [len(token_ids), vocab]."""
    usage: Usage
    """Tokens and time of the request, with all its samples."""
    seed: int
    """The seed in use: give it as ``seed=`` to get the same tokens again. Sample i has the seed of sample 0 plus i."""
    other_samples: list[Completion]
    """Samples 1 to n - 1 of a request with n above 1; else empty. This one is sample 0."""

    @property
    def samples(self) -> list[Completion]:
        """All n answers, this one first."""
        return [self, *self.other_samples]

    def __str__(self) -> str:
        return self.text


def joined(chunks: list[Chunk], stats: dict[str, int], n: int) -> Completion:
    """One Completion from the chunks of a request of `n` samples and its statistics."""
    usage = Usage.from_stats(stats)
    samples = [
        _joined([chunk for chunk in chunks if chunk.sample == i], usage, (stats["seed"] + i) % 2**64) for i in range(n)
    ]
    samples[0].other_samples = samples[1:]
    return samples[0]


def _joined(chunks: list[Chunk], usage: Usage, seed: int) -> Completion:
    logits = None
    parts = [chunk.logits for chunk in chunks if chunk.logits is not None]
    if parts:
        import numpy

        logits = numpy.concatenate(parts)
    logprobs = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    top_logprobs = [chunk.top_logprobs for chunk in chunks if chunk.top_logprobs is not None]
    return Completion(
        text="".join([chunk.text for chunk in chunks]),
        token_ids=[token for chunk in chunks for token in chunk.token_ids],
        finish_reason=chunks[-1].finish_reason if chunks else None,
        logprobs=[value for part in logprobs for value in part] if logprobs else None,
        top_logprobs=[value for part in top_logprobs for value in part] if top_logprobs else None,
        logits=logits,
        usage=usage,
        seed=seed,
        other_samples=[],
    )
