"""The views as they stood at an instant of the past, from their history alone.

At an instant a history view holds the rows whose bucket or instant was over by then, and its ``…_now`` twin the newest
of these of each key. Since nothing came for a key after its newest row, what it says is carried forward to its broker's
data time by definition: ages grow, rates are zero once the window has gone by (until then they are the row's). All data
counts as having come in time: what was late then is seen too early here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.evaluate import Query
from alerts.rules.expression import ENGINE_VIEWS
from lake.clock import fresh_for
from lake.definitions import Definitions
from lake.errors import UserError
from lake.schema import TIMESTAMP

#: How far back a rule may look, and for how long a key that nothing came for is still shown: the longest window of a
#: shipped rule, three days, and a day.
LOOK_BACK = timedelta(days=4)
#: Rows of one view that are held at once.
MOST_ROWS = 20_000_000
_QUEUE = ("broker", "queue", "subscriber")
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How a history view tells time: a row is there from ``over`` on (SQL), and is the state of its ``keys``."""

    keys: tuple[str, ...]
    over: str
    ages: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Messages of a queue began to be dead-lettered."""

    at: datetime
    broker: str
    queue: str


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a broker's data had come: its newest event or sample, and how many seconds lie between two readings of
    it (None: unknown, or it is not sampled)."""

    at: datetime
    interval: float | None = None


SHAPES = {
    "attempt_age": Shape((*_QUEUE, "tenant", "kind"), "unix_micros(bucket_start) + (bucket_seconds - 1) * 1000000"),
    "tenant_backlog": Shape(
        (*_QUEUE, "tenant"), "unix_micros(as_of)", ("oldest_age_seconds",), ("arrival_rate", "completion_rate")
    ),
    "concurrency": Shape((*_QUEUE, "tenant"), "unix_micros(as_of)", (), ("start_rate", "littles_law")),
    "queue_health": Shape(_QUEUE, "unix_micros(as_of)", ("oldest_age_seconds", "quiet_oldest_age_seconds")),
}
_NOW = "_now"
#: Engine views that a backtest knows nothing of.
UNKNOWN = frozenset({"rule_health", "notification_health", "sampled_tenants"})


def why_not(tables: Iterable[str]) -> str | None:
    """Why a rule that reads ``tables`` cannot be run over history; None where it can."""
    for name in sorted(tables):
        if name in UNKNOWN:
            return f"{name} has no history"
        if name not in ENGINE_VIEWS and name.removesuffix(_NOW) not in SHAPES:
            return f"{name} is not a view with history"
    return None if list(tables) else "it reads nothing"


class _View:
    """The rows of one history view, in the order in which they came to be there."""

    def __init__(self, name: str, rows: pa.Table, brokers: dict[str, int]) -> None:
        self.shape = SHAPES[name]
        self.over = rows["over_us"].to_numpy()
        self.rows = rows.drop_columns(["over_us"]).combine_chunks()
        identities: dict[tuple[object, ...], int] = {}
        keys = zip(*(rows[key].to_pylist() for key in self.shape.keys), strict=True)
        self.ids = np.fromiter((identities.setdefault(key, len(identities)) for key in keys), np.int64, rows.num_rows)
        named = (brokers.setdefault(broker, len(brokers)) for broker in rows["broker"].to_pylist())
        self.brokers = np.fromiter(named, np.int64, rows.num_rows)
        self.newest = np.full(len(identities), -1, np.int64)
        self.reached = 0

    def advance(self, at_us: int) -> None:
        """Go to an instant that is not before the last one."""
        end = int(np.searchsorted(self.over, at_us, side="right"))
        new = np.arange(self.reached, end)
        self.newest[self.ids[new]] = new  # of equal keys the last one stays
        self.reached = end

    def until(self, at_us: int) -> pa.Table:
        """The history that a rule may look at."""
        first = int(np.searchsorted(self.over, at_us - _micros(LOOK_BACK)))
        return self.rows.slice(first, max(0, self.reached - first))

    def sampled_each(self) -> dict[int, float]:
        """How many seconds lie between two readings of a broker, by its number, as its newest sample says."""
        places = np.sort(self.newest[self.newest >= 0])
        known = self.rows["sample_interval_seconds"].take(pa.array(places)).to_numpy(zero_copy_only=False)
        sampled = ~np.isnan(known)
        return dict(zip(self.brokers[places][sampled].tolist(), known[sampled].tolist(), strict=True))

    def now(self, at_us: int, data_time: np.ndarray, window_seconds: int) -> pa.Table:
        """The newest row of each key, carried forward to its broker's ``data_time``, microseconds."""
        places = self.newest[self.newest >= 0]
        places = places[self.over[places] >= at_us - _micros(LOOK_BACK)]
        rows = self.rows.take(pa.array(places))
        reached = data_time[self.brokers[places]]
        passed = (reached - self.over[places]) / _SECOND
        changed: dict[str, Any] = {name: pc.add(rows[name], pa.array(passed)) for name in self.shape.ages}
        gone = pa.array(passed >= window_seconds)
        for name in self.shape.rates:
            changed[name] = pc.if_else(pc.and_(gone, pc.is_valid(rows[name])), 0.0, rows[name])
        if "as_of" in rows.schema.names:
            changed["as_of"] = pa.array(reached).cast(TIMESTAMP)
        for name, column in changed.items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
        return rows


