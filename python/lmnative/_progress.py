# SPDX-License-Identifier: Apache-2.0
"""Progress bars: the way from the library's progress calls to tqdm, which is imported only when a bar is asked for."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than the whole package
if TYPE_CHECKING:
    from collections.abc import Callable

    from tqdm import tqdm

    Report = Callable[[str, int, int], None]

BAR_DELAY_SECONDS = 1.0
"""What takes less shows no bar."""


class reporter:
    """For ``with``: what to hand to the library for a `progress` keyword: None, the caller's callable, or a bar.

    A class, because contextlib takes as long to import as half of this package."""

    def __init__(self, progress: object) -> None:
        self._bars: dict[str, tqdm] = {}
        self._report: Report | None = None
        if progress is True:
            self._report = _into_bars(self._bars)
        elif callable(progress):
            self._report = progress
        elif progress is not None and progress is not False:
            raise TypeError(f"progress must be a bool or a callable, not {type(progress).__name__}")

    def __enter__(self) -> Report | None:
        return self._report

    def __exit__(self, *exc_info: object) -> None:
        for bar in self._bars.values():
            bar.close()


def _into_bars(bars: dict[str, tqdm]) -> Report:
    from tqdm import tqdm

    def report(what: str, done: int, total: int) -> None:
        bar = bars.get(what)
        if bar is None:
            bar = bars[what] = tqdm(total=total, desc=what, delay=BAR_DELAY_SECONDS, leave=False, dynamic_ncols=True)
        bar.update(done - bar.n)

    return report
