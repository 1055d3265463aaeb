"""History of one queue, from that queue's rows alone, is what the views say of it over all rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lake.reader import Reader
from lake.scoped import Scope
from lake.tables import PARTIALS
from lake.views import VIEWS
from tests.reference.compare import differences
from tests.reference.generate import Row, generate
from tests.reference.partials import fill, marks_of, partials_of, without_duplicates
from tests.reference.replaying import newest, roll_up
from tests.support.deep import examples
from tests.support.finishing import finish

HISTORY = ("attempt_age", "tenant_backlog", "concurrency", "queue_health")


def raw(reader: Reader, view: str, scope: Scope) -> list[Row]:
    rows: list[Row] = reader.query(f"SELECT * FROM {view}").to_pylist()
    return [row for row in rows if (row["broker"], row["queue"]) == (scope.broker, scope.queue)]


def of(reader: Reader, view: str, scope: Scope) -> list[Row]:
    """The same, as the reference has them."""
    mine = raw(reader, view, scope)
    for row in mine if view == "attempt_age" else ():
        row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
    return mine


@pytest.mark.parametrize("minutes", [True, False][: examples(1, 2)])
def test_one_queues_history_is_the_same_without_the_others_rows(tmp_path: Path, minutes: bool) -> None:
    events, samples = generate(31, messages=300, seconds=700, burst=30)
    lake = fill(tmp_path, events, samples, batches=4)
    if minutes:
        roll_up(lake, (newest(lake) - 120) // 60 * 60, 60)
    finish(tmp_path)
    scopes = {Scope(event["broker"], event["queue"]) for event in (*events, *samples)}
    assert len(scopes) > 2
    with Reader(tmp_path) as whole:
        said = {(view, scope): of(whole, view, scope) for view in HISTORY for scope in scopes}
    assert sum(map(len, said.values())) > 100
    for scope in scopes:
        with Reader(tmp_path, scope=scope) as reader:
            for view in HISTORY:
                assert differences(said[view, scope], raw(reader, view, scope)) == [], (view, scope)


def test_each_column_is_the_same_where_it_alone_is_asked_for(tmp_path: Path) -> None:
    events, samples = generate(33, messages=120, seconds=300, burst=10)
    fill(tmp_path, events, samples, batches=2)
    finish(tmp_path)
    scope = Scope(events[0]["broker"], events[0]["queue"])
    mine = f"broker = '{scope.broker}' AND queue = '{scope.queue}'"

    def said(reader: Reader, view: str, column: str) -> list[str]:
        return sorted(map(repr, reader.query(f"SELECT {column} FROM {view} WHERE {mine}").to_pylist()))

    with Reader(tmp_path) as whole:
        for view in HISTORY:
            for column in VIEWS[view].columns[:: examples(4, 1)]:
                with Reader(tmp_path, scope=scope) as reader:
                    found = said(reader, view, column.name)
                    assert found == said(whole, view, column.name), (view, column.name)
                    assert found


def test_what_a_second_question_asks_for_is_there_though_nothing_was_committed(tmp_path: Path) -> None:
    events, samples = generate(34, messages=120, seconds=300, burst=10)
    fill(tmp_path, events, samples, batches=2)
    finish(tmp_path)
    scope = Scope(events[0]["broker"], events[0]["queue"])
    with Reader(tmp_path, scope=scope) as reader, Reader(tmp_path) as whole:
        reader.query("SELECT MIN(as_of) AS first FROM tenant_backlog")
        snapshot = reader._snapshots["tenant_state"]
        assert "window_enqueued" not in snapshot._schema.names and "oldest_second" not in snapshot._schema.names
        assert reader._snapshots["age_state"]._schema.names == [], "nobody asked for any of it"
        assert differences(of(whole, "tenant_backlog", scope), raw(reader, "tenant_backlog", scope)) == []


def test_a_reader_of_one_queue_follows_commits_and_reads_each_file_once(tmp_path: Path) -> None:
    events, samples = generate(32, messages=200, seconds=400)
    events = sorted(without_duplicates(events), key=lambda event: event["occurred_at"])
    half = len(events) // 2
    lake = fill(tmp_path, events[:half], samples, batches=2, finished=True)
    scope = Scope(events[0]["broker"], events[0]["queue"])
    with Reader(tmp_path, scope=scope) as reader:
        before = raw(reader, "tenant_backlog", scope)
        held = dict(reader._snapshots["tenant_state"]._read_parts)
        lake.append("partials", pa.Table.from_pylist(partials_of(events[half:]), PARTIALS.schema))
        lake.append("marks", pa.Table.from_pylist(marks_of(events[half:]), lake.read("marks").schema))
        finish(tmp_path)
        after = raw(reader, "tenant_backlog", scope)
        assert len(after) > len(before)
        now_held = reader._snapshots["tenant_state"]._read_parts
        assert all(now_held[path] is part for path, part in held.items())
        told = pa.table(lake.read("tenant_state")).filter((pc.field("queue") == scope.queue) & pc.field("happened"))
        assert sum(part.mine.num_rows for part in now_held.values()) == told.num_rows
        with Reader(tmp_path) as whole:
            assert differences(of(whole, "tenant_backlog", scope), after) == []
