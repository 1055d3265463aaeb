"""What our own client sends: taken whole, judged one by one, never twice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.receive.events import Malformed, read
from collectors.receive.polls import PollCount, PollTotals, totals_table
from lake.tables import EVENT_TYPES
from tests.collectors.receive.support import Receiving, receiving, request_of

AT = 1_780_000_000_000_000
EVENT = {"event_id": "e", "event_type": "received", "broker": "b", "queue": "q", "message_id": "m", "occurred_at": AT}


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    """A receiver that all tests here share."""
    with receiving(tmp_path_factory.mktemp("events") / "lake") as one:
        yield one


def _request(sequence: int = 1, **lists: Any) -> dict[str, Any]:
    return {"version": 1, "sender": "7d9c", "sequence": sequence, **lists}


def test_events_are_taken_and_what_is_wrong_is_said_of_each(receiver: Receiving) -> None:
    whole = EVENT | {
        "event_id": "whole",
        "tenant": "acme",
        "attempt": 2,
        "enqueued_at": AT - 5,
        "processing_seconds": 0.5,
        "priority": -1,
        "worker": "w",
        "trace_id": "ab",
        "reason": "r",
        "subscriber": "s",
    }
    bad = [
        {"event_type": "eaten"},
        {"event_id": ""},
        {"occurred_at": 1.5},
        {"occurred_at": -1},
        {"attempt": True},
        {"attempt": 0},
        {"attempt": -1},
        {"attempt": 2**31},
        {"processing_seconds": -1},
        {"queue": 5},
        {"tenant": 5},
        {"tenant": "x" * 16_385},
        {"priority": "high"},
    ]
    events = [whole, *(EVENT | {"event_id": f"bad-{n}"} | wrong for n, wrong in enumerate(bad)), 7]
    body = gzip.compress(json.dumps(_request(events=events)).encode())
    answer = httpx.post(
        f"{receiver.url}/v1/events",
        content=body,
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    told = answer.json()
    assert (answer.status_code, told["accepted"]) == (200, 1)
    assert [one["index"] for one in told["rejected"]] == list(range(1, len(events)))
    assert [one["reason"].split(":")[0] for one in told["rejected"]][:3] == ["event_type", "event_id", "occurred_at"]
    row = next(row for row in receiver.rows() if row["event_id"] == "whole")
    assert {name: row[name] for name in ("tenant", "attempt", "processing_seconds", "priority", "worker")} == {
        "tenant": "acme",
        "attempt": 2,
        "processing_seconds": 0.5,
        "priority": -1,
        "worker": "w",
    }
    assert (row["trace_id"], row["reason"], row["subscriber"], row["clock"]) == ("ab", "r", "s", "producer")
    assert (row["occurred_at"] - row["enqueued_at"]).microseconds == 5
    assert any("sender 7d9c" in rejected["raw"] for rejected in receiver.rows("rejected_records"))


def test_an_event_that_comes_again_is_accepted_and_kept_once(receiver: Receiving) -> None:
    body = _request(2, events=[EVENT | {"event_id": "again"}, EVENT | {"event_id": "again"}])
    for _ in range(2):
        assert httpx.post(f"{receiver.url}/v1/events", json=body).json()["accepted"] == 2
    assert sum(row["event_id"] == "again" for row in receiver.rows()) == 1


def test_an_event_of_a_clock_that_is_an_hour_fast_is_kept(receiver: Receiving) -> None:
    body = _request(3, events=[EVENT | {"event_id": "fast", "enqueued_at": AT + 3_600_000_000}])
    assert httpx.post(f"{receiver.url}/v1/events", json=body).json()["accepted"] == 1
    row = next(row for row in receiver.rows() if row["event_id"] == "fast")
    assert (row["enqueued_at"] - row["occurred_at"]).total_seconds() == 3600


def test_summaries_and_polls_of_a_request_that_comes_again_count_once(receiver: Receiving) -> None:
    counts = dict.fromkeys(
        (
            *("enqueued", "received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed"),
            *("started", "retries", "finished_unreceived"),
        ),
        0,
    )
    summary = counts | {
        "broker": "b",
        "queue": "summed",
        "bucket_start": AT,
        "newest_occurred_at": AT,
        "received": 3,
        "first_attempt_age_count": 3,
        "first_attempt_age_sum": 0.3,
        "first_attempt_age_histogram": [[-213, 2], [-200, 1]],
        "backlog_cells": [[1_780_000_000, -2], [None, 1]],
    }
    polls = [{"broker": "b", "queue": "summed", "polls": 4, "empty_polls": 1}]
    for sequence in (5, 5, 6):
        body = _request(sequence, summaries=[summary], polls=polls)
        assert httpx.post(f"{receiver.url}/v1/events", json=body).status_code == 200
    rows = [row for row in receiver.rows("event_summaries") if row["queue"] == "summed"]
    assert [row["received"] for row in rows] == [3, 3]
    assert rows[0]["first_attempt_age_histogram"] == [{"index": -213, "count": 2}, {"index": -200, "count": 1}]
    assert rows[0]["backlog_cells"] == [{"second": 1_780_000_000, "net": -2}, {"second": None, "net": 1}]
    assert (rows[0]["tenant"], rows[0]["subscriber"], rows[0]["bucket_seconds"]) == ("unknown", "", 1)
    samples = [row for row in receiver.rows("queue_samples") if row["queue"] == "summed"]
    assert sorted((row["polls_total"], row["empty_polls_total"]) for row in samples) == [(4, 1), (8, 2)]


def test_numbers_that_no_column_holds_are_refused_and_totals_never_outgrow_theirs(receiver: Receiving) -> None:
    huge = {"broker": "b", "queue": "huge", "polls": 2**62 - 1, "empty_polls": 0}
    answer = httpx.post(f"{receiver.url}/v1/events", json=_request(1, polls=[huge] * 3))
    assert (answer.status_code, len(answer.json()["rejected"])) == (200, 3)
    totals, where = PollTotals(), ("b", "q", None)
    for _ in range(4):
        totals.keep(totals.with_added([PollCount(where, 2**62 - 1, 0)] * 3))
        (row,) = totals_table(totals.with_added([PollCount(where, 1, 0)]).values(), AT, "s").to_pylist()
        assert row["polls_total"] > 0


def test_what_the_client_reports_in_a_span_counts_once(receiver: Receiving) -> None:
    counts = dict.fromkeys([*EVENT_TYPES, "started", "retries", "finished_unreceived"], 0)
    summary = counts | {"broker": "b", "queue": "reported", "bucket_start": AT, "newest_occurred_at": AT, "received": 3}
    polls = [{"broker": "b", "queue": "reported", "subscriber": None, "polls": 4, "empty_polls": 1}]
    told = {"sojourn__summaries": json.dumps([summary]), "sojourn__polls": json.dumps(polls), "sojourn__conflated": 3}
    bare = {"messaging__system": None, "messaging__destination__name": None, "messaging__operation__type": None}
    body = request_of(("send", 1, {"trace": 4242, "kind": 1, **bare, **told})).SerializeToString()
    for _ in range(2):
        headers = {"content-type": "application/x-protobuf"}
        answer = httpx.post(f"{receiver.url}/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
    assert [row["received"] for row in receiver.rows("event_summaries") if row["queue"] == "reported"] == [3]
    assert [row["polls_total"] for row in receiver.rows("queue_samples") if row["queue"] == "reported"] == [4]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.dictionaries(st.sampled_from([*EVENT, "attempt", "enqueued_at", "priority", "backlog_cells"]), _JSON)


@settings(deadline=None)
@given(_JSON | st.fixed_dictionaries({"version": st.just(1), "sender": st.text(), "sequence": _JSON, "events": _JSON}))
def test_any_json_is_read_or_refused(request: Any) -> None:
    try:
        read(json.dumps(request).encode(), 100)
    except Malformed:
        return


@settings(deadline=None)
@given(st.lists(_FIELDS.map(lambda fields: EVENT | fields), max_size=3), st.lists(_FIELDS, max_size=3))
def test_entries_of_any_kind_are_read_or_refused_one_by_one(events: list[Any], others: list[Any]) -> None:
    sent = read(json.dumps(_request(events=events, summaries=others, polls=others)).encode(), 100)
    accepted = len(sent.rows) + len(sent.summaries) + len(sent.polls)
    assert accepted + len(sent.rejected) == len(events) + 2 * len(others)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        read(body, 100)
