"""A replay that is a day late: its queue is told anew in the background, while live rows of it and of others go on."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

import spark_analytics.state.writer
from lake.reader import Reader
from spark_analytics.state.writer import Writer
from tests.reference.generate import Row, generate
from tests.reference.replaying import Committed, batches_of, without_named_subscribers

DAY = timedelta(days=1)


def a_day_later(events: list[Row]) -> list[Row]:
    """The same that happened to other messages."""
    times = ("occurred_at", "enqueued_at")
    return [
        event
        | {"message_id": f"later-{event['message_id']}", "event_id": None}
        | {name: event[name] + DAY for name in times if event.get(name)}
        for event in events
    ]


def place(event: Row) -> tuple[str, str]:
    return event["broker"], event["queue"]


def test_what_comes_a_day_late_is_told_in_the_background_while_all_queues_live_on(
    tmp_path: Path, folded_anew: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_analytics.state.writer, "LEAST_ROWS", 10**6)  # no epoch ends by itself
    yesterday, _ = without_named_subscribers(generate(31, messages=120, seconds=240, burst=30))
    today = a_day_later(without_named_subscribers(generate(32, messages=120, seconds=240, burst=30))[0])
    yesterday.sort(key=lambda event: event["occurred_at"])
    queue = Counter(map(place, yesterday)).most_common(1)[0][0]
    late = [event for event in yesterday if place(event) == queue]
    late = late[len(late) // 3 : len(late) * 2 // 3]
    live = list(batches_of(today, random.Random(1), 80, 0.0))
    log, writer = Committed(tmp_path), Writer(tmp_path)
    log.append([event for event in yesterday if event not in late])
    for number, batch in enumerate(live[:40]):  # until what can be taken back is all of today
        log.append(batch)
        if number % 8 == 7:
            writer.step()
    live = live[40:]
    before = rows_of(tmp_path)
    log.append(late)
    writer.step(patient=True)
    assert writer.late
    lived: set[tuple[str, str]] = set()
    steps = 0
    with Reader(tmp_path) as reader:
        while writer.late:
            if steps % 4 == 0:
                batch = live.pop(0)
                log.append(batch)
                lived |= set(map(place, batch))
            writer.step(within=0.0)
            if steps % 4 == 0:
                rows = reader.query("SELECT * FROM tenant_backlog_now").to_pylist()
                assert backlogs(rows) == backlogs(log.reference.tenant_backlog(now=True)), "live rows do not wait"
            steps += 1
        assert steps > 3 and queue in lived and len(lived) > 1
        for batch in live:
            log.append(batch)
        writer.step()
        log.compare(reader)
        log.compare_history(reader)
    after = rows_of(tmp_path)
    assert {row["epoch"] for row in after} == {row["epoch"] for row in before}, "no epoch begins"
    begins = min(event["occurred_at"] for event in today).timestamp() - 60
    others = latest([row for row in before if place(row) != queue and row["second"] < begins])
    assert len(others) > 100 and others.items() <= latest(after).items(), "of other queues' past nothing changes"
    assert {place(row) for row in after if row["corrects"] is not None} == {queue}
    assert len(folded_anew) == 1
    writer.close()


def backlogs(rows: list[Row]) -> dict[tuple[str, ...], int]:
    return {(row["broker"], row["queue"], str(row["subscriber"]), row["tenant"]): row["backlog"] for row in rows}


def rows_of(root: Path) -> list[Row]:
    """What was told of levels."""
    tables = (DeltaTable(str(root / "gold" / name)) for name in ("tenant_state", "queue_state"))
    return [row for table in tables for row in table.to_pyarrow_table().to_pylist()]


def latest(rows: list[Row]) -> dict[tuple[object, ...], Row]:
    """What was told last of each key and second, but for how far its broker was by then."""
    told = {}
    for row in sorted(rows, key=lambda row: row["revision"]):
        key = ("tenant" in row, *(row.get(name) for name in ("broker", "queue", "subscriber", "tenant", "second")))
        told[key] = {name: value for name, value in row.items() if name not in ("revision", "newest_event_at")}
    return told
