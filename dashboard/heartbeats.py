"""When each link of the chain last wrote to a lake, by the times of its newest commits: no data are read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from dashboard.services.freshness import Heartbeats
from lake.remote import Remote, tables_at
from lake.tables import TABLES


def heartbeats(root: Path) -> Heartbeats:
    """The last signs of life in the lake at ``root``."""
    events = [at for name in ("message_events", "event_summaries") if (at := _last_commit(root, name)) is not None]
    return Heartbeats(
        events=max(events, default=None),
        samples=_last_commit(root, "queue_samples"),
        metrics=_last_commit(root, "partials"),
        state=_last_commit(root, "queue_state"),
        alerts=_last_commit(root, "alert_transitions"),
    )


def _last_commit(root: Path, table: str) -> datetime | None:
    """When ``table`` was last written to; None where it is not there, or was only made."""
    tables = tables_at(root)
    if isinstance(tables, Remote):
        return _last_remote(tables / TABLES[table].path / "_delta_log")
    try:
        with os.scandir(root / TABLES[table].path / "_delta_log") as entries:
            newest = max((e.name for e in entries if e.name.endswith(".json") and e.name[:20].isdigit()), default=None)
        if newest is None or int(newest[:20]) == 0:
            return None
        return datetime.fromtimestamp(os.stat(root / TABLES[table].path / "_delta_log" / newest).st_mtime, UTC)
    except OSError:
        return None


def _last_remote(log: Remote) -> datetime | None:
    """The same of a log in an object store, by one listing."""
    try:
        told = {file.name: about for file, about in log.entries() if file.suffix == ".json" and file.stem.isdigit()}
    except OSError:
        return None
    newest = max(told, default=None)
    if newest is None or int(newest[:20]) == 0:
        return None
    return datetime.fromtimestamp(told[newest].st_mtime, UTC)
