"""A month of commits, with maintenance beside them: files, log and bytes stay bounded, and every sum is right.

Two simulations, each with the routine that `sojourn maintain` and the analysis run:

* `month`: 28 days of data time. Retention of history is the real one (seconds 15 minutes, minutes 24 hours) but for
  the hours, 14 days instead of 400, so that opening balances are made within the month. What is scaled is the commits:
  20 a day, each of one second's events, instead of 86,400; and with them the rounds of maintenance, one each 10 commits
  where the analysis makes one each 300, every second one thorough, as there. Replaced files and log entries are kept as
  long as 60 commits take on this machine, where the default is two hours: 7,200 commits of a second each.
* `burst`: 900 commits of consecutive seconds at the real cadence, a round each 300: what there is just before a round.

The baselines are the commits made: without maintenance each leaves one file and one log entry for ever.
``python -m benchmarks.analytics_parts.month`` prints the figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, show
from lake.schema import BACKLOG_CELLS, HISTOGRAM, TIMESTAMP
from lake.store import Lake, conform
from lake.tables import EVENT_TYPES, MARKS, MESSAGE_EVENTS, PARTIALS
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.routine import run_maintenance
from spark_analytics.maintenance.sizes import size

DAYS, COMMITS_A_DAY, COMMITS_A_ROUND = 28, 20, 10
KEPT_COMMITS = 60
BURST, BURST_ROUND, BURST_KEPT = 900, 300, 300
QUEUES, TENANTS = 4, 10
_KEYS = QUEUES * TENANTS
_BEGIN = 1_760_000_400
_TABLES = ("message_events", "partials", "marks")


class Traffic:
    """Each second three messages a key arrive, and those of the second before are completed, one after a failure."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._before: int | None = None
        self.commits = 0

    def commit(self, second: int) -> None:
        """The events of ``second``, as they stand in bronze and as the analysis adds them to gold."""
        for name, rows in (
            ("message_events", _events(second)),
            ("marks", _marks(second)),
            ("partials", self._partials(second)),
        ):
            self._lake.append(name, rows, app_id="benchmark", version=self.commits)
        self._before = second
        self.commits += 1

    def _partials(self, second: int) -> pa.Table:
        ended = 3 * (self._before is not None)
        counts = {"enqueued": 3, "received": 3, "completed": ended, "failed": 1}
        cells = [{"second": second, "net": 3}]
        if self._before is not None:
            cells.append({"second": self._before, "net": -3})
        histogram = [{"index": 64 * octave, "count": 1} for octave in range(3)]
        columns = _keys() | {
            "bucket_start": _repeated(second * 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP),
            "bucket_seconds": _repeated(1),
            "newest_occurred_at": _repeated(second * 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP),
            **{name: _repeated(counts.get(name, 0)) for name in EVENT_TYPES},
            "started": _repeated(3),
            "retries": _repeated(0),
            "finished_unreceived": _repeated(0),
            "first_attempt_age_count": _repeated(3),
            "first_attempt_age_sum": _repeated(0.3),
            "first_attempt_age_histogram": pa.array([histogram] * _KEYS, HISTOGRAM),
            "backlog_cells": pa.array([cells] * _KEYS, BACKLOG_CELLS),
        }
        return conform(pa.table(columns), PARTIALS.schema)

    def right(self, lake: Lake) -> bool:
        """Whether gold adds up to what was committed."""
        rows = lake.read("partials", columns=["enqueued", "completed", "failed"])
        sums = [sum(rows.column(name).to_pylist()) for name in rows.column_names]
        return sums == [3 * _KEYS * self.commits, 3 * _KEYS * (self.commits - 1), _KEYS * self.commits]


def _repeated(value: float) -> pa.Array:
    return pa.array(np.full(_KEYS, value))


def _keys() -> dict[str, pa.Array]:
    return {
        "broker": pa.array(["bench"] * _KEYS),
        "queue": pa.array([f"queue-{number % QUEUES}" for number in range(_KEYS)]),
        "subscriber": pa.array([""] * _KEYS),
        "tenant": pa.array([f"tenant-{number // QUEUES}" for number in range(_KEYS)]),
    }


def _marks(second: int) -> pa.Table:
    """A failure of each key, and its next attempt within the second."""
    columns = _keys() | {"message_id": pa.array([f"{second}-{number}" for number in range(_KEYS)])}
    at = _repeated(second * 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP)
    rows = [
        pa.table(columns | {"event_type": [kind] * _KEYS, "attempt": _repeated(attempt), "occurred_at": at})
        for kind, attempt in (("failed", 1), ("received", 2))
    ]
    return conform(pa.concat_tables(rows), MARKS.schema)


