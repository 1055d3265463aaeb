"""What newer files and log entries have replaced goes, once nobody can still need it.

`deltalake` does the work: ``vacuum`` removes replaced and never committed files that are older than the table's
``delta.deletedFileRetentionDuration``, ``cleanup_metadata`` the log before the newest checkpoint that is older than
``delta.logRetentionDuration``. Neither knows of streams, so both wait here until every stream has read on. Writers
clean up nothing by themselves (``delta.enableExpiredLogCleanup``): they know of streams still less.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from lake.errors import first_line
from lake.store import CHECKPOINT_INTERVAL, Lake, LakeError, properties
from spark_analytics.maintenance.streams import needed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tidied:
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
            log.info("properties of %s put off: %s", name, first_line(error))
        except (DeltaError, OSError) as error:
            raise LakeError(f"table {name} cannot be maintained: {first_line(error)}") from error


def tidy(
    lake: Lake, name: str, replaced_for: timedelta, now: datetime, *, dry_run: bool, vacuum_hours: int | None = None
) -> Tidied:
    """Remove what was replaced longer than ``replaced_for`` ago and no stream still needs.

    ``vacuum_hours``, at least 1, stands in for it this once, for data files alone. A table without its properties yet
    keeps Delta's own times.
    """
    table, folder = lake.ensure(name), lake.path(name)
    files_before = now - (timedelta(hours=vacuum_hours) if vacuum_hours else replaced_for)
    log_before = now - replaced_for
    streams = needed(lake.root, table, folder / "_delta_log")
    try:
        files, size, log_files = 0, 0, 0
        if _over(streams.files_since, files_before):
            files, size = _vacuum(table, folder, vacuum_hours, dry_run=dry_run)
        if _over(streams.log_since, log_before):
            log_files = _clean_log(table, folder / "_delta_log", log_before, dry_run=dry_run)
        if not dry_run:
            lake.write_checksum(name)
    except (DeltaError, OSError) as error:
        raise LakeError(f"table {name} cannot be maintained: {first_line(error)}") from error
    late = [time for time, before in ((streams.files_since, files_before), (streams.log_since, log_before))
            if time is not None and time < before]  # fmt: skip
    held = f"kept from {min(late):%Y-%m-%d %H:%M} on: the analysis has not read further" if late else ""
    return Tidied(files, size, log_files, held)


def _over(since: datetime | None, before: datetime) -> bool:
    return since is None or since >= before


def _vacuum(table: DeltaTable, folder: Path, hours: int | None, *, dry_run: bool) -> tuple[int, int]:
    """Remove files that no version within ``hours`` (None: the table's own retention) needs, those of commits that were
    never finished too; how many, and their bytes."""
    # A dry run first: a vacuum that finds nothing would still make two commits.
    stale = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    size = sum(_size(folder / unquote(path)) for path in stale)
    if stale and not dry_run:
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    return len(stale), size


def _clean_log(table: DeltaTable, log_folder: Path, before: datetime, *, dry_run: bool) -> int:
    if dry_run:
        return len(expired(log_folder, before))
    if table.version() - _newest_checkpoint(log_folder) >= CHECKPOINT_INTERVAL:
        table.create_checkpoint()  # its writer was killed before it could
    there = _count(log_folder)
    table.cleanup_metadata()
    return there - _count(log_folder)


def expired(log_folder: Path, before: datetime) -> list[Path]:
    """The entries of a log that are not needed to tell of any version after ``before``."""
    checkpoints = [path for path in log_folder.glob("*.checkpoint.parquet") if _time(path) < before]
    if not checkpoints:
        return []
    first = max(int(path.name[:20]) for path in checkpoints)
    numbered = [path for path in log_folder.iterdir() if path.name[:20].isdigit()]
    return [path for path in numbered if int(path.name[:20]) < first and path.suffix != ".crc"]


def _newest_checkpoint(log_folder: Path) -> int:
    return max((int(path.name[:20]) for path in log_folder.glob("*.checkpoint.parquet")), default=0)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
