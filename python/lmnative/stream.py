# SPDX-License-Identifier: Apache-2.0
"""Requests in event loops (asyncio, uvloop). Imported at the first use of an Engine in one.

Each loop that uses an engine watches a duplicate of the engine's descriptor while it has requests there; one wake-up
takes the news of all of them in one call. When the news is of another loop's requests, that loop is told, and takes
them itself: the chunks of a request are taken by one thread only, and stay in order. No threads, no polling.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections import deque
from contextlib import suppress

from lmnative import _lmnative
from lmnative.errors import CancelledError, ClosedError
from lmnative.request import CLOSED, checked, last_stats, named
from lmnative.results import Chunk, Completion, Usage, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Inbox:
    """What a loop has taken of one request, and its reader has not. Belongs to the loop's thread, but for close()."""

    def __init__(self, watcher: Watcher, request: _lmnative.Request) -> None:
        self.watcher = watcher
        self.request = request
        self.news: deque[tuple[Any, ...]] = deque()
        self.stats: dict[str, int] | None = None  # once it has ended, or is closed
        self.failure: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._until_end = False

    def put(self, chunks: list[tuple[Any, ...]], end: BaseException | bool | None) -> None:
        self.news.extend(chunks)
        if end is not None:
            if end is not True:
                self.failure = end  # type: ignore[assignment]
            self.close()
        if self._reader is not None and not self._reader.done() and (self.stats is not None or not self._until_end):
            self._reader.set_result(None)

    def check_loop(self) -> None:
        if asyncio.get_running_loop() is not self.watcher.loop:
            raise RuntimeError("this stream belongs to another event loop")

    async def wait(self, until_end: bool = False) -> None:
        """For news, or for the end. Whatever ends the wait (the task is cancelled) ends the request."""
        if self._reader is not None:
            raise RuntimeError("two tasks read the same stream")
        self._reader, self._until_end = self.watcher.loop.create_future(), until_end
        try:
            await self._reader
        except BaseException:
            self.close()
            raise
        finally:
            self._reader = None

    def close(self, *, from_collector: bool = False) -> None:
        """Cancels the request unless it has ended, and frees it."""
        if self.stats is None:
            self.stats = last_stats(self.request)
            tag = self.request.tag
            self.request.close()
            self.watcher.forget(tag, from_collector)
            if self._reader is not None and not from_collector:
                self.watcher.wake(self._reader)

    def current_stats(self) -> dict[str, int]:
        return self.stats if self.stats is not None else self.request.stats()


