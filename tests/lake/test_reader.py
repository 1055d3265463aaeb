"""The reader: current after every commit, read-only, and honest about what it cannot answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake import snapshot
from lake.definitions import Definitions
from lake.errors import UserError
from lake.reader import Reader as Plain
from lake.snapshot import CACHED_BYTES, FileGone
from lake.state import is_unfinished, require_finished
from lake.store import Lake
from lake.tables import PARTIALS, QUEUE_SAMPLES, TABLES
from lake.views import VIEWS
from tests.support.finishing import FinishingReader as Reader
from tests.support.finishing import finish

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def partial(second: int, tenant: str = "acme", **measures: Any) -> dict[str, Any]:
    row = {field.name: 0 for field in PARTIALS.schema if pa.types.is_integer(field.type)}
    at = START + timedelta(seconds=second)
    row.update(
        broker="nats", queue="orders", subscriber="", tenant=tenant, bucket_start=at, bucket_seconds=1,
        newest_occurred_at=at, backlog_cells=[],
    )  # fmt: skip
    return row | measures


def enqueued(second: int, count: int, tenant: str = "acme") -> dict[str, Any]:
    cell = {"second": int(START.timestamp()) + second, "net": count}
    return partial(second, tenant, enqueued=count, backlog_cells=[cell])


def append(lake: Lake, *rows: dict[str, Any]) -> None:
    lake.append("partials", pa.Table.from_pylist(list(rows), schema=PARTIALS.schema))


def test_every_public_view_has_the_columns_it_declares(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for view in VIEWS.values():
        if view.public:
            names = reader.query(f"SELECT * FROM {view.name}").column_names
            assert names == [column.name for column in view.columns], view.name


def test_a_lake_that_is_not_there_reads_as_empty(tmp_path: Path) -> None:
    assert Reader(tmp_path / "none").query("SELECT * FROM tenant_backlog_now").num_rows == 0


def test_a_lake_that_nobody_has_finished_tells_nothing_of_its_queues_and_says_so(tmp_path: Path) -> None:
    assert not is_unfinished(tmp_path)
    append(Lake(tmp_path), enqueued(0, 3))
    assert is_unfinished(tmp_path)
    reader = Plain(tmp_path)
    for view in ("attempt_age", "tenant_backlog", "concurrency", "queue_health"):
        assert reader.query(f"SELECT * FROM {view}").num_rows == 0
        assert reader.query(f"SELECT * FROM {view}_now").num_rows == 0
        with pytest.raises(UserError, match=r"nothing has finished this lake's state yet .* `sojourn analyze --once`"):
            require_finished(tmp_path, [view])
    require_finished(tmp_path, ["partials", "limits", "open_gaps"])
    finish(tmp_path)
    assert not is_unfinished(tmp_path)
    require_finished(tmp_path, ["tenant_backlog"])
    assert reader.query("SELECT backlog FROM tenant_backlog_now").to_pylist() == [{"backlog": 3}]


def test_a_commit_is_seen_by_the_next_query_and_changes_the_token(tmp_path: Path) -> None:
    lake, reader = Lake(tmp_path), Reader(tmp_path)
    append(lake, enqueued(0, 3))
    assert reader.query("SELECT backlog FROM tenant_backlog_now").to_pylist() == [{"backlog": 3}]
    before = reader.token("partials")
    append(lake, enqueued(1, 2))
    assert reader.token("partials") != before
    assert reader.query("SELECT backlog FROM tenant_backlog_now").to_pylist() == [{"backlog": 5}]
    lake.compact("partials")
    assert reader.query("SELECT backlog FROM tenant_backlog_now").to_pylist() == [{"backlog": 5}]


def test_what_a_pinned_reader_reads_belongs_together_until_it_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    append(lake, enqueued(0, 5))
    with Reader(tmp_path, pinned=True) as reader:

        def told() -> list[Any]:
            sums = ("SUM(backlog) AS n FROM tenant_backlog_now", "SUM(enqueued) AS n FROM partials")
            return [reader.query(f"SELECT {what}").to_pylist()[0]["n"] for what in sums]

        assert told() == [5, 5]
        append(lake, enqueued(1, 2))
        assert told() == [5, 5]
        assert reader.query("SELECT depth FROM queue_health_now").num_rows == 1, "nor is another view any newer"
        reader.advance()
        assert told() == [7, 7]


def test_definitions_kept_with_the_lake_change_the_windows(tmp_path: Path) -> None:
    lake, reader = Lake(tmp_path), Reader(tmp_path)
    append(lake, enqueued(0, 60), enqueued(59, 60))
    rate = "SELECT arrival_rate FROM tenant_backlog_now"
    assert reader.query(rate).to_pylist() == [{"arrival_rate": 2.0}]
    Definitions(window_seconds=10).save(tmp_path)
    assert reader.query(rate).to_pylist() == [{"arrival_rate": 6.0}]


def test_samples_alone_make_a_queue_visible_with_its_metrics_unknown(tmp_path: Path) -> None:
    sample = {
        "sampled_at": START, "broker": "nats", "queue": "orders", "depth": 7, "in_flight": 2, "source": "s",
        "ingested_at": START, "ingest_date": START.date(),
    }  # fmt: skip
    Lake(tmp_path).append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
    [row] = Reader(tmp_path).query("SELECT * FROM queue_health_now").to_pylist()
    assert (row["depth"], row["in_flight"]) == (7, 2)
    unknown = ("oldest_age_seconds", "mode", "drain_state", "coverage", "noisy_tenants", "retry_ratio", "dead_lettered")
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)


def test_nothing_is_reckoned_with_a_depth_beside_which_partitions_are_unknown(tmp_path: Path) -> None:
    sample = {
        "sampled_at": START, "broker": "kafka", "queue": "orders", "subscriber": "billing", "depth": 7,
        "unknown_partitions": 1, "oldest_age_seconds": 9.0, "source": "s", "ingested_at": START,
        "ingest_date": START.date(),
    }  # fmt: skip
    Lake(tmp_path).append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
    [row] = Reader(tmp_path).query("SELECT depth, oldest_age_seconds FROM queue_health_now").to_pylist()
    assert row == {"depth": None, "oldest_age_seconds": 9.0}
    [row] = Reader(tmp_path).query("SELECT depth, unknown_partitions FROM queue_samples").to_pylist()
    assert row == {"depth": 7, "unknown_partitions": 1}


@pytest.mark.parametrize(
    "sql", ["SELECT nothing FROM queue_health_now", "SELECT * FROM queue_helth", "DROP TABLE partials"]
)
def test_a_wrong_query_is_one_clear_line(tmp_path: Path, sql: str) -> None:
    with pytest.raises(UserError) as caught:
        Reader(tmp_path).query(sql)
    assert "\n" not in str(caught.value)


def test_a_lost_file_is_called_lost_and_the_statement_is_not_blamed(tmp_path: Path, monkeypatch: Any) -> None:
    append(Lake(tmp_path), enqueued(0, 5))
    for file in (tmp_path / TABLES["partials"].path).rglob("part-*.parquet"):
        file.unlink()
    for held in (CACHED_BYTES, 0):  # it is read before the statement, or while that runs
        monkeypatch.setattr(snapshot, "CACHED_BYTES", held)
        with Plain(tmp_path) as reader, pytest.raises(FileGone, match=r"file .*\.parquet is not there: .* or is lost$"):
            reader.query("SELECT * FROM partials")


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    append(Lake(tmp_path), *(enqueued(second, 1) for second in range(300)))
    reader = Reader(tmp_path, timeout_seconds=0.5)
    endless = "SELECT COUNT(*) AS n FROM partials a, partials b, partials c, partials d, partials e"
    with pytest.raises(UserError, match="longer than"):
        reader.query(endless)


def test_merged_histograms_answer_quantiles(tmp_path: Path) -> None:
    ages = {"first_attempt_age_count": 2, "first_attempt_age_sum": 3.0, "first_attempt_age_max": 2.0}
    histogram = [{"index": -1, "count": 1}, {"index": 63, "count": 1}]
    append(
        Lake(tmp_path),
        partial(0, received=2, first_attempt_age_histogram=histogram, **ages),
        partial(1, received=2, first_attempt_age_histogram=histogram, **ages),
    )
    [row] = (
        Reader(tmp_path)
        .query(
            "SELECT histogram_quantile(histogram_merge(histogram), 0.5) AS p50,"
            " histogram_quantile(histogram_merge(histogram), 0.99) AS p99 FROM attempt_age WHERE kind = 'first_attempt'"
        )
        .to_pylist()
    )
    assert row["p50"] == pytest.approx(1.0, rel=0.0055)
    assert row["p99"] == pytest.approx(2.0, rel=0.0055)


def test_what_does_not_fit_in_memory_goes_to_files_where_a_reader_may_write_some(lake: Lake, tmp_path: Path) -> None:
    words = "SELECT id, sha2(CAST(id AS STRING), 256) AS word FROM (SELECT explode(sequence(1, 1000000)) AS id)"
    places = f"SELECT id, row_number() OVER (ORDER BY word) AS place FROM ({words})"
    sql = f"SELECT COUNT(*) AS n FROM ({places}) WHERE place > 0"
    with Reader(lake.root, memory_mb=60) as small, pytest.raises(UserError, match="Out of Memory"):
        small.query(sql)
    with Reader(lake.root, memory_mb=60, spill=tmp_path) as spilling:
        assert spilling.query(sql).to_pylist() == [{"n": 1_000_000}]
