"""What newer files and log entries have replaced goes, once nobody can still need it.

Files by ``deltalake``'s vacuum: replaced ones, and those of commits that were never finished, when they are older than
the table's ``delta.deletedFileRetentionDuration``. The log as the Delta protocol describes it ("Metadata Cleanup"):
what stands before the newest checkpoint that is older than ``delta.logRetentionDuration``. ``deltalake``'s
``cleanup_metadata`` does the same, but knows of no streams; here both wait until every stream has read on, and both
spare the versions that are retained (:mod:`spark_analytics.retained_versions`). Writers clean up nothing by themselves
(``delta.enableExpiredLogCleanup``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from lake.checkpoints import CHECKPOINT_INTERVAL
from lake.errors import first_line
from lake.making import properties
from lake.remote import Location, entries
from lake.store import Lake, explained
from spark_analytics.maintenance.retention import Retention
from spark_analytics.maintenance.streams import needed
from spark_analytics.retained_versions import MOST_VERSIONS, RetainedVersions, kept_versions

log = logging.getLogger(__name__)

#: The vacuum looks at the clock after we did.
_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was removed, or would be; ``held`` says what is kept longer than asked for, and why."""

    files: int = 0
    bytes: int = 0
    log_files: int = 0
    held: str = ""


def set_properties(lake: Lake, name: str, replaced_for: timedelta) -> None:
    """Give table ``name`` its properties, if it has others."""
    wanted = properties(name, replaced_for)
    table = lake.ensure(name)
    there = table.metadata().configuration
    if any(there.get(key) != value for key, value in wanted.items()):
        try:
            table.alter.set_table_properties(wanted)
        except CommitFailedError as error:  # others commit all the while: the next run tries again
            log.info("properties of %s deferred: %s", name, first_line(error))
        except (DeltaError, OSError) as error:
            raise explained(error, lake.path(name)) from error


def vacuum(
    lake: Lake,
    name: str,
    retention: Retention,
    now: datetime,
    retained: Sequence[RetainedVersions],
    *,
    dry_run: bool,
    vacuum_hours: int | None = None,
) -> Vacuumed:
    """Remove what was replaced so long ago that ``retention`` keeps it no more, and neither a stream nor any of
    ``retained`` still needs.

    ``vacuum_hours``, at least 1, stands in for its time this once, for data files alone. A table without its properties
    yet keeps Delta's own times.
    """
    table, folder = lake.ensure(name), lake.path(name)
    streams = needed(lake.root, table, folder / "_delta_log")
    old = now - (timedelta(hours=vacuum_hours) if vacuum_hours else retention.replaced_for)
    files, size, log_files, held = 0, 0, 0, ""
    try:
        kept = kept_versions(retained, name, folder)
        if streams.files_since is not None and streams.files_since < old + _MARGIN:
            held = f"kept from {streams.files_since:%Y-%m-%d %H:%M} UTC on: the analysis has not read further"
        else:
            files, size = _vacuum(table, folder, vacuum_hours, kept, dry_run=dry_run)
        before = now - retention.log_for(name)
        log_files = _clean_log(table, folder / "_delta_log", before, streams.log_from, kept, dry_run=dry_run)
        if not dry_run:
            lake.write_checksum(name)
    except (DeltaError, OSError) as error:
        raise explained(error, lake.path(name)) from error
    return Vacuumed(files, size, log_files, held)


def shorten_log(lake: Lake, name: str, log_for: timedelta, now: datetime) -> None:
    """Remove log entries of table ``name`` that were replaced longer than ``log_for`` ago, of versions that are not
    retained and that no stream still needs."""
    table, log_folder = lake.ensure(name), lake.path(name) / "_delta_log"
    try:
        _clean_log(table, log_folder, now - log_for, needed(lake.root, table, log_folder).log_from, (), dry_run=False)
    except (DeltaError, OSError) as error:
        raise explained(error, lake.path(name)) from error


def _vacuum(
    table: DeltaTable, folder: Location, hours: int | None, kept: Collection[int], *, dry_run: bool
) -> tuple[int, int]:
    """Remove files that no version within ``hours`` (None: the table's own retention) needs and none of ``kept``, those
    of commits that were never finished too; how many, and their bytes."""
    # A dry run first: a vacuum that finds nothing would still make two commits.
    wanted: dict[str, Any] = {"enforce_retention_duration": False, "full": True, "keep_versions": sorted(kept)}
    stale = table.vacuum(hours, dry_run=True, **wanted)
    size = sum(_size(folder / unquote(path)) for path in stale)
    if stale and not dry_run:
        table.vacuum(hours, dry_run=False, **wanted)
    return len(stale), size


def _clean_log(
    table: DeltaTable,
    log_folder: Location,
    before: datetime,
    needed_from: int | None,
    kept: Collection[int],
    *,
    dry_run: bool,
) -> int:
    if not dry_run and table.version() - _newest_checkpoint(log_folder) >= CHECKPOINT_INTERVAL:
        table.create_checkpoint()  # its writer was killed before it could
    stale = expired(log_folder, before, needed_from, kept)
    if not dry_run:
        for path in stale:
            path.unlink(missing_ok=True)
    return len(stale)


def expired(
    log_folder: Location, before: datetime, needed_from: int | None = None, kept: Collection[int] = ()
) -> list[Location]:
    """The entries of a log without which every version is told that is both after ``before`` and one of the newest
    :data:`MOST_VERSIONS`, or from ``needed_from`` on, or one of ``kept``; oldest first, so that a kill in between
    leaves no gap. Checksums look after themselves.
    """
    there = [(path, about) for path, about in entries(log_folder) if path.name[:20].isdigit()]
    many = max((_number(path) for path, _ in there), default=0) - MOST_VERSIONS
    usable = [
        number
        for path, about in there
        if path.name.endswith(".checkpoint.parquet")
        and (number := _number(path)) <= (number if needed_from is None else needed_from)
        and (number <= many or datetime.fromtimestamp(about.st_mtime, UTC) < before)
    ]
    first = max(usable, default=0)
    stale = [path for path, _ in there if path.suffix != ".crc" and (n := _number(path)) < first and n not in kept]
    return sorted(stale, key=str)


def _number(path: Location) -> int:
    return int(path.name[:20])


def _newest_checkpoint(log_folder: Location) -> int:
    return max(map(_number, log_folder.glob("*.checkpoint.parquet")), default=0)


def _size(path: Location) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
