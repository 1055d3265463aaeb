"""Time travel: the lake as it was at an instant, each table at the version that it had then."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlparse

from deltalake.exceptions import DeltaError

from lake.errors import UserError, first_line
from lake.log import log_entry
from lake.remote import Location, Remote, delta_table, located
from lake.store import Lake
from lake.tables import TABLES

_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_VERSION = re.compile(r"([a-z_]+)@(\d+)")
_COMMIT = re.compile(r"(\d{20})\.json")
_MEND = "as `2026-01-31T12:00:00Z`, `-2h` (s, m, h or d) or `partials@120`"
#: The version of a table that was not there yet.
NOT_YET = -1


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant of a lake; ``pinned`` tables are at the version that is named instead of the one they had then."""

    at: datetime
    pinned: Mapping[str, int] = field(default_factory=dict)

    def version(self, lake: Lake, name: str) -> int:
        """The version of table ``name`` at this moment, ``NOT_YET`` before it was made.

        Raises UserError where the log or the files of that version are gone: cleaned up, or vacuumed.
        """
        path = lake.path(name)
        version = self.pinned[name] if name in self.pinned else _version_at(path, self.at, name)
        if version != NOT_YET:
            _check_files(path, version, name)
        return version


def moment(words: Sequence[str], lake: Lake, now: datetime) -> Moment | None:
    """What ``--as-of`` names: one time, or versions of tables, whose newest commit is then the others' instant.

    None for no words. Raises UserError for what is neither, or lies in the future.
    """
    times = [word for word in words if not _VERSION.fullmatch(word)]
    pinned = dict(_pinned(word, lake) for word in words if _VERSION.fullmatch(word))
    if len(times) > 1:
        raise UserError(f"--as-of names {len(times)} times: {', '.join(times)}", "name one")
    if times:
        at = _instant(times[0], now)
        if at > now:
            raise UserError(f"--as-of {times[0]} is in the future", "name an instant that has been")
        return Moment(at, pinned)
    if not pinned:
        return None
    return Moment(max(_committed_at(log_entry(lake.path(name), version)) for name, version in pinned.items()), pinned)


def _pinned(word: str, lake: Lake) -> tuple[str, int]:
    found = _VERSION.fullmatch(word)
    assert found is not None
    name, version = found.group(1), int(found.group(2))
    if name not in TABLES:
        raise UserError(f"--as-of {word}: there is no table {name}", f"there are {', '.join(TABLES)}")
    if not log_entry(lake.path(name), version).is_file():
        versions = _versions(lake.path(name))
        kept = f"{versions[0]} to {versions[-1]}" if versions else "none"
        raise UserError(f"table {name} has no version {version}", f"versions in its log: {kept}")
    return name, version


def _instant(word: str, now: datetime) -> datetime:
    if found := _RELATIVE.fullmatch(word):
        try:
            return now - timedelta(**{_UNITS[found.group(2)]: float(found.group(1))})
        except OverflowError as error:
            raise UserError(f"--as-of {word} is before all time", f"write it {_MEND}") from error
    try:
        at = datetime.fromisoformat(word)
    except ValueError as error:
        raise UserError(f"--as-of {word!r} is no time", f"write it {_MEND}") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _version_at(path: Location, at: datetime, name: str) -> int:
    """The newest version of the table at ``path`` that was committed at ``at`` or before."""
    versions = _versions(path)
    after = bisect.bisect_right(versions, at, key=lambda version: _committed_at(log_entry(path, version)))
    if after:
        return versions[after - 1]
    if not versions or versions[0] == 0:
        return NOT_YET
    oldest = _committed_at(log_entry(path, versions[0]))
    raise UserError(
        f"the history of table {name} begins at {oldest:%Y-%m-%dT%H:%M:%SZ}: what was before has been cleaned up",
        "name a later time",
    )


def _versions(path: Location) -> list[int]:
    try:
        names = [_COMMIT.fullmatch(entry.name) for entry in (path / "_delta_log").iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name.group(1)) for name in names if name)


def _committed_at(commit: Location) -> datetime:
    """When ``commit`` was made: by its own word, which copies keep, else by the file's."""
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line[:40]:
                stamp = json.loads(line)["commitInfo"].get("timestamp")
                if isinstance(stamp, int):
                    return datetime.fromtimestamp(stamp / 1000, UTC)
    return datetime.fromtimestamp(commit.stat().st_mtime, UTC)


def _check_files(path: Location, version: int, name: str) -> None:
    fix = "name a later time"
    try:
        files = delta_table(path, version).file_uris()
    except (DeltaError, OSError) as error:
        raise UserError(
            f"version {version} of table {name} cannot be read any more: {first_line(error)}", fix
        ) from error
    if isinstance(path, Remote):
        there = {file for file, _ in path.entries(recursive=True)}
        gone = sum(located(path, file) not in there for file in files)
    else:
        gone = sum(not Path(unquote(urlparse(file).path) if "://" in file else file).exists() for file in files)
    if gone:
        raise UserError(
            f"version {version} of table {name} is gone: {gone} of its {len(files)} files were vacuumed away",
            "name a later time",
        )