class Watcher:
    """One loop's side of an engine, while it has requests there."""

    _numbers = itertools.count(1)

    def __init__(self, watchers: Watchers, handle: _lmnative.Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.number = next(self._numbers)
        self._watchers = watchers
        self._handle = handle
        self._inboxes: dict[int, Inbox] = {}
        self._thread = threading.get_ident()
        self._process = os.getpid()
        # Its own duplicate, which outlives the engine: whenever the loop gets round to it, the number is still ours.
        self._descriptor: int | None = os.dup(handle.descriptor())
        # What drain() found and nobody was handed yet: for this loop, and by the numbers of others.
        self._drained: list[tuple[list[Any], dict[int, list[int]]]] = []
        loop.add_reader(self._descriptor, self._on_news)

    def submit(self, prompt: object, options: dict[str, Any]) -> Inbox:
        try:
            request = self._handle.submit(prompt, loop=self.number, **options)
        except BaseException:
            self._stop_if_idle()
            raise
        inbox = self._inboxes[request.tag] = Inbox(self, request)
        return inbox

    def _on_news(self) -> None:
        try:
            self._handle.drain(self.number, self._drained)
        except ClosedError:  # close() sends finish()
            return
        self._dispatch()

    def _dispatch(self) -> None:
        """Other loops first: what goes wrong in this one (KeyboardInterrupt) is not their business."""
        try:
            while self._drained:
                entry = mine, others = self._drained[0]
                for number in list(others):
                    self._watchers.tell(number, others[number])
                    others.pop(number, None)
                while mine:
                    self._deliver([mine.pop(0)])
                if self._drained and self._drained[0] is entry:  # else a call from within has seen to all
                    self._drained.pop(0)
        finally:
            if self._drained:
                with suppress(RuntimeError):  # the loop is closed
                    self.loop.call_soon_threadsafe(self._dispatch)

    def wake(self, reader: asyncio.Future[None]) -> None:
        """Ends a wait for news of a request that was closed."""

        def end() -> None:
            if not reader.done():
                reader.set_result(None)

        if threading.get_ident() == self._thread:
            end()
        elif os.getpid() == self._process:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(end)

    def take(self, tags: list[int]) -> None:
        """Another loop found news of these."""
        self._deliver(self._handle.take(tags))

    def _deliver(self, news: list[tuple[int, list[tuple[Any, ...]], BaseException | bool | None]]) -> None:
        for tag, chunks, end in news:
            inbox = self._inboxes.get(tag)
            if inbox is not None:  # else it was closed meanwhile
                inbox.put(chunks, end)

    def finish(self) -> None:
        """The engine was closed: every request has ended."""
        if os.getpid() != self._process:
            return
        self.take(list(self._inboxes))
        for inbox in list(self._inboxes.values()):  # the engine still ends, because a call in another thread uses it
            inbox.put([], CancelledError(CLOSED))

    def abandon(self) -> None:
        """The loop was closed, with requests."""
        for inbox in list(self._inboxes.values()):
            inbox.close(from_collector=True)
        self._stop()

    def forget(self, tag: int, from_collector: bool) -> None:
        self._inboxes.pop(tag, None)
        if self._inboxes:
            return
        if not from_collector and threading.get_ident() == self._thread:
            self._stop_if_idle()
        elif os.getpid() == self._process:
            try:
                self.loop.call_soon_threadsafe(self._stop_if_idle)
            except RuntimeError:  # it is closed
                self._stop()

    def _stop_if_idle(self) -> None:
        if self._inboxes or self._descriptor is None:
            return
        self._on_news()  # what is announced of requests that were left is held until somebody asks
        self._stop()

    def _stop(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        self._watchers.remove(self)
        # After fork the loop's own descriptor is shared with the parent, whose watch must stay.
        if os.getpid() == self._process and not self.loop.is_closed():
            self.loop.remove_reader(descriptor)
        with suppress(OSError):
            os.close(descriptor)


class Watchers:
    """The loops that use an engine now. Any thread."""

    def __init__(self, handle: _lmnative.Engine) -> None:
        self._handle = handle
        self._by_loop: dict[asyncio.AbstractEventLoop, Watcher] = {}

    def here(self) -> Watcher:
        """The running loop's; RuntimeError if there is none."""
        loop = asyncio.get_running_loop()
        watcher = self._by_loop.get(loop)
        if watcher is None:
            for other in [w for w in list(self._by_loop.values()) if w.loop.is_closed()]:
                other.abandon()
            watcher = self._by_loop[loop] = Watcher(self, self._handle, loop)
        return watcher

    def tell(self, number: int, tags: list[int]) -> None:
        for watcher in list(self._by_loop.values()):
            if watcher.number == number:
                try:
                    watcher.loop.call_soon_threadsafe(watcher.take, tags)
                except RuntimeError:  # it is closed
                    watcher.abandon()

    def remove(self, watcher: Watcher) -> None:
        if self._by_loop.get(watcher.loop) is watcher:
            del self._by_loop[watcher.loop]

    def finish(self) -> None:
        """The engine was closed."""
        for watcher in list(self._by_loop.values()):
            try:
                watcher.loop.call_soon_threadsafe(watcher.finish)
            except RuntimeError:  # it is closed
                watcher.abandon()


class AsyncStream:
    """An answer while it is generated: ``async for chunk in stream``.

    Leaving the loop, ``aclose()``, leaving an ``async with`` block, dropping it, or cancelling the task that waits for
    it cancels the request at once. One task at a time, of the loop that made it.
    """

    def __init__(self, inbox: Inbox, n: int) -> None:
        self._inbox = inbox
        self._n = n
        self._chunks: list[Chunk] = []
        self._left = False

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Chunk:
        inbox = self._inbox
        inbox.check_loop()
        while not inbox.news:
            if self._left:
                raise StopAsyncIteration
            if inbox.failure is not None:
                raise inbox.failure
            if inbox.stats is not None:
                if any(chunk.finish_reason == "cancelled" for chunk in self._chunks):
                    raise CancelledError(CLOSED)
                raise StopAsyncIteration
            await inbox.wait()
        return self._take()

    def _take(self) -> Chunk:
        chunk = Chunk(*self._inbox.news.popleft())
        self._chunks.append(chunk)
        return chunk

    async def _started(self) -> None:
        """Returns when the engine has begun with it."""
        if not self._inbox.news and self._inbox.stats is None:
            await self._inbox.wait()

    async def _finish(self) -> Completion:
        if self._inbox.stats is None:
            await self._inbox.wait(until_end=True)
        if self._left:
            raise CancelledError("the stream was closed while its answer was awaited")
        while self._inbox.news:
            self._take()
        if self._inbox.failure is not None:
            raise self._inbox.failure
        return checked(self.result())

    def _close(self) -> None:
        self._left = True
        self._inbox.news.clear()
        self._inbox.close()

    async def aclose(self) -> None:
        """Cancels the request unless it has ended, and frees it. May be called more than once."""
        self._close()

    def result(self) -> Completion:
        """Everything taken up to now as one Completion; its finish_reason is None while the answer goes on."""
        return joined(self._chunks, self._inbox.current_stats(), self._n)

    @property
    def usage(self) -> Usage:
        """Tokens and time up to now."""
        return Usage.from_stats(self._inbox.current_stats())

    def stats(self) -> dict[str, object]:
        """As Request.stats."""
        return named(self._inbox.current_stats())

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._close()

    def __del__(self) -> None:
        if hasattr(self, "_inbox"):
            self._inbox.close(from_collector=True)


async def pause() -> None:
    """Between two looks whether a queue that others fill has room."""
    await asyncio.sleep(0.005)


def stream(watchers: Watchers, prompt: object, options: Mapping[str, Any]) -> AsyncStream:
    """Submits for the running loop. `options`: the keywords of _lmnative.Engine.submit."""
    return AsyncStream(watchers.here().submit(prompt, dict(options)), options["n"])
