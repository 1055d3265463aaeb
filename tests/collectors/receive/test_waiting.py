"""A consumer's span that comes before its producer's finds its enqueue time, tenant and attempt, across a crash too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from collectors.receive.batch import Batch, BatchReader
from collectors.receive.horizon import Horizon
from collectors.receive.inbox import Request
from collectors.receive.joins import Joins
from collectors.receive.memory import Memory
from collectors.receive.spans import SpanReader
from collectors.receive.waiting import Journal, Waiting
from lake.clock import Clock
from tests.collectors.receive.support import receiving, request_of, settings, start
from tests.support.waiting import wait_until

SENT = ("send", 1, {"sojourn__tenant": "acme"})
WORKED = ("process", 2, {"parent": 1, "remote": True, "at": 5})


class Reading:
    """A reader with its journal, at a time of ours."""

    def __init__(self, folder: Path, most: int = 100) -> None:
        self.seconds = 0.0
        clock = Clock(lambda: datetime(2026, 9, 1, tzinfo=UTC), lambda: self.seconds)
        self.waiting, self.journal = Waiting(6.0, most), Journal(folder / "held", 6.0)
        self.spans, self.clock = SpanReader(Memory(100), Joins(), 1000), clock
        self.reader = BatchReader(self.spans, Horizon(10_000, 60), 1000, clock, self.waiting)

    def read(self, *requests: Any) -> Batch:
        bodies = [one.SerializeToString() for one in requests]
        (batch,) = self.reader.read([Request("protobuf", body, lambda answer: None) for body in bodies])
        return batch

    def commit(self, batch: Batch) -> list[dict[str, Any]]:
        """What :meth:`collectors.receive.receiver.Receiver._write` does, without a lake; the rows of bronze."""
        now = self.clock.now().timestamp()
        self.journal.append(batch.held, now)
        self.waiting.commit(batch.released, batch.held, self.journal.number, now)
        self.journal.prune(self.waiting.oldest_journal)
        return [row for table in batch.tables for row in table.to_pylist()]

    def told(self, *requests: Any) -> list[tuple[str, str | None, int | None, bool]]:
        """(what happened, tenant, attempt, whether the enqueue time is known) of a group that is committed."""
        rows = self.commit(self.read(*requests))
        return [(row["event_type"], row["tenant"], row["attempt"], row["enqueued_at"] is not None) for row in rows]


WHOLE = [("enqueued", "acme", None, True), ("received", "acme", 1, True), ("completed", "acme", 1, True)]


def test_a_consumers_span_that_comes_first_waits_for_its_producers(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    assert reading.told(request_of(WORKED)) == []
    assert len(reading.waiting) == 1 and list((tmp_path / "held").iterdir())
    reading.seconds = 5.0
    assert reading.told(request_of(SENT)) == WHOLE
    assert len(reading.waiting) == 0 and not list((tmp_path / "held").iterdir())


def test_after_a_while_it_is_told_as_it_is(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    reading.told(request_of(WORKED))
    assert not reading.waiting.is_due(reading.clock.now().timestamp())
    reading.seconds = 6.1
    assert reading.waiting.is_due(reading.clock.now().timestamp())
    assert reading.told() == [("received", None, None, False), ("completed", None, None, False)]
    assert reading.told(request_of(SENT)) == WHOLE[:1]


def test_what_is_sent_twice_is_told_once(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    reading.told(request_of(WORKED))
    reading.told(request_of(WORKED))
    assert reading.told(request_of(SENT)) == WHOLE


def test_what_was_not_committed_waits_on(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    reading.told(request_of(WORKED))
    reading.read(request_of(SENT))  # the lake took nothing: the sender comes again
    assert reading.told(request_of(SENT)) == WHOLE


def test_a_settlement_below_a_span_that_waits_waits_too(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    settled = ("settle", 3, {"parent": 2, "messaging__message__id": "m", "messaging__operation__name": "nack"})
    named = {"messaging__message__id": "m"}
    assert reading.told(request_of((*WORKED[:2], WORKED[2] | named), settled)) == []
    told = reading.told(request_of((*SENT[:2], SENT[2] | named)))
    assert told[:2] == WHOLE[:2] and {row[1] for row in told} == {"acme"}


def test_a_restarted_receiver_goes_on_waiting(tmp_path: Path) -> None:
    Reading(tmp_path).told(request_of(WORKED))
    (path,) = (tmp_path / "held").iterdir()
    path.write_bytes(path.read_bytes() + b"\0\0\0\x7fcut off")
    again = Reading(tmp_path)
    held = [span for request in again.journal.read() for span in again.spans.sends(request).later]
    again.waiting.commit((), held, 0, again.clock.now().timestamp())
    assert again.told(request_of(SENT)) == WHOLE
    assert not list((tmp_path / "held").iterdir())


def test_there_is_a_bound_and_what_is_beyond_it_is_told_as_it_is(tmp_path: Path) -> None:
    reading = Reading(tmp_path, most=2)
    requests = [request_of(("process", 2, {"parent": 1, "remote": True, "trace": trace})) for trace in (1, 2, 3)]
    assert [row[0] for row in reading.told(*requests)] == ["received", "completed"]
    assert len(reading.waiting) == 2


def test_producers_that_never_report_are_waited_for_no_more(tmp_path: Path) -> None:
    reading = Reading(tmp_path, most=1000)
    for trace in range(1, 301):
        reading.told(request_of(("process", 2, {"parent": 1, "remote": True, "trace": trace})))
        reading.seconds += 7.0
    at_once = [
        bool(reading.told(request_of(("process", 2, {"parent": 1, "remote": True, "trace": trace}))))
        for trace in range(301, 401)
    ]
    assert 90 <= sum(at_once) < 100  # one now and then is tried again


def test_a_killed_receiver_forgets_no_span_that_waits(tmp_path: Path) -> None:
    chosen = settings(hold_seconds=60)
    first = start(chosen, tmp_path / "lake")
    url = f"http://127.0.0.1:{chosen.receive.http_port}/v1/traces"
    try:
        wait_until(lambda: _taken(url, request_of(WORKED)), "the receiver to take the consumer's span")
    finally:
        first.kill()
        first.wait()
    with receiving(tmp_path / "lake", hold_seconds=60) as receiver:
        assert receiver.rows() == []
        wait_until(lambda: _taken(f"{receiver.url}/v1/traces", request_of(SENT)), "the producer's span to be taken")
        wait_until(lambda: len(receiver.rows()) == 3, "the life of the message")
        told = {(row["event_type"], row["tenant"], row["enqueued_at"] is not None) for row in receiver.rows()}
    assert told == {("enqueued", "acme", True), ("received", "acme", True), ("completed", "acme", True)}


def _taken(url: str, request: Any) -> bool:
    try:
        headers = {"content-type": "application/x-protobuf"}
        return httpx.post(url, content=request.SerializeToString(), headers=headers, timeout=30).status_code == 200
    except httpx.TransportError:
        return False