def _events(second: int) -> pa.Table:
    """As many records as there were events; maintenance looks at none of their values."""
    rows = 10 * _KEYS
    at = pa.array(np.full(rows, second * 1_000_000)).cast(pa.timestamp("us")).cast(TIMESTAMP)
    ids = [f"{second}-{number}" for number in range(rows)]
    columns = {
        "event_id": ids,
        "event_type": ["enqueued"] * rows,
        "broker": ["bench"] * rows,
        "queue": ["queue"] * rows,
        "message_id": ids,
        "occurred_at": at,
        "clock": ["broker"] * rows,
        "source": ["bench"] * rows,
        "ingested_at": at,
        "ingest_date": [datetime.fromtimestamp(second, UTC).date()] * rows,
    }
    return conform(pa.table(columns), MESSAGE_EVENTS.schema)


def measure(scale: float = 1.0) -> Iterator[Figure]:
    """The figures of both simulations; ``scale`` shrinks their commits."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        yield from _month(Lake(Path(folder) / "month"), max(5, round(COMMITS_A_DAY * scale)))
        yield from _burst(Lake(Path(folder) / "burst"), max(2 * BURST_ROUND, round(BURST * scale)))


def _month(lake: Lake, commits_a_day: int) -> Iterator[Figure]:
    traffic = Traffic(lake)
    retention = Retention(hours_for=timedelta(days=14), replaced_for=timedelta(hours=1))
    started, upkeep, rounds = time.monotonic(), 0.0, 0
    for day in range(DAYS):
        for number in range(commits_a_day):
            second = _BEGIN + day * 86_400 + number * (86_400 // commits_a_day)
            traffic.commit(second)
            if traffic.commits == KEPT_COMMITS:
                kept = timedelta(seconds=max(1, round(time.monotonic() - started)))
                retention = replace(retention, replaced_for=kept)
            if traffic.commits % COMMITS_A_ROUND == 0:
                begun = time.monotonic()
                rounds += 1
                run_maintenance(lake, retention, thorough=rounds % 2 == 0, now=datetime.fromtimestamp(second, UTC))
                upkeep += time.monotonic() - begun
        if (day + 1) % 7 == 0:
            yield from _sizes(lake, f"month_week_{(day + 1) // 7}", traffic.commits)
    yield Figure("month_maintenance_seconds_a_round", upkeep / rounds, "s")
    yield Figure("month_sums_right", float(traffic.right(lake)), "1", 1.0)


def _burst(lake: Lake, commits: int) -> Iterator[Figure]:
    traffic = Traffic(lake)
    retention = Retention(replaced_for=timedelta(hours=1))
    started, upkeep, most_files, most_log = time.monotonic(), 0.0, 0, 0
    for number in range(commits):
        traffic.commit(_BEGIN + number)
        if traffic.commits == BURST_KEPT:
            kept = timedelta(seconds=max(1, round(time.monotonic() - started)))
            retention = replace(retention, replaced_for=kept)
        if traffic.commits % BURST_ROUND == 0:
            now = size(lake, "partials")
            most_files, most_log = max(most_files, now.files), max(most_log, now.log_files)
            begun = time.monotonic()
            thorough = traffic.commits % (2 * BURST_ROUND) == 0
            run_maintenance(lake, retention, thorough=thorough, now=datetime.fromtimestamp(_BEGIN + number, UTC))
            upkeep += time.monotonic() - begun
    yield Figure("burst_most_files_of_partials", most_files, "files", commits)
    yield Figure("burst_most_log_files_of_partials", most_log, "files", commits)
    yield Figure(
        "burst_maintenance_ms_a_commit", 1000 * upkeep / commits, "ms", 1000 * (time.monotonic() - started) / commits
    )
    yield Figure("burst_sums_right", float(traffic.right(lake)), "1", 1.0)


def _sizes(lake: Lake, when: str, commits: int) -> Iterator[Figure]:
    for name in _TABLES:
        now = size(lake, name)
        yield Figure(f"{when}_{name}_files", now.files, "files", commits)
        yield Figure(f"{when}_{name}_log_files", now.log_files, "files", commits)
        yield Figure(f"{when}_{name}_log_bytes", now.log_bytes, "bytes")
        yield Figure(f"{when}_{name}_bytes", now.stored, "bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    for figure in measure(parser.parse_args().scale):
        show(figure)
