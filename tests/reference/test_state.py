"""Finished state in gold is what the views, worked out from the whole history, have as now: after every look at the
data, for readers that follow and for cold ones, however the same events come."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from lake.reader import Reader
from lake.store import Lake
from spark_analytics.state.writer import Writer
from tests.reference.compare import differences
from tests.reference.generate import Row, generate
from tests.reference.test_now import (
    SERVED,
    add_samples,
    append,
    batches_of,
    declared,
    newest,
    roll_up,
    served,
    without_named_subscribers,
)

#: What goes on changing while nothing of the key does: a row has it as it was at its own data time.
AGING = {
    "tenant_backlog_now": {"as_of", "oldest_age_seconds", "share", "coverage", "reconciled_backlog", "arrival_rate",
                           "completion_rate", "drain_eta_seconds"},
    "concurrency_now": {"as_of", "start_rate", "littles_law", "saturation"},
    "queue_health_now": {"as_of", "oldest_age_seconds", "quiet_oldest_age_seconds", "staleness_seconds"},
    "attempt_age_now": set(),
}  # fmt: skip
TABLE_OF = {
    "tenant_backlog_now": "tenant_state",
    "concurrency_now": "tenant_state",
    "queue_health_now": "queue_state",
    "attempt_age_now": "attempt_age",
}
NAMES = ("broker", "queue", "subscriber", "tenant", "kind")


def plain(root: Path, view: str, columns: list[str]) -> list[Row]:
    """The newest row of each key, as anybody reads a Delta table who has none of our code."""
    table = DeltaTable(str(root / "gold" / TABLE_OF[view])).to_pyarrow_table()
    names = [name for name in NAMES if name in table.column_names]
    by = ", ".join(names)
    newest = (
        f"SELECT {', '.join(columns)} FROM rows WHERE epoch = (SELECT MAX(epoch) FROM rows) "
        f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY as_of DESC, revision DESC) = 1"
    )
    with duckdb.connect() as connection:
        connection.register("rows", table)
        return connection.sql(newest).to_arrow_table().to_pylist()


def compare(reader: Reader) -> None:
    expected, actual = declared(reader.root), served(reader)
    for view in SERVED:
        assert differences(expected[view], actual[view]) == [], view
    for view, aging in AGING.items():
        rows = reader.query(f"SELECT * FROM {view}")
        columns = [name for name in rows.column_names if name not in aging]
        if view == "attempt_age_now" and any(row["subscriber"] for row in rows.to_pylist()):
            continue  # ages over several subscribers are told by history alone
        wanted = [{name: row[name] for name in columns} for row in rows.to_pylist()]
        for row in wanted:
            if "histogram" in row:  # as the reference has it
                row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
        assert differences(wanted, plain(reader.root, view, columns)) == [], view


def replayed(root: Path, log: tuple[list[Row], list[Row]], seed: int, *, count: int, disorder: float) -> None:
    """Commit ``log`` in batches, the writer after most of them, upkeep in between."""
    rng = random.Random(seed)
    events, samples = log
    lake = Lake(root)
    waiting = sorted(samples, key=lambda sample: sample["sampled_at"])
    writer = Writer(root)
    with Reader(root) as reader:
        for batch in batches_of(events, rng, count, disorder):
            until = max(event["occurred_at"] for event in batch)
            taken = [sample for sample in waiting if sample["sampled_at"] <= until]
            waiting = waiting[len(taken) :]
            append(lake, batch, taken)
            if rng.random() < 0.2:
                lake.compact("partials")
            if rng.random() < 0.2:
                lake.compact("tenant_state")
            if rng.random() < 0.25:
                roll_up(lake, (newest(lake) - rng.choice((0, 61, 130, 400))) // 60 * 60, 60)
            if rng.random() < 0.1:
                writer.close()
                writer = Writer(root)
            if rng.random() < 0.8:
                writer.step()
                served(reader)
                if rng.random() < 0.25:
                    compare(reader)
        add_samples(lake, waiting) if waiting else None
        writer.step()
        compare(reader)
        with Reader(root) as cold:
            compare(cold)
    writer.close()


@pytest.mark.parametrize("disorder", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("named", [True, False])
def test_readers_of_state_have_what_history_comes_to(tmp_path: Path, disorder: float, named: bool) -> None:
    log = generate(21, messages=300, seconds=900, burst=40)
    replayed(tmp_path, log if named else without_named_subscribers(log), seed=5, count=16, disorder=disorder)