class History:
    """What rules may read, as it stood at any instant from ``begin`` to ``end``; instants are asked for in order."""

    def __init__(
        self,
        query: Query,
        tables: Iterable[str],
        begin: datetime,
        end: datetime,
        definitions: Definitions,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._definitions = definitions
        self._wanted = set(tables)
        needed = {name.removesuffix(_NOW) for name in self._wanted - ENGINE_VIEWS.keys()} | {"queue_health"}
        self._views: dict[str, _View] = {}
        self._brokers: dict[str, int] = {}
        for name in sorted(needed):
            progress(name)
            self._views[name] = _View(name, _read(query, name, begin - LOOK_BACK, end), self._brokers)

    def at(self, instant: datetime) -> tuple[dict[str, pa.Table], dict[str, Reached]]:
        """The views and tables by name, and how far each broker's data had come, at ``instant``."""
        at_us = int(instant.timestamp() * _SECOND)
        for view in self._views.values():
            view.advance(at_us)
        reached = self._reached()
        window = self._definitions.window_seconds
        found = {}
        for name in self._wanted - ENGINE_VIEWS.keys():
            view = self._views[name.removesuffix(_NOW)]
            found[name] = view.now(at_us, reached, window) if name.endswith(_NOW) else view.until(at_us)
        intervals = self._views["queue_health"].sampled_each()
        return found, {
            broker: Reached(datetime.fromtimestamp(int(reached[code]) / _SECOND, UTC), intervals.get(code))
            for broker, code in self._brokers.items()
            if reached[code] > 0
        }

    def dead_letters(self, begin: datetime, end: datetime) -> list[DeadLetters]:
        """When messages of which queues began to be dead-lettered, in order."""
        view = self._views["queue_health"]
        counts = view.rows["dead_lettered"].fill_null(0).to_numpy()
        names = list(zip(view.rows["broker"].to_pylist(), view.rows["queue"].to_pylist(), strict=True))
        going: set[tuple[str, str]] = set()
        found = []
        for place, over in enumerate(view.over):
            if counts[place] <= 0:
                going.discard(names[place])
            elif names[place] not in going:
                going.add(names[place])
                at = datetime.fromtimestamp(int(over) / _SECOND, UTC)
                if begin <= at <= end:
                    found.append(DeadLetters(at, *names[place]))
        return found

    def _reached(self) -> np.ndarray:
        """The newest instant of each broker, by its number; 0 where nothing came yet."""
        newest = np.zeros(len(self._brokers), np.int64)
        for view in self._views.values():
            places = view.newest[view.newest >= 0]
            np.maximum.at(newest, view.brokers[places], view.over[places])
        return newest


def freshness_table(reached: dict[str, Reached], instant: datetime, stale_after: timedelta) -> pa.Table:
    """The engine's view ``data_freshness`` as it stood at ``instant``."""
    rows = []
    for broker, to in sorted(reached.items()):
        old = (instant - to.at).total_seconds()
        stale = old > fresh_for(stale_after.total_seconds(), to.interval)
        rows.append({"broker": broker, "as_of": to.at, "age_seconds": old, "stale": stale, "sampled": True})
    return pa.Table.from_pylist(rows, schema=ENGINE_VIEWS["data_freshness"])


def _read(query: Query, name: str, begin: datetime, end: datetime) -> pa.Table:
    over = SHAPES[name].over
    wanted = f"{over} > {int(begin.timestamp() * _SECOND)} AND {over} <= {int(end.timestamp() * _SECOND)}"
    [[count]] = query(f"SELECT COUNT(*) AS n FROM {name} WHERE {wanted}").to_pydict().values()
    if count > MOST_ROWS:
        raise UserError(
            f"{name} has {count:,} rows from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, more than {MOST_ROWS:,}",
            "choose a shorter time",
        )
    rows = query(f"SELECT *, CAST({over} AS BIGINT) AS over_us FROM {name} WHERE {wanted} ORDER BY over_us")
    return _with_times(rows)


def _with_times(rows: pa.Table) -> pa.Table:
    """Instants as the views declare them, whatever zone the reader gives them."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(TIMESTAMP))
    return rows


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)
