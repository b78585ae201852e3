# SPDX-License-Identifier: Apache-2.0
"""Progress bars: the way from the library's progress calls to tqdm, which is imported only when a bar is asked for."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAR_DELAY_SECONDS = 1.0
"""What takes less shows no bar."""


@contextmanager
def reporter(progress: object) -> Iterator[Callable[[str, int, int], None] | None]:
    """What to hand to the library for a `progress` keyword: None, the caller's callable, or a bar."""
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress is True:
        with _bars() as report:
            yield report
    else:
        raise TypeError(f"progress must be a bool or a callable, not {type(progress).__name__}")


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    from tqdm import tqdm

    bars: dict[str, tqdm] = {}

    def report(what: str, done: int, total: int) -> None:
        bar = bars.get(what)
        if bar is None:
            bar = bars[what] = tqdm(total=total, desc=what, delay=BAR_DELAY_SECONDS, leave=False, dynamic_ncols=True)
        bar.update(done - bar.n)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()
