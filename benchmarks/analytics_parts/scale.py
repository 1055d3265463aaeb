"""What docs/scale.md reckons with: processor time and bytes of an event, a row, a summary; growth with tenants.

The engine itself, without Spark: what the driver does with a micro-batch. Processor seconds of this process are
measured, so that other load disturbs little. ``python -m benchmarks.analytics_parts.scale`` prints the figures, and
the points that the model is fitted to on standard error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from benchmarks.analytics_parts.making import LIFE, events, lives
from benchmarks.figures import Figure, show
from lake.schema import TableSpec
from lake.store import Lake
from lake.tables import EVENT_SUMMARIES
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import EVENTS, SUMMARIES, Flow
from spark_analytics.batches.tenants import Tenants
from spark_analytics.gold import Gold
from spark_analytics.maintenance import Retention, roll_up
from spark_analytics.maintenance.merging import merge

TENANTS = (100, 1_000, 10_000, 100_000)
BEGINS = 1_760_000_400  # a full minute
RATE = 10_000
#: Events of a batch: what ten minutes of downtime leave to each, and what arrives in a second.
CATCHING_UP, LIVE = 300_000, 10_000
LIVE_BATCHES = 12
RUNS = 3
#: 1 M messages a second, each of another tenant: so many summaries a second.
MOST_SUMMARIES = 1_000_000
MINUTES = 3


@dataclass(frozen=True, slots=True)
class Point:
    """A measured load: what it consisted of, and the processor seconds it took."""

    name: str
    events: int
    rows: int
    commits: int
    seconds: float


def measure(scale: float) -> Iterator[Figure]:
    """Figures of the model, of growth with the number of tenants, of summaries and of bytes."""
    points = [_catching_up(tenants, int(CATCHING_UP * scale)) for tenants in (TENANTS[0], *TENANTS)][1:]  # once to warm
    for tenants, point in zip(TENANTS, points, strict=True):
        yield Figure(f"engine_us_an_event_{tenants}_tenants", 1e6 * point.seconds / point.events, "us")
    growth = points[-1].seconds / points[-1].events / (points[0].seconds / points[0].events)
    yield Figure("cost_growth", growth, "1", 1.0)
    points += [_even(tenants, int(CATCHING_UP * scale)) for tenants in (1_000, 100_000)]
    evenly = points[-1].seconds / points[-1].events / (points[0].seconds / points[0].events)
    yield Figure("cost_growth_if_none_is_busier", evenly, "1", 1.0)
    points += [_live(tenants, max(2, int(LIVE_BATCHES * scale))) for tenants in (100, 10_000)]
    yield from _fitted(points)
    yield from _summaries(int(MOST_SUMMARIES * scale))
    yield from _bytes(max(1, round(MINUTES * scale)))


# -- the model ----------------------------------------------------------------------------------------------------


def _fitted(points: list[Point]) -> Iterator[Figure]:
    """Processor seconds = a × events + b × rows + c × commits, by least squares of the relative error."""
    loads = np.array([[point.events, point.rows, point.commits] for point in points], float)
    seconds = np.array([point.seconds for point in points])
    factors = _least_squares(loads / seconds[:, None], np.ones(len(points)))
    errors = loads @ factors / seconds - 1
    for point, error in zip(points, errors, strict=True):
        print(f"{point.name:>30}: {point.events:9,} events {point.rows:9,} rows {point.commits:3} commits "
              f"{point.seconds:7.3f} s, model {100 * error:+.0f} %", file=sys.stderr)  # fmt: skip
    for name, factor in zip(("event", "row", "commit"), factors, strict=True):
        yield Figure(f"model_us_per_{name}", 1e6 * factor, "us")
    yield Figure("model_largest_error", float(np.abs(errors).max()), "1")


def _least_squares(matrix: Any, target: Any) -> Any:
    """The factors, none below zero: what comes out negative is left out."""
    kept = list(range(matrix.shape[1]))
    factors = np.zeros(matrix.shape[1])
    while kept:
        found = np.linalg.lstsq(matrix[:, kept], target, rcond=None)[0]
        if (found >= 0).all():
            factors[kept] = found
            break
        kept.pop(int(found.argmin()))
    return factors


# -- loads --------------------------------------------------------------------------------------------------------


def _catching_up(tenants: int, count: int) -> Point:
    """One batch of few tenants that have most messages, as in shared queues."""
    rows = lives(count // len(LIFE), begins=BEGINS, rate=RATE, tenants=tenants)
    return _analysed(f"{tenants:,} tenants, uneven", [rows])


def _even(tenants: int, count: int) -> Point:
    """One batch of tenants that have equally many: the most rows that so many events can make."""
    return _analysed(f"{tenants:,} tenants, even", [_spread(tenants, count // len(LIFE), RATE)])


def _live(tenants: int, batches: int) -> Point:
    """A batch a second."""
    each = LIVE // len(LIFE)
    made = [lives(each, begins=BEGINS + n, rate=LIVE, tenants=tenants, seed=n) for n in range(batches)]
    return _analysed(f"{tenants:,} tenants, live", made)


def _spread(tenants: int, messages: int, rate: float, seed: int = 1) -> pa.Table:
    """Whole lives within a second or two, over tenants at random."""
    rng = np.random.default_rng(seed)
    kind, message = np.tile(np.arange(len(LIFE)), messages), np.repeat(np.arange(messages), len(LIFE))
    enqueued = BEGINS + message / (rate / len(LIFE))
    tenant = rng.integers(0, tenants, messages)
    return events(kind, message, tenant[message], enqueued, enqueued + 0.01 * kind, np.full(len(kind), 0.01))


def _analysed(name: str, batches: list[pa.Table]) -> Point:
    """The least of several runs: what disturbs one adds to it."""
    return min((_run(name, batches) for _ in range(RUNS)), key=lambda point: point.seconds)


def _run(name: str, batches: list[pa.Table]) -> Point:
    with _lake() as lake:
        engine = _engine(lake, EVENTS)
        files = []
        known: set[Path] = set()
        for rows in batches:
            lake.append(EVENTS.source.name, rows)
            files.append(_files(lake, EVENTS.source, known))
            known |= set(files[-1].paths or ())
        started = time.process_time()
        counted = sum(_process(engine, number, one) for number, one in enumerate(files))
        seconds = time.process_time() - started
        engine.close()
        return Point(name, counted, lake.read("partials", columns=["started"]).num_rows, 2 * len(batches), seconds)


def _summaries(count: int) -> Iterator[Figure]:
    """``count`` summaries of one second, each of another tenant: 1 M messages/s of 1 M tenants, at scale 1."""
    extra = {"source": "bench", "ingested_at": datetime.now(UTC), "ingest_date": date(2025, 10, 9)}
    with _lake() as lake:
        share = max(1, count // 10)
        for number in range(10):
            first = number * share
            rows = EVENTS.compute(as_read(_one_each(first, share)))["partials"].select(SUMMARIES.schema.names)
            for name, value in extra.items():
                field = EVENT_SUMMARIES.schema.field(name)
                rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
            lake.append(EVENT_SUMMARIES.name, rows)
        engine, files = _engine(lake, SUMMARIES), _files(lake, EVENT_SUMMARIES, set())
        started, cpu = time.perf_counter(), time.process_time()
        counted = _process(engine, 0, files)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        engine.close()
        gold = _size(lake, "partials")
    yield Figure("summary_rows_per_second", counted / wall, "rows/s", MOST_SUMMARIES)
    yield Figure("summary_us_per_row", 1e6 * cpu / counted, "us")
    yield Figure("bronze_bytes_per_summary", files.size_bytes / counted, "bytes")
    yield Figure("gold_bytes_per_row_of_one_message", gold / counted, "bytes")
    yield Figure("active_keys_of_1m_messages_a_second_uneven", _active(), "rows/s", MOST_SUMMARIES)


def _one_each(first: int, tenants: int) -> pa.Table:
    """One whole life of each tenant from ``first`` on, within one second."""
    enqueued, waited, took = np.random.default_rng(first).random((3, tenants)) * 0.33
    kind, message = np.tile(np.arange(len(LIFE)), tenants), np.repeat(np.arange(tenants), len(LIFE))
    at = BEGINS + np.stack([enqueued, enqueued + waited, enqueued + waited + took], axis=1).ravel()
    return events(kind, message, first + message, BEGINS + enqueued[message], at, took[message])


def _active() -> float:
    """Tenants of a million that are active in a second of 1 M messages, where few have most of them."""
    rng = np.random.default_rng(1)
    return float(len(np.unique(rng.zipf(1.3, MOST_SUMMARIES) % MOST_SUMMARIES)))


def _bytes(minutes: int) -> Iterator[Figure]:
    """Bytes of 10,000 events a second of 1,000 tenants, by the second and rolled up to minutes."""
    with _lake() as lake:
        engine, known = _engine(lake, EVENTS), set[Path]()
        each = RATE * 10
        for number in range(minutes * 6):
            begins = BEGINS + number * 10
            lake.append("message_events", lives(each // 3, begins=begins, rate=RATE, tenants=1_000, seed=number))
            files = _files(lake, EVENTS.source, known)
            known |= set(files.paths or ())
            _process(engine, number, files)
        merge(lake, "partials", datetime.now(UTC))
        told = lake.read("partials", columns=["enqueued", "received", "completed"])
        count = sum(sum(told.column(name).to_pylist()) for name in told.column_names)
        yield Figure("bronze_bytes_per_event", _size(lake, "message_events") / count, "bytes")
        yield Figure("gold_bytes_per_event_by_the_second", _size(lake, "partials") / count, "bytes")
        # An event of much later: all before it has aged.
        last = lives(1, begins=BEGINS + minutes * 60 + 600, rate=RATE, tenants=1)
        lake.append("message_events", last)
        _process(engine, minutes * 6, _files(lake, EVENTS.source, known))
        engine.close()
        roll_up(lake, Retention(seconds_for=timedelta(minutes=5)))
        files_of_minutes = [one for one in _adds(lake, "partials") if one["min.bucket_seconds"] == 60]
        size = sum(one["size_bytes"] for one in files_of_minutes)
        yield Figure("gold_bytes_per_event", size / count, "bytes")
        yield Figure(
            "gold_bytes_per_row_of_minutes", size / sum(one["num_records"] for one in files_of_minutes), "bytes"
        )


# -- the engine by itself -----------------------------------------------------------------------------------------


@contextmanager
def _lake() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        yield lake


def _engine(lake: Lake, flow: Flow) -> Engine:
    return Engine(
        flow,
        Gold(lake.root, "bench", flow.writes),
        threads=2,
        driver_bytes=1 << 40,
        tenants=Tenants(Lake(lake.root), 10 * MOST_SUMMARIES),
        attempts=Attempts(lake.state_path("attempts")),
    )


def _process(engine: Engine, batch_id: int, files: Files) -> int:
    return engine.process(batch_id, cast(Any, None), files)  # known files: Spark's batch is not asked


def as_read(rows: pa.Table) -> pa.Table:
    """Rows of message_events as a batch has them when it is computed."""
    rows = rows.append_column("subscriber", pa.nulls(rows.num_rows, pa.string()))
    columns = [rows.column(field.name) for field in EVENTS.schema]
    columns = [c.dictionary_encode() if pa.types.is_dictionary(f.type) else c.cast(f.type)
               for c, f in zip(columns, EVENTS.schema, strict=True)]  # fmt: skip
    return pa.table(columns, names=EVENTS.schema.names)


def _files(lake: Lake, table: TableSpec, known: set[Path]) -> Files:
    """The table's files but for those that are ``known``."""
    paths = [path for path in sorted(lake.path(table.name).rglob("*.parquet")) if path not in known
             and "_delta_log" not in path.parts]  # fmt: skip
    return Files.here(paths, sum(path.stat().st_size for path in paths))


def _adds(lake: Lake, table: str) -> list[dict[str, Any]]:
    adds: list[dict[str, Any]] = pa.table(lake.ensure(table).get_add_actions(flatten=True)).to_pylist()
    return adds


def _size(lake: Lake, table: str) -> int:
    return sum(int(one["size_bytes"]) for one in _adds(lake, table))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    for figure in measure(parser.parse_args().scale):
        show(figure)
