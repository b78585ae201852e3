# SPDX-License-Identifier: Apache-2.0
"""Request: an answer in the making, for threads. What event loops have is in stream.py."""

from __future__ import annotations

from lmnative.errors import CancelledError, ClosedError, InvalidArgumentError, WaitTimeoutError
from lmnative.results import FINISH_REASONS, Chunk, Completion, Usage, joined
from lmnative.sampling import number

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmnative import _lmnative

CLOSED = "the engine was closed while it answered"


class Request:
    """An answer while it is generated: iterate over it for its chunks, or poll and wait.

    Closing it, leaving a ``with`` block or dropping it before the end cancels the request. One thread at a time, but
    any thread may cancel and ask for stats.
    """

    def __init__(self, handle: _lmnative.Request, n: int) -> None:
        """Made by Engine.submit."""
        self._handle = handle
        self._n = n
        self._chunks: list[Chunk] = []
        self._last_stats: dict[str, int] | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self.next()
        if chunk is None:
            raise StopIteration
        return chunk

    def next(self, timeout: float | None = None) -> Chunk | None:
        """The next chunk: all that is new of one sample. None after the last one.

        Args:
            timeout: Seconds to wait at most, 0 or more. Default None: until there is news.

        Raises:
            WaitTimeoutError: nothing came in that time.
            InvalidArgumentError: another thread is in `next`; it goes on.
            Error: the request failed; the error says why.
        """
        if self.done:
            return None
        try:
            item = self._handle.next(_timeout_ns(timeout))
        except BaseException:  # KeyboardInterrupt as well: whatever ends the wait ends the request.
            self.close()
            raise
        if item is True:
            raise InvalidArgumentError("another thread is reading this request; one at a time may")
        if item is False:
            raise WaitTimeoutError(f"no news in {timeout} s")
        if item is None:
            self.close()
            return None
        chunk = Chunk(*item)
        self._chunks.append(chunk)
        return chunk

    def poll(self) -> Chunk | None:
        """The next chunk if there is news, else None; never waits. After the last chunk `done` is True."""
        try:
            return self.next(0)
        except WaitTimeoutError:
            return None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the answer has ended, without taking its chunks. False if it has not after `timeout` seconds.

        Raises:
            Error: the request failed; the error says why.
        """
        return self.done or self._handle.wait(_timeout_ns(timeout))

    def cancel(self) -> None:
        """Asks the engine to stop, within one step. What was generated can still be taken; the last chunk's
        finish_reason is "cancelled". No effect once the answer has ended."""
        self._handle.cancel()

    def close(self) -> None:
        """Cancels the request unless it has ended, and frees it. May be called more than once."""
        if self._last_stats is None:
            stats = last_stats(self._handle)
            if stats["finish_reason"] == 0:
                stats["finish_reason"] = FINISH_REASONS.index("cancelled")
            self._last_stats = stats
            self._handle.close()

    @property
    def done(self) -> bool:
        """True once the last chunk was taken, or the request closed."""
        return self._last_stats is not None

    def result(self) -> Completion:
        """Everything taken up to now as one Completion; its finish_reason is None while the answer goes on, and
        "cancelled" of a request that was closed before its end."""
        result = joined(self._chunks, self._raw_stats(), self._n)
        for sample in result.samples:
            if self._last_stats is not None and sample.finish_reason is None:
                sample.finish_reason = FINISH_REASONS[self._last_stats["finish_reason"]]
        return result

    def _finish(self) -> Completion:
        while self.next() is not None:
            pass
        return checked(self.result())

    @property
    def usage(self) -> Usage:
        """Tokens and time up to now."""
        return Usage.from_stats(self._raw_stats())

    def stats(self) -> dict[str, object]:
        """The figures up to now: prompt_tokens, generated_tokens (of all samples), cached_tokens (of the prompt, found
        in the prefix cache), preemptions, queue_ns, prefill_ns, decode_ns, seed, finish_reason (None if going on)."""
        return named(self._raw_stats())

    def _raw_stats(self) -> dict[str, int]:
        return self._last_stats if self._last_stats is not None else self._handle.stats()

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def checked(result: Completion) -> Completion:
    """`result`, or CancelledError: nobody who waits for the whole answer has cancelled it, so the engine was closed."""
    if any(sample.finish_reason == "cancelled" for sample in result.samples):
        raise CancelledError(CLOSED)
    return result


def last_stats(handle: _lmnative.Request) -> dict[str, int]:
    """The figures of a request that is about to be closed; zeros in a forked child, whose requests are the parent's."""
    try:
        return handle.stats()
    except ClosedError:
        fields = ("finish_reason", "prompt_tokens", "generated_tokens", "cached_tokens", "preemptions")
        return dict.fromkeys((*fields, "queue_ns", "prefill_ns", "decode_ns", "seed"), 0)


def named(stats: dict[str, int]) -> dict[str, object]:
    """Statistics of a request with the reason by its name."""
    return {**stats, "finish_reason": FINISH_REASONS[stats["finish_reason"]]}


def _timeout_ns(timeout: float | None) -> int:
    if timeout is None:
        return -1
    seconds = number("timeout", timeout)
    return min(max(int(seconds * 1e9), 0), 2**62) if seconds == seconds and seconds < 1e9 else -1
