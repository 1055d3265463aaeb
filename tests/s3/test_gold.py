"""A micro-batch of two tables over an object store: its files are put at once, and then committed in their order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lake.remote import Remote
from lake.store import Lake, LakeError
from spark_analytics.batches.flows import EVENTS
from spark_analytics.gold import Gold
from tests.spark_analytics.events import bronze
from tests.spark_analytics.test_job import some_events
from tests.support.s3 import CREDENTIALS, S3Server

TABLES = EVENTS.writes


@pytest.fixture
def home(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return server.home(tmp_path / "home", tmp_path.name)


def computed() -> dict[str, pa.Table]:
    rows = bronze(some_events(0))
    return EVENTS.compute(pa.table([rows.column(one.name).cast(one.type) for one in EVENTS.schema], EVENTS.schema))


def test_a_batch_is_four_puts_of_which_the_rows_come_first_and_comes_once(
    server: S3Server, home: Path, tmp_path: Path
) -> None:
    rows, gold = computed(), Gold(home, "query", TABLES)
    for number in range(3):
        staged = gold.stage(number)
        for table, file in staged.items():
            file.append(rows[table])
        before = len(server.requests())
        gold.add(number, staged)
    asked = [one for one in server.requests()[before:] if f"/{tmp_path.name}/" in one.path]
    assert [f"{one.method} {one.path.rpartition('.')[2]}" for one in asked] == ["PUT parquet"] * 2 + ["PUT json"] * 2
    names = [next(table for table in TABLES if f"/{table}/" in one.path) for one in asked[2:]]
    assert names == list(TABLES), "who has read the last table finds the batch in the others"
    assert gold.holds(2) and not gold.holds(3)
    again = Gold(home, "query", TABLES)
    assert again.holds(2)
    told = {table: Lake(home).read(table).num_rows for table in TABLES}
    assert told == {table: 3 * rows[table].num_rows for table in TABLES}


def test_a_batch_of_which_one_file_cannot_be_put_adds_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, gold = computed(), Gold(home, "query", TABLES)
    staged = gold.stage(0)
    for table, file in staged.items():
        file.append(rows[table])

    def failing() -> list[object]:
        raise OSError("connection reset")

    with monkeypatch.context() as broken, pytest.raises(LakeError, match="connection reset"):
        broken.setattr(staged[TABLES[-1]], "finished", failing)
        gold.add(0, staged)
    staged[TABLES[-1]].drop()
    assert isinstance(gold.path(TABLES[0]), Remote)
    assert [Lake(home).read(table).num_rows for table in TABLES] == [0, 0]
