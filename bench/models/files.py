# SPDX-License-Identifier: Apache-2.0
"""The folder of made files: what is there and right is used, anything else is made anew.

A file NAME comes with NAME.json: what it was made from (its recipe), its size and its CRC-32. It is written under
another name and renamed when complete, the JSON after it: a run that is killed leaves nothing that a later one trusts,
and two runs at once write the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 22
SPARE_BYTES = 1 << 30  # left free on the disk


class CannotMake(Exception):
    """A file cannot be made here; the message says why and what would help."""


def default_folder() -> Path:
    """$XDG_CACHE_HOME/lmnative/bench, or below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "lmnative" / "bench"


def crc32(path: Path) -> int:
    """Of the whole file, which is in the page cache afterwards."""
    value = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def is_intact(path: Path, recipe: str) -> bool:
    """True if `path` was made from `recipe` and still has the bytes it had then."""
    try:
        record = json.loads(Path(f"{path}.json").read_text())
        return record["recipe"] == recipe and record["bytes"] == path.stat().st_size and record["crc32"] == crc32(path)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remove_leftovers(path: Path) -> None:
    """Unfinished files of `path` whose makers were killed."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        try:
            os.kill(int(leftover.suffix[1:]), 0)
        except ProcessLookupError:
            leftover.unlink(missing_ok=True)
        except (PermissionError, ValueError):
            pass  # another user's, who is at work; or not ours


def ensure(path: Path, recipe: str, size: Callable[[], int], write: Callable[[Path], None]) -> Path:
    """`path`, made by `write(temporary path)` unless it is there, intact and of the same recipe. `size()` is about what
    it will take."""
    if is_intact(path, recipe):
        return path
    expected_bytes = size()
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    free = shutil.disk_usage(path.parent).free
    if free < expected_bytes + SPARE_BYTES:
        raise CannotMake(
            f"{path.name} needs {expected_bytes / 1e9:.1f} GB and {SPARE_BYTES / 1e9:.1f} GB to spare, {path.parent} "
            f"has {free / 1e9:.1f} GB free; --models-dir names another folder"
        )
    print(f"bench: making {path} ({expected_bytes / 1e9:.2f} GB)", file=sys.stderr)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        record = {"recipe": recipe, "bytes": temporary.stat().st_size, "crc32": crc32(temporary)}
        temporary.replace(path)
        temporary.write_text(json.dumps(record) + "\n")
        temporary.replace(f"{path}.json")
    finally:
        temporary.unlink(missing_ok=True)
    return path
