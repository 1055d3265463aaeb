"""Where the transaction log of a Delta table keeps a commit (Delta protocol, "Delta Log Entries")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from lake.remote import Location, Remote


@overload
def log_entry(table: Path, version: int) -> Path: ...
@overload
def log_entry(table: Remote, version: int) -> Remote: ...
def log_entry(table: Location, version: int) -> Location:
    """The file in which the table in folder ``table`` keeps the commit that made ``version``."""
    name = f"{version:020d}.json"  # asked for hundreds of times a second: of a path joined at once, not twice
    return table.joinpath("_delta_log", name) if isinstance(table, Path) else table / "_delta_log" / name


def newest_from(table: Location, known: int) -> int | None:
    """The newest version of the table in folder ``table``, which had ``known``; None where its log no longer tells.

    A look-up for each version since, where to open the table costs the more the longer its log is.
    """
    if known < 0 or not log_entry(table, known).exists():
        return None
    while log_entry(table, known + 1).exists():
        known += 1
    return known
