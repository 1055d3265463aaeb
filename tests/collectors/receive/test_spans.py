"""What single messaging spans mean, under old and current names: one case a line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.collectors.receive.support import BEGIN, add, context, named, read, reader, request_of

ONE = context(1, 1)
#: Two minutes after the beginning, as Celery writes an ETA.
DUE = datetime.fromtimestamp(BEGIN / 1e9 + 120, UTC).isoformat()


def _told(*spans: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """(event type, message id, attempt, enqueued, occurred) of what ``spans`` tell; times in milliseconds."""
    fields = ("event_type", "message_id", "attempt", "enqueued_ms", "occurred_ms")
    return [tuple(row[field] for field in fields) for row in named(read(request_of(*spans)))]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([("send", 1)], [("enqueued", ONE, None, 0, 0)], id="a send enqueues at its start"),
        pytest.param([("publish", 1)], [("enqueued", ONE, None, 0, 0)], id="publish is the older word"),
        pytest.param(
            [("send", 1, {"messaging__message__id": "m"})],
            [("enqueued", "m", None, 0, 0)],
            id="an id names the message",
        ),
        pytest.param([("send", 1, {"error": "full"})], [], id="a failed send enqueues nothing"),
        pytest.param(
            [("send", 1, {"sojourn__enqueued_at": 1_780_000_000_002_000_000})],
            [("enqueued", ONE, None, 2, 0)],
            id="the enqueue time that is told counts",
        ),
        pytest.param(
            [("send", 1), ("process", 2, {"parent": 1, "remote": True, "at": 5})],
            [("enqueued", ONE, None, 0, 0), ("received", ONE, 1, 0, 5), ("completed", ONE, 1, 0, 6)],
            id="a remote parent is the producer",
        ),
        pytest.param(
            [("process", 2, {"links": [(1, 1)], "trace": 9, "at": 5}), ("send", 1)],
            [("enqueued", ONE, None, 0, 0), ("received", ONE, 1, 0, 5), ("completed", ONE, 1, 0, 6)],
            id="the order within a request does not matter",
        ),
        pytest.param(
            [("process", 2, {"parent": 1, "remote": False})],
            [("received", ONE[:-1] + "2", None, None, 0), ("completed", ONE[:-1] + "2", None, None, 1)],
            id="a local parent is no producer",
        ),
        pytest.param(
            [("process", 2, {"parent": 1, "remote": True})],
            [("received", ONE, None, None, 0), ("completed", ONE, None, None, 1)],
            id="a message whose send is not known has no age and no attempt",
        ),
        pytest.param(
            [("process", 2, {"links": [(1, 1)], "sojourn__attempt": 3, "sojourn__outcome": "dead_lettered"})],
            [("received", ONE, 3, None, 0), ("dead_lettered", ONE, 3, None, 1)],
            id="attempt and outcome are told",
        ),
        pytest.param(
            [("process", 2, {"links": [(1, 1)], "error": "no stock"})],
            [("received", ONE, None, None, 0), ("failed", ONE, None, None, 1)],
            id="an error is a failure",
        ),
        pytest.param(
            [("send", 2, {"parent": 1}), ("send", 1)],
            [("enqueued", context(1, 2), None, 0, 0)],
            id="a send around a send is the same publish: the inner one counts",
        ),
        pytest.param(
            [("create", 1), ("send", 2, {"parent": 1, "kind": 3})],
            [("enqueued", ONE, None, 0, 0)],
            id="a send below its create span is the same publish",
        ),
        pytest.param(
            [("create", 1), ("create", 2), ("send", 3, {"links": [(1, 1), (1, 2)], "kind": 3})],
            [
                ("enqueued", ONE, None, 0, 0),
                ("enqueued", context(1, 2), None, 0, 0),
                ("enqueued", ONE, None, 0, 0),
                ("enqueued", context(1, 2), None, 0, 0),
            ],
            id="a send that links to create spans tells the same events",
        ),
        pytest.param(
            [("send", 1, {"messaging__batch__message_count": 2})],
            [("enqueued", f"{ONE}.0", None, 0, 0), ("enqueued", f"{ONE}.1", None, 0, 0)],
            id="a batch without links enqueues as many as it counts",
        ),
        pytest.param(
            [("send", 1), ("send", 2, {"trace": 2}), ("process", 3, {"links": [(1, 1), (2, 2)], "at": 5})],
            [
                ("enqueued", ONE, None, 0, 0),
                ("enqueued", context(2, 2), None, 0, 0),
                ("received", ONE, 1, 0, 5),
                ("completed", ONE, 1, 0, 6),
                ("received", context(2, 2), 1, 0, 5),
                ("completed", context(2, 2), 1, 0, 6),
            ],
            id="a batch that links to its messages processes each",
        ),
        pytest.param(
            [("settle", 3, {"messaging__message__id": "m", "messaging__operation__name": "nack"})],
            [("failed", "m", None, None, 1)],
            id="a nack is a failure",
        ),
        pytest.param(
            [("send", 1), ("process", 2, {"links": [(1, 1)], "at": 123_000, "celery__eta": DUE})],
            [("enqueued", ONE, None, 0, 0), ("received", ONE, 1, 120_000, 123_000), ("completed", ONE, 1, 0, 123_001)],
            id="a message with an ETA has waited since then; its end takes it from where its send span put it",
        ),
        pytest.param(
            [("send", 1, {"celery__eta": DUE}), ("process", 2, {"links": [(1, 1)], "at": 123_000, "celery__eta": DUE})],
            [
                ("enqueued", ONE, None, 120_000, 0),
                ("received", ONE, 1, 120_000, 123_000),
                ("completed", ONE, 1, 120_000, 123_001),
            ],
            id="a send span that tells the ETA is never the oldest before it is due",
        ),
        pytest.param(
            [("send", 1, {"sojourn__due_at": BEGIN + 2_000_000})],
            [("enqueued", ONE, None, 2, 0)],
            id="a due time of our own counts in nanoseconds",
        ),
        pytest.param(
            [("send", 1), ("process", 2, {"links": [(1, 1)], "at": 5, "celery__eta": "2020-01-01T00:00:00"})],
            [("enqueued", ONE, None, 0, 0), ("received", ONE, 1, 0, 5), ("completed", ONE, 1, 0, 6)],
            id="an ETA in the past makes nothing older than it is",
        ),
        pytest.param(
            [("send", 1, {"celery__eta": "tomorrow"}), ("send", 2, {"sojourn__due_at": "9" * 30})],
            [("enqueued", ONE, None, 0, 0), ("enqueued", context(1, 2), None, 0, 0)],
            id="a due time that is none is as if it were not there",
        ),
        pytest.param([("settle", 3)], [], id="a settlement of nobody knows what tells nothing"),
        pytest.param(
            [("send", 1, {"messaging__operation__type": None, "kind": 4})],
            [("enqueued", ONE, None, 0, 0)],
            id="without an operation the kind tells",
        ),
        pytest.param([("send", 1, {"messaging__system": None})], [], id="a span without a system is ignored"),
        pytest.param([("send", 1, {"messaging__destination__name": None})], [], id="a span without a queue is ignored"),
    ],
)
def test_spans_mean(spans: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    assert _told(*spans) == expected


def test_a_settlement_below_its_process_span_is_one_ending_with_it() -> None:
    told = read(
        request_of(
            ("settle", 3, {"parent": 2, "messaging__message__id": "m", "messaging__operation__name": "ack"}),
            ("process", 2, {"messaging__message__id": "m"}),
        )
    )
    endings = [row[-3:] for row in told.rows if row[0] == "completed"]
    assert len(endings) == 2 and len(set(endings)) == 1  # the same event id: one of them is a duplicate


@pytest.mark.parametrize(
    ("attributes", "column", "value"),
    [
        ({"messaging__kafka__consumer__group": "billing"}, "subscriber", "billing"),
        ({"messaging__consumer__group__name": "billing", "sojourn__subscriber": "b"}, "subscriber", "b"),
        ({"sojourn__subscriber": "b", "messaging__consumer__group__name": "billing"}, "subscriber", "b"),
        ({"sojourn__tenant": "acme"}, "tenant", "acme"),
        ({"sojourn__priority": "7"}, "priority", 7),
        ({"sojourn__priority": "high"}, "priority", None),
        ({"sojourn__worker": "w1"}, "worker", "w1"),
        ({"sojourn__worker": "x" * 20_000}, "worker", "shop"),
        ({}, "worker", "shop"),
        ({"sojourn__attempt": 0}, "attempt", None),
        ({"sojourn__attempt": 2**40}, "attempt", None),
        ({"celery__retries": 2}, "attempt", 3),
        ({"messaging__servicebus__message__enqueued_time": 1_780_000_000}, "clock", "broker"),
        ({"messaging__servicebus__message__enqueued_time": 1_780_000_000}, "enqueued_ms", 0),
        ({"messaging__system": "aws.sqs"}, "broker", "sqs"),
        ({"messaging__system": "pulsar"}, "broker", "pulsar"),
        ({"messaging__system": None, "celery__action": "run"}, "broker", "celery"),
        ({"messaging__destination__name": None, "messaging__destination": "old"}, "queue", "old"),
        ({"messaging__message__id": 17}, "message_id", "17"),
    ],
)
def test_an_attribute_fills_its_column(attributes: dict[str, Any], column: str, value: Any) -> None:
    row = named(read(request_of(("process", 2, {"links": [(1, 1)], **attributes}))))[0]
    assert row[column] == value


def test_on_kafka_the_producers_context_names_a_message_whose_offset_only_the_consumer_knows() -> None:
    kafka = {"messaging__system": "kafka", "messaging__kafka__offset": 7, "messaging__destination__partition__id": "3"}
    alone, linked = (
        read(request_of(("process", 2, kafka))),
        read(request_of(("process", 2, {"links": [(1, 1)], **kafka}))),
    )
    assert (named(alone)[0]["message_id"], named(linked)[0]["message_id"]) == ("orders.3.7", ONE)


def test_the_tenant_of_a_message_is_known_from_its_send_span_or_the_resource() -> None:
    request = request_of(("send", 1, {"sojourn__tenant": "acme"}), ("process", 2, {"links": [(1, 1)]}), ("send", 5))
    request.resource_spans[0].resource.attributes.add(key="sojourn.tenant").value.string_value = "everyone"
    assert [row["tenant"] for row in named(read(request))] == ["acme", "everyone", "everyone", "everyone"]


def test_attempts_are_numbered_apart_for_each_subscriber_and_the_same_when_told_again() -> None:
    by = reader()
    requests = [
        request_of(("send", 1)),
        request_of(("process", 2, {"links": [(1, 1)], "sojourn__subscriber": "a", "error": "x"})),
        request_of(("process", 3, {"links": [(1, 1)], "sojourn__subscriber": "a"})),
        request_of(("process", 4, {"links": [(1, 1)], "sojourn__subscriber": "b"})),
    ]
    for _ in range(2):
        attempts = [row["attempt"] for request in requests for row in named(read(request, by)) if row["subscriber"]]
        assert attempts == [1, 1, 2, 2, 1, 1]


def test_a_delivery_seen_before_its_send_still_counts() -> None:
    by = reader()
    read(request_of(("process", 2, {"links": [(1, 1)], "error": "x"})), by)
    read(request_of(("send", 1)), by)
    assert named(read(request_of(("process", 3, {"links": [(1, 1)]})), by))[0]["attempt"] == 2


@pytest.mark.parametrize("order", [(2, 1), (1, 2)], ids=["inner first", "outer first"])
def test_both_spans_of_one_publish_tell_one_event_in_either_order_however_often(order: tuple[int, int]) -> None:
    by = reader()
    parents = {1: 0, 2: 1}
    for _ in range(2):
        rows = [named(read(request_of(("send", span, {"parent": parents[span]})), by)) for span in order]
        assert [len(one) for one in rows] == [1, 0]
        assert rows[0][0]["message_id"] == context(1, order[0])


def test_a_receive_span_counts_a_poll() -> None:
    told = read(
        request_of(
            ("receive", 1, {"messaging__batch__message_count": 0}),
            ("receive", 2, {"messaging__batch__message_count": 3}),
            ("receive", 3),
        )
    )
    assert [poll.empty for poll in told.polls] == [True, False, None]


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        (("send", 0), "span id"),
        (("send", 1, {"at": -1_780_000_000_000}), "between 1970"),
        (("send", 1, {"messaging__batch__message_count": 20_000}), "at most"),
        (("process", 1, {"sojourn__outcome": "lost"}), "sojourn.outcome"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused_alone(span: tuple[Any, ...], reason: str) -> None:
    request = request_of(span, ("send", 9))
    if span[1] == 0:
        request.resource_spans[0].scope_spans[0].spans[0].span_id = b"x"
    told = read(request)
    assert len(told.rows) == 1
    assert len(told.refused) == 1 and reason in told.refused[0][1]


def test_a_request_tells_of_no_more_messages_than_it_may() -> None:
    request = request_of(("send", 1, {"messaging__batch__message_count": 8}), ("send", 2), ("send", 3), ("send", 4))
    told = read(request, reader(most=10))
    assert (len(told.rows), len(told.refused)) == (10, 1)


def test_a_handler_whose_clock_went_back_has_no_processing_time() -> None:
    request = request_of(("process", 2, {"links": [(1, 1)], "at": 5}))
    request.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano -= 3_000_000
    ending = named(read(request))[1]
    assert (ending["processing_seconds"], ending["occurred_ms"]) == (None, 5)


def test_reading_adds_to_nothing_but_its_own_request() -> None:
    request = request_of(("send", 1))
    add(request, "send", 2)
    assert len(read(request).rows) == len(read(request).rows) == 2
