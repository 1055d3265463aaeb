"""Where the transaction log of a Delta table keeps a commit (Delta protocol, "Delta Log Entries")."""

from __future__ import annotations

from pathlib import Path


def log_entry(table: Path, version: int) -> Path:
    """The file in which the table in folder ``table`` keeps the commit that made ``version``."""
    return table / "_delta_log" / f"{version:020d}.json"
