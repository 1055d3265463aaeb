"""What samplers last told of each queue's tenants, as rules read it: the engine's view ``sampled_tenants``.

Libraries that keep their jobs in Redis or PostgreSQL send no events. What waits there for whom is in the samples
(`queue_samples.tenants`), as far as each queue's tenants were asked for and could be counted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from alerts.rules.expression import ENGINE_VIEWS
from lake.clock import ZERO, age, fresh_for
from lake.dataset import rows_of
from lake.errors import SojournError, first_line
from lake.follow import Change, Follower
from lake.shares import LOOK_BACK
from lake.snapshot import Snapshot, read_file
from lake.store import Lake
from lake.tables import QUEUE_SAMPLES

log = logging.getLogger(__name__)

_KEY = ("broker", "queue", "subscriber", "source")
_COLUMNS = (*_KEY, "sampled_at", "tenants")
_Key = tuple[str | None, ...]
_Row = dict[str, Any]


@dataclass(slots=True)
class _Reading:
    sampled_at: datetime
    shares: list[_Row]
    interval: timedelta = ZERO  # since the one before


class SampledTenants:
    """Reads the newest shares of tenants from the lake. Belongs to one thread."""

    def __init__(self, lake: Lake, stale_after: timedelta) -> None:
        self._lake = lake
        self._stale_after = stale_after
        self._held: dict[_Key, _Reading] = {}
        self._follower: Follower | None = None

    def read(self, now: datetime, ahead: timedelta = ZERO) -> pa.Table:
        """A row for each tenant of each queue that was read lately enough, at ``now`` of a clock that is ``ahead``."""
        try:
            self._take(now + ahead)
        except (SojournError, DeltaError, OSError, pa.ArrowException) as error:
            log.warning("the samples of tenants cannot be read now: %s", first_line(error))
            self._follower = None  # begin again
        told = []
        for (broker, queue, subscriber, _), reading in self._held.items():
            limit = fresh_for(self._stale_after.total_seconds(), reading.interval.total_seconds())
            if age(reading.sampled_at, now, ahead).total_seconds() <= limit:
                of = {"broker": broker, "queue": queue, "subscriber": subscriber, "sampled_at": reading.sampled_at}
                told += [of | share for share in reading.shares]
        return pa.Table.from_pylist(told, schema=ENGINE_VIEWS["sampled_tenants"])

    def _take(self, wall: datetime) -> None:
        changes = self._follower.changes() if self._follower is not None else [Change(anew=True)]
        if any(change.anew for change in changes):
            table = self._lake.ensure("queue_samples")
            self._follower = Follower(Snapshot(QUEUE_SAMPLES, self._lake.root), table.version())
            since = wall - LOOK_BACK  # a queue that is sampled more seldom is known once it is sampled again
            self._note(rows_of(table, _COLUMNS, [("ingest_date", ">=", since.date()), ("sampled_at", ">", since)]))
            return
        for change in changes:
            for file in () if change.same_rows else change.added:
                self._note(read_file(file, _COLUMNS))

    def _note(self, rows: pa.Table) -> None:
        if "tenants" not in rows.column_names:  # of a version that knew none
            return
        told = pc.is_valid(rows.column("tenants"))
        if self._held:
            keys = zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True)
            told = pc.or_(told, pa.array([key in self._held for key in keys], pa.bool_()))
        for row in rows.filter(told).sort_by("sampled_at").to_pylist():
            self._put(tuple(row[name] for name in _KEY), row["sampled_at"], row["tenants"])

    def _put(self, key: _Key, sampled_at: datetime, shares: list[_Row] | None) -> None:
        before = self._held.get(key)
        if before is not None and sampled_at <= before.sampled_at:
            return
        if shares is None:  # its tenants are not known any more
            self._held.pop(key, None)
            return
        self._held[key] = _Reading(sampled_at, shares, sampled_at - before.sampled_at if before is not None else ZERO)
