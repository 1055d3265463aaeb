"""Versions that are retained for time travel: each ten minutes the newest of every table, for a day.

A lake gets several commits a second; to keep each one's log entry for a day would be half a million of them for every
table, which all who open it would list. Of a version with a checkpoint its own entry is enough (Delta protocol,
"Checkpoints"): what lies between two of them goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from deltalake.exceptions import DeltaError

from lake.files import write_atomically
from lake.log import log_entry
from lake.remote import Location, delta_table
from lake.store import Lake, LakeError, explained

#: How often versions are retained.
EVERY = timedelta(minutes=10)
#: So many of a table's newest versions have a log entry, whatever is kept beside them.
MOST_VERSIONS = 3000


@dataclass(frozen=True, slots=True)
class RetainedVersions:
    """At instant ``at`` each table of ``versions`` had this version as its newest."""

    at: datetime
    versions: dict[str, int] = field(default_factory=dict)


def retained_versions(lake: Lake) -> list[RetainedVersions]:
    """What is kept of the lake's past, oldest first. LakeError where the file that tells it cannot be read."""
    path = _path(lake)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return [RetainedVersions(datetime.fromisoformat(at), dict(versions)) for at, versions in told.items()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise LakeError(f"{path} cannot be read: {error}; remove it, and no past but the last hours is kept") from error


def retain_versions(lake: Lake, names: Iterable[str], keep_for: timedelta, now: datetime) -> list[RetainedVersions]:
    """Keep ``now`` of the tables ``names``, if the last was retained :data:`EVERY` ago; forget those older than
    ``keep_for``. What is kept now, oldest first. LakeError.

    The file is written last: killed before, there are some checkpoints more.
    """
    known = retained_versions(lake)
    kept = [one for one in known if now - keep_for < one.at <= now]
    if keep_for > timedelta(0) and not (kept and now - kept[-1].at < EVERY):
        kept.append(RetainedVersions(now, {name: _with_checkpoint(lake, name) for name in names}))
    if kept != known:
        _write(_path(lake), json.dumps({one.at.isoformat(): one.versions for one in kept}))
    return kept


def kept_versions(retained: Iterable[RetainedVersions], name: str, table: Location) -> set[int]:
    """The versions of table ``name``, in folder ``table``, that any of ``retained`` needs and its log still has."""
    wanted = {one.versions[name] for one in retained if name in one.versions}
    there = {path.name for path in (table / "_delta_log").iterdir()} if wanted else set()
    return {version for version in wanted if {log_entry(table, version).name, _checkpoint(version)} <= there}


def _with_checkpoint(lake: Lake, name: str) -> int:
    path = lake.path(name)
    try:
        table = delta_table(path)
        if not (path / "_delta_log" / _checkpoint(table.version())).exists():
            table.create_checkpoint()
    except (DeltaError, OSError) as error:
        raise explained(error, path) from error
    return table.version()


def _checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _path(lake: Lake) -> Location:
    return lake.tables / "retained_versions.json"


def _write(path: Location, text: str) -> None:
    try:
        if isinstance(path, Path):
            write_atomically(path, text)
        else:
            path.write_text(text)
    except OSError as error:
        raise explained(error, path) from error


def newest_before(retained: Iterable[RetainedVersions], at: datetime) -> RetainedVersions | None:
    """The last of ``retained`` that is not after ``at``."""
    return max((one for one in retained if one.at <= at), key=lambda one: one.at, default=None)
