"""Time travel: the lake as it was at an instant, each table at the version that it had then.

As far back as every table's log is whole, to any instant; before that, to the versions that are
retained each ten minutes (:mod:`spark_analytics.retained_versions`): an instant between two of them is the earlier one,
for all tables alike.
"""

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
from spark_analytics.retained_versions import newest_before, retained_versions

_RELATIVE = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_VERSION = re.compile(r"([a-z_]+)@(\d+)")
_COMMIT = re.compile(r"(\d{20})\.json")
_FIX = "as `2026-01-31T12:00:00Z`, `-2h` (s, m, h or d) or `partials@120`"
#: The version of a table that was not there yet.
NOT_YET = -1


@dataclass(frozen=True, slots=True)
class AsOf:
    """An instant of a lake; ``pinned`` tables are at the version that is named instead of the one they had then.

    ``kept``: retained versions; empty where the logs tell. ``asked``: the instant that was named,
    of which ``at`` is then the last before that versions are retained of.
    """

    at: datetime
    pinned: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    asked: datetime | None = None

    def version(self, lake: Lake, name: str) -> int:
        """The version of table ``name`` then, ``NOT_YET`` before it was made.

        Raises UserError where the log or the files of that version are gone: cleaned up, or vacuumed.
        """
        path = lake.path(name)
        if name in self.pinned:
            version = self.pinned[name]
        elif name in self.kept:
            version = _kept(path, self.kept[name], self.at, name)
        else:
            version = _version_at(path, self.at, name)
        if version != NOT_YET:
            _check_files(path, version, name)
        return version


def resolve_as_of(words: Sequence[str], lake: Lake, now: datetime) -> AsOf | None:
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
        return _told(lake, at, pinned)
    if not pinned:
        return None
    newest = max(_committed_at(log_entry(lake.path(name), version)) for name, version in pinned.items())
    return _told(lake, newest, pinned)


def _told(lake: Lake, at: datetime, pinned: Mapping[str, int]) -> AsOf:
    """What tells of ``at``: the logs or, where one has been cut since, the versions that were retained last before it.
    Where none were, the tables whose logs reach so far are told all the same.
    """
    retained = retained_versions(lake)
    tables = {name for one in retained for name in one.versions} - pinned.keys()
    if all(_whole_since(lake.path(name), at) for name in tables) or (kept := newest_before(retained, at)) is None:
        return AsOf(at, pinned)
    return AsOf(kept.at, pinned, kept.versions, asked=at)


def _kept(path: Location, version: int, at: datetime, name: str) -> int:
    """``version``, if it is still the one that the table at ``path`` had ``at`` that instant."""
    try:
        if _committed_at(log_entry(path, version)) <= at:
            return version
    except FileNotFoundError:
        pass
    raise UserError(f"table {name} was recreated since {at:%Y-%m-%dT%H:%M:%SZ}", "name a later time")


def _whole_since(path: Location, at: datetime) -> bool:
    """Whether the log of the table at ``path`` has every version from the one on that was the newest at ``at``."""
    versions = _unbroken(_versions(path))
    return not versions or versions[0] == 0 or _committed_at(log_entry(path, versions[0])) <= at


def _unbroken(versions: Sequence[int]) -> Sequence[int]:
    """The newest of ``versions``, in order, between which none is missing."""
    for place in range(len(versions) - 1, 0, -1):
        if versions[place - 1] != versions[place] - 1:
            return versions[place:]
    return versions


def _pinned(word: str, lake: Lake) -> tuple[str, int]:
    found = _VERSION.fullmatch(word)
    assert found is not None
    name, version = found.group(1), int(found.group(2))
    if name not in TABLES:
        raise UserError(f"--as-of {word}: there is no table {name}", f"there are {', '.join(TABLES)}")
    if not log_entry(lake.path(name), version).is_file():
        versions = _unbroken(_versions(lake.path(name)))
        kept = f"{versions[0]} to {versions[-1]}" if versions else "none"
        raise UserError(f"table {name} has no version {version}", f"versions in its log: {kept}")
    return name, version


def _instant(word: str, now: datetime) -> datetime:
    if found := _RELATIVE.fullmatch(word):
        try:
            return now - timedelta(**{_UNITS[found.group(2)]: float(found.group(1))})
        except OverflowError as error:
            raise UserError(f"--as-of {word} is before all time", f"write it {_FIX}") from error
    try:
        at = datetime.fromisoformat(word)
    except ValueError as error:
        raise UserError(f"--as-of {word!r} is no time", f"write it {_FIX}") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _version_at(path: Location, at: datetime, name: str) -> int:
    """The newest version of the table at ``path`` that was committed at ``at`` or before."""
    versions = _unbroken(_versions(path))
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
