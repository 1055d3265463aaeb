"""The finished tables as polars reads them over plain deltalake, by what docs/state.md says and none of our code.

Every row of the present, of history and of ages is what the reference counts, late rows and restarts included.
"""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from spark_analytics.state.writer import Writer
from tests.reference.compare import differences, expected_rows
from tests.reference.generate import Row, generate
from tests.reference.replaying import AGING, HISTORY, NAMES, PRESENT, TABLE_OF, Committed, batches_of
from tests.support.deep import examples


def read(root: Path, table: str) -> pl.DataFrame:
    return pl.read_delta(str(root / "gold" / table))


def key_of(rows: pl.DataFrame) -> list[str]:
    return [name for name in NAMES if name in rows.columns]


def present(rows: pl.DataFrame, *newest_by: str) -> pl.DataFrame:
    """The newest row of each key in the newest epoch."""
    of_epoch = rows.filter(pl.col("epoch") == pl.col("epoch").max())
    return of_epoch.sort(newest_by).unique(key_of(rows), keep="last")


def history(rows: pl.DataFrame, queues: pl.DataFrame) -> pl.DataFrame:
    """Every row in whose second something happened: an epoch supersedes earlier ones from its first second on, a
    correction what was told of its queue."""
    begins = queues.filter(pl.col("corrects").is_null()).group_by("broker", "epoch").agg(first=pl.col("second").min())
    later = pl.col("first").reverse().cum_min().reverse().shift(-1).over("broker")
    told = rows.join(begins.sort("epoch").with_columns(superseded_from=later), on=["broker", "epoch"])
    told = told.filter(pl.col("superseded_from").is_null() | (pl.col("second") < pl.col("superseded_from")))
    corrections = queues.filter(pl.col("corrects").is_not_null()).select("broker", "queue", "revision", "corrects")
    told = told.with_row_index("row")
    wrong = told.join(corrections, on=["broker", "queue"], suffix="_later").filter(
        (pl.col("revision_later") > pl.col("revision")) & (pl.col("corrects_later") <= pl.col("second"))
    )
    told = told.join(wrong, on="row", how="anti").sort("epoch", "revision")
    return told.unique([*key_of(rows), "second"], keep="last").filter("happened")


def ages(rows: pl.DataFrame) -> pl.DataFrame:
    """Every bucket as it was told last, but for those within a longer one that was told later."""
    key, bucket = key_of(rows), ["bucket_start", "bucket_seconds"]
    newest = rows.sort("revision").unique([*key, *bucket], keep="last").filter(pl.col("count") > 0)
    newest = newest.with_row_index("row")
    longer = rows.select(*key, *bucket, "revision")
    begins = pl.col("bucket_start_longer")
    covered = newest.join(longer, on=key, nulls_equal=True, suffix="_longer").filter(
        pl.col("bucket_seconds_longer") > pl.col("bucket_seconds"),
        pl.col("revision_longer") > pl.col("revision"),
        begins <= pl.col("bucket_start"),
        pl.col("bucket_start") < begins + pl.duration(seconds=pl.col("bucket_seconds_longer")),
    )
    return newest.join(covered, on="row", how="anti")


def as_counted(wanted: list[Row], rows: pl.DataFrame, without: set[str] | None = None) -> None:
    columns = [name for name in wanted[0] if name not in (without or ())]
    ours = [{name: row[name] for name in columns} for row in wanted]
    assert len(ours) > 3 and differences(ours, rows.select(columns).to_dicts()) == []


@pytest.mark.parametrize("seed", [1, 2][: examples(1, 2)])
def test_every_row_is_what_the_reference_counts(tmp_path: Path, seed: int) -> None:
    log, rng = Committed(tmp_path), random.Random(seed)
    events, samples = generate(seed, messages=80, seconds=150)
    writer = Writer(tmp_path)
    for batch in batches_of(events, rng, 8, 30.0):
        log.append(batch, samples)
        samples = []
        if rng.random() < 0.3:
            writer.close()
            writer = Writer(tmp_path)
        writer.step()
    writer.close()
    queues = read(tmp_path, "queue_state")
    for view in PRESENT:
        newest_by = ("revision", "second") if view == "attempt_age_now" else ("as_of", "second", "revision")
        rows = present(read(tmp_path, TABLE_OF[view]), *newest_by)
        if view == "attempt_age_now":
            rows = rows.filter(pl.col("count") > 0)
        as_counted(expected_rows(log.reference, view), rows, AGING[view])
    for view in HISTORY:
        as_counted(expected_rows(log.reference, view), history(read(tmp_path, TABLE_OF[f"{view}_now"]), queues))
    as_counted(expected_rows(log.reference, "attempt_age"), ages(read(tmp_path, "attempt_age")))
