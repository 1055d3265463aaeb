"""How large a table is, on disk and in its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lake.store import Lake


@dataclass(frozen=True, slots=True)
class Size:
    """``files`` the table consists of, entries and bytes of its log, and bytes ``stored`` in all data files, replaced
    ones that are not removed yet too.
    """

    files: int
    log_files: int
    log_bytes: int
    stored: int


def size(lake: Lake, name: str) -> Size:
    """The size of table ``name`` now."""
    folder = lake.path(name)
    log = list(_sizes((folder / "_delta_log").iterdir()))
    data = _sizes(path for path in folder.rglob("*.parquet") if path.parent.name != "_delta_log")
    return Size(len(lake.ensure(name).file_uris()), len(log), sum(log), sum(data))


def _sizes(paths: Iterator[Path]) -> Iterator[int]:
    for path in paths:
        try:
            yield path.stat().st_size
        except FileNotFoundError:  # removed while we were counting
            continue
