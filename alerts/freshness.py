"""How far the visible data reaches, and whether it is only the queues that are idle or the data that is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from alerts.evaluate import Freshness, Query
from alerts.rules.expression import ENGINE_VIEWS
from lake.errors import SojournError
from lake.store import Lake

_NEWEST = "SELECT broker, as_of, sampled_at FROM stage_newest ORDER BY broker"
_COMPLETE = "SELECT complete FROM stage_history"
#: Statistics in the Delta log keep milliseconds.
_STATISTICS_GRAIN = timedelta(milliseconds=1)


class FreshnessProbe:
    """Reads how fresh the lake is. One probe belongs to one thread."""

    def __init__(self, lake: Lake, stale_after: timedelta) -> None:
        self._lake = lake
        self._stale_after = stale_after

    def read(self, query: Query, now: datetime) -> tuple[Freshness, pa.Table]:
        """The lake's freshness at wall clock ``now``, and the engine view ``data_freshness``: a row for each broker.

        A broker's events stop, or never come, for two reasons. If its samples go on while gold keeps up with bronze –
        other events arrive there, or every event of bronze is in it –, its queues are idle or only sampled: the data
        is good up to the newest sample. Otherwise something between broker and gold is down: it is stale.
        """
        rows = query(_NEWEST).to_pylist()
        as_of = max((row["as_of"] for row in rows if row["as_of"]), default=None)
        keeps_up = (as_of is not None and now - as_of <= self._stale_after) or self._gold_is_complete(as_of)
        table = []
        for row in rows:
            reached = row["as_of"]
            if keeps_up and row["sampled_at"]:
                reached = max(row["sampled_at"], reached or row["sampled_at"])
            age = (now - reached).total_seconds() if reached else None
            stale = age is None or age > self._stale_after.total_seconds()
            table.append(
                {
                    "broker": row["broker"],
                    "as_of": reached,
                    "age_seconds": age,
                    "stale": stale,
                    "sampled": row["sampled_at"] is not None,
                }
            )
        reached_all = max((row["as_of"] for row in table if row["as_of"]), default=None)
        stale = reached_all is None or now - reached_all > self._stale_after
        [history] = query(_COMPLETE).to_pylist()
        freshness = Freshness(as_of, reached_all, stale, history["complete"])
        return freshness, pa.Table.from_pylist(table, schema=ENGINE_VIEWS["data_freshness"])

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
