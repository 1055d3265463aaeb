"""History of one queue, from that queue's rows alone, is what the views say of it over all rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lake.reader import Reader
from lake.scoped import Scope
from lake.tables import PARTIALS
from tests.reference.compare import differences
from tests.reference.generate import Row, generate
from tests.reference.partials import fill, marks_of, partials_of, without_duplicates
from tests.reference.replaying import newest, roll_up
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


@pytest.mark.parametrize("minutes", [False, True], ids=["seconds", "rolled up"])
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
        rows = [part.mine for part in now_held.values()]
        assert {name for part in rows for name in part.column("queue").unique().to_pylist()} == {scope.queue}
        with Reader(tmp_path) as whole:
            assert differences(of(whole, "tenant_backlog", scope), after) == []
