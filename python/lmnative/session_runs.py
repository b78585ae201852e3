# SPDX-License-Identifier: Apache-2.0
"""Runs that nobody waits for: futures, and the thread that completes them. Imported by the first run_async().

Runs of a session end in the order of their submission, so one thread that waits for them in turn suffices. It holds
no session but those of runs that have not ended, and ends with its session.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from lmnative._lmnative import SessionRun
    from lmnative.session import Session


class RunFuture(concurrent.futures.Future[list[Any]]):
    """The results of a run to come; also awaitable."""

    _session_run: SessionRun
    _session: Session  # lives as long as the run

    def cancel(self) -> bool:
        """The run ends before its next operator, or never begins. False: it has ended."""
        self._session_run.cancel()
        return super().cancel()

    def __await__(self) -> Generator[Any, None, list[Any]]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


class Waiter:
    """The thread of one session."""

    def __init__(self, session: Session) -> None:
        self._runs: queue.SimpleQueue[RunFuture | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # the order of the queue is that of submission
        threading.Thread(target=_complete, args=(self._runs,), name="lmnative-runs", daemon=True).start()
        weakref.finalize(session, self._runs.put, None)

    def submit(self, session: Session, names: Iterable[str] | None, feeds: dict[str, Any]) -> RunFuture:
        future = RunFuture()
        future._session = session
        with self._lock:
            future._session_run = session._handle.submit(names, feeds)
            self._runs.put(future)
        return future


def _complete(runs: queue.SimpleQueue[RunFuture | None]) -> None:
    while (future := runs.get()) is not None:
        try:
            results, error = future._session_run.wait(), None
        except BaseException as raised:  # becomes the future's
            results, error = None, raised
        if future.set_running_or_notify_cancel():
            if error is None:
                future.set_result(results)
            else:
                future.set_exception(error)
        del future, results, error  # the session may go now
