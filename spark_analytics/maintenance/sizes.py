"""How large a table is, on disk and in its log."""

from __future__ import annotations

from dataclasses import dataclass

from lake.remote import entries
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
    there = list(entries(lake.path(name), recursive=True))
    log = [about.st_size for path, about in there if path.parent.name == "_delta_log"]
    data = [about.st_size for path, about in there if path.parent.name != "_delta_log" and path.suffix == ".parquet"]
    return Size(len(lake.ensure(name).file_uris()), len(log), sum(log), sum(data))
