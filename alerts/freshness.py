"""How far the visible data reaches, and whether it is only the queues that are idle or the data that is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from alerts.evaluate import Freshness, Query
from alerts.rules.expression import ENGINE_VIEWS
from lake.clock import TOLERANCE, ZERO, age, fresh_for
from lake.errors import SojournError
from lake.store import Lake

_NEWEST = "SELECT broker, as_of, sampled_at, sample_interval_seconds FROM stage_newest ORDER BY broker"
_COMPLETE = "SELECT complete FROM stage_history"
#: Statistics in the Delta log keep milliseconds.
_STATISTICS_GRAIN = timedelta(milliseconds=1)


class FreshnessProbe:
    """Reads how fresh the lake is. One probe belongs to one thread."""

    def __init__(self, lake: Lake, stale_after: timedelta) -> None:
        self._lake = lake
        self._stale_after = stale_after
        self._moved: dict[str, tuple[datetime, datetime]] = {}  # what each broker reached, and when that was new
        self._newest: list[dict[str, Any]] | None = None  # of each broker, as last read
        self._complete = True

    def read(
        self, query: Query, now: datetime, ahead: timedelta = ZERO, *, new_data: bool = True
    ) -> tuple[Freshness, pa.Table]:
        """The lake's freshness at ``now``, and the engine view ``data_freshness``: a row for each broker.

        Without ``new_data`` the lake is as it was when it was read last, and only time has passed.

        A broker's events stop, or never come, for two reasons. If its samples go on while gold keeps up with bronze –
        other events arrive there, or every event of bronze is in it –, its queues are idle or only sampled: the data
        is good up to the newest sample. Otherwise something between broker and gold is down: it is stale.

        What is stamped later than any clock of ours shows (:func:`lake.clock.age`) moves no data time: a broker whose
        newest event is of that kind has no age that can be trusted, and is stale. Nor is anything fresh that has not
        moved for too long by the clock that nobody sets, whatever the wall clock (``ahead``) makes of its stamp.
        """
        if new_data or self._newest is None:
            self._newest = None  # unless all of it can be read
            rows = query(_NEWEST).to_pylist()
            [history] = query(_COMPLETE).to_pylist()
            self._newest, self._complete = rows, history["complete"]
        rows = self._newest
        known = {row["broker"]: row["as_of"] for row in rows if row["as_of"]}
        trusted = {broker for broker, as_of in known.items() if age(as_of, now, ahead) >= -TOLERANCE}
        as_of = max((known[broker] for broker in trusted), default=None)
        young = any(age(known[broker], now, ahead) <= self._stale_after for broker in trusted)
        keeps_up = young or self._gold_is_complete(as_of)
        table, ages = [], []
        for row in rows:
            broker, reached = row["broker"], row["as_of"]
            if reached is None or broker in trusted:
                reached = self._reached(reached, row["sampled_at"] if keeps_up else None, now, ahead)
            old = self._age(broker, reached, now, ahead) if reached else None
            limit = timedelta(seconds=fresh_for(self._stale_after.total_seconds(), row["sample_interval_seconds"]))
            stale = old is None or not -TOLERANCE <= old <= limit
            seconds = None if old is None else old.total_seconds()
            sampled = row["sampled_at"] is not None
            table.append(
                {"broker": broker, "as_of": reached, "age_seconds": seconds, "stale": stale, "sampled": sampled}
            )
            if reached is not None and old is not None and old >= -TOLERANCE:
                ages.append((old, reached))
        youngest = min((old for old, _ in ages), default=None)
        watermark = max((reached for _, reached in ages), default=None)
        stale = all(row["stale"] for row in table)
        mine = None if youngest is None else now - max(youngest, ZERO)
        freshness = Freshness(as_of, watermark, stale, self._complete, mine)
        return freshness, pa.Table.from_pylist(table, schema=ENGINE_VIEWS["data_freshness"])

    def _reached(
        self, as_of: datetime | None, sampled_at: datetime | None, now: datetime, ahead: timedelta
    ) -> datetime | None:
        """The newer of both; of a sample from the future only if there is nothing else."""
        if sampled_at is None or (as_of is not None and age(sampled_at, now, ahead) < -TOLERANCE):
            return as_of
        return sampled_at if as_of is None else max(as_of, sampled_at)

    def _age(self, broker: str, reached: datetime, now: datetime, ahead: timedelta) -> timedelta:
        """The age of what has been ``reached``: at least as long as it has not moved."""
        seen, since = self._moved.get(broker, (None, now))
        if seen != reached:
            self._moved[broker] = reached, now
            since = now
        known = age(reached, now, ahead)
        return known if known < -TOLERANCE else max(known, now - since)

    def _gold_is_complete(self, as_of: datetime | None) -> bool:
        """Whether no event in bronze is newer than gold, by the statistics in the Delta log: no data is read."""
        try:
            actions = pa.table(self._lake.ensure("message_events").get_add_actions(flatten=True))
        except (DeltaError, SojournError):
            return False
        if "max.occurred_at" not in actions.column_names or actions.num_rows == 0:
            return True
        newest = pc.max(actions.column("max.occurred_at")).as_py()
        if newest is None:
            return True
        newest = newest if newest.tzinfo else newest.replace(tzinfo=UTC)
        return as_of is not None and newest <= as_of + _STATISTICS_GRAIN
