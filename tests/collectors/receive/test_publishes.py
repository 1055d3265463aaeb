"""What applications tell of their publishes: taken once, merged by queue and second, refused where it cannot be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from collectors.receive.publishes import PublishCount, publishes, publishes_table
from collectors.receive.values import Bad
from lake.histogram import RELATIVE_ERROR, bucket_index
from tests.collectors.receive.support import Receiving, receiving, request_of

FAST, SLOW = bucket_index(0.01), bucket_index(2.0)
AT = 1_780_000_000_000_000


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with receiving(tmp_path_factory.mktemp("publishes") / "lake") as one:
        yield one


def entry(named: str, *, until: int = AT, **changes: Any) -> dict[str, Any]:
    told = {"publishes": 5, "errors": 1, "seconds_histogram": [[FAST, 3], [SLOW, 1]]}
    return {"broker": "b", "queue": named, "until": until} | told | changes


def rows(receiver: Receiving, queue: str) -> list[dict[str, Any]]:
    return [row for row in receiver.rows("queue_samples") if row["queue"] == queue]


def test_publishes_of_a_request_that_comes_again_count_once_beside_its_polls(receiver: Receiving) -> None:
    polls = [{"broker": "b", "queue": "once", "polls": 4, "empty_polls": 1}]
    for sequence in (5, 5, 6):
        body = {"version": 1, "sender": "7d9c", "sequence": sequence, "publishes": [entry("once")], "polls": polls}
        assert httpx.post(f"{receiver.url}/v1/events", json=body).json()["rejected"] == []
    found = rows(receiver, "once")
    published = [row for row in found if row["publishes"] is not None]
    assert [(row["publishes"], row["publish_errors"]) for row in published] == [(5, 1), (5, 1)]
    for row in published:
        assert row["publish_latency_seconds"] == pytest.approx(0.01, rel=2 * RELATIVE_ERROR)
        assert row["sampled_at"].timestamp() == AT / 1e6, "of its own time, late or not"
        assert (row["depth"], row["subscriber"], row["polls_total"]) == (None, None, None)
        assert "counts its publishes alone" in dict(row["unavailable"])["depth"]
        assert "publish_latency_seconds" not in dict(row["unavailable"])
    assert sorted(row["polls_total"] for row in found if row["polls_total"] is not None) == [4, 8]


def test_in_a_span_of_the_client_they_count_once(receiver: Receiving) -> None:
    told = {"sojourn__publishes": json.dumps([entry("spanned")])}
    bare = {"messaging__system": None, "messaging__destination__name": None, "messaging__operation__type": None}
    body = request_of(("send", 1, {"trace": 4243, "kind": 1, **bare, **told})).SerializeToString()
    for _ in range(2):
        headers = {"content-type": "application/x-protobuf"}
        answer = httpx.post(f"{receiver.url}/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
    assert [row["publishes"] for row in rows(receiver, "spanned")] == [5]


def test_send_spans_of_others_count_where_that_is_asked_for(
    receiver: Receiving, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Once each, however often they come; with their durations, and as failed where the broker took nothing."""
    where = {"messaging__destination__name": "instrumented"}
    sends = [("send", 10 + number, {"trace": 900 + number, "took": 10.0, **where}) for number in range(3)]
    sends += [
        ("send", 20, {"trace": 950, "took": 2000.0, "error": "refused", **where}),
        ("send", 21, {"trace": 951, "took": 30.0, **where}),
        ("send", 22, {"trace": 951, "parent": 21, "took": 20.0, **where}),  # inside of it: the same publish
        ("create", 30, {"trace": 960, "took": 1.0, **where}),  # puts a message together, and sends nothing
        ("send", 31, {"trace": 960, "took": 10.0, "kind": 3, "links": [(960, 30)], **where}),  # which this does
        ("send", 40, {"trace": 970, "took": 0.0, **where}),  # no call: it only says that something was sent
        ("process", 41, {"trace": 970, "parent": 40, "remote": True, "at": 5, **where}),
    ]
    body = request_of(*sends).SerializeToString()
    with receiving(tmp_path_factory.mktemp("spans") / "lake", publishes=True) as asked:
        for one in (asked, asked, receiver):
            headers = {"content-type": "application/x-protobuf"}
            assert httpx.post(f"{one.url}/v1/traces", content=body, headers=headers).status_code == 200
        found = rows(asked, "instrumented")
    assert rows(receiver, "instrumented") == [], "not unless it is asked for"
    assert sum(row["publishes"] for row in found) == 6 and sum(row["publish_errors"] for row in found) == 1
    assert {row["broker"] for row in found} == {"nats"}
    latencies = [row["publish_latency_seconds"] for row in found if row["publish_latency_seconds"] is not None]
    assert min(latencies) == pytest.approx(0.01, rel=2 * RELATIVE_ERROR)


def test_many_applications_one_row_a_queue_and_second_and_none_of_the_future() -> None:
    told = [PublishCount(("b", "q"), AT + offset, 10, 0, {FAST: 10}) for offset in (0, 999_999)]
    told += [PublishCount(("b", "q"), AT + 500_000, 30, 6, {SLOW: 24}), PublishCount(("b", "q"), AT - 1, 2, 2)]
    told += [PublishCount(("b", "p"), AT + 60_000_000, 1, 0, {SLOW: 1})]
    found = publishes_table(told, AT + 2_000_000, "s").sort_by([("queue", "descending"), ("sampled_at", "descending")])
    q, late, p = found.to_pylist()
    assert (q["publishes"], q["publish_errors"]) == (50, 6)
    assert q["publish_latency_seconds"] == pytest.approx(2.0, rel=2 * RELATIVE_ERROR), "24 of 44 took so long"
    assert (late["publishes"], late["publish_latency_seconds"]) == (2, None)
    assert "none of the publishes was confirmed" in dict(late["unavailable"])["publish_latency_seconds"]
    assert p["sampled_at"].timestamp() == AT / 1e6 + 2


@pytest.mark.parametrize(
    "changes",
    [
        {"broker": ""},
        {"queue": 5},
        {"until": -1},
        {"until": 1.5},
        {"until": None},
        {"publishes": -1},
        {"publishes": 2**40},
        {"publishes": 4},
        {"errors": None},
        {"errors": True},
        {"seconds_histogram": None},
        {"seconds_histogram": [[1]]},
        {"seconds_histogram": [[FAST, -1]]},
        {"seconds_histogram": [[0.5, 1]]},
        {"seconds_histogram": [[2**31, 1]]},
        {"seconds_histogram": [[-9999, 1]]},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_entry_by_entry(receiver: Receiving, changes: dict[str, Any]) -> None:
    with pytest.raises(Bad):
        publishes(entry("bad", **changes))
    both = [entry("good"), entry("good", **changes)]
    body = {"version": 1, "sender": f"s{time.time_ns()}", "sequence": 1, "publishes": both}
    (refused,) = httpx.post(f"{receiver.url}/v1/events", json=body).json()["rejected"]
    assert (refused["list"], refused["index"]) == ("publishes", 1)
