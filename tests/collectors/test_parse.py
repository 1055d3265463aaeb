"""Messages recorded from nats-server 2.15.1, and what they say; broken ones, and what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collectors.nats.parse import (
    Acknowledged,
    Advisory,
    Arrival,
    ConsumerCreated,
    Malformed,
    headers_of,
    matches,
    microseconds,
    parse,
)

HEADERS = {
    "Tenant": "acme",
    "Nats-Msg-Id": "id0",
    "Nats-Stream": "ORDERS",
    "Nats-Subject": "orders.t0",
    "Nats-Sequence": "2",
    "Nats-Time-Stamp": "2026-11-20T10:16:09.989878517Z",
    "Nats-Last-Sequence": "0",
    "Nats-Msg-Size": "100",
}
ACK = {
    "type": "io.nats.jetstream.metric.v1.consumer_ack",
    "id": "yfus9VC8b9qqB1tE0yPtr6",
    "timestamp": "2026-11-20T10:16:10.747039313Z",
    "stream": "ORDERS",
    "consumer": "work",
    "consumer_seq": 8,
    "stream_seq": 2,
    "ack_time": 1156065,
    "deliveries": 2,
}
NAK = {
    "type": "io.nats.jetstream.advisory.v1.nak",
    "timestamp": "2026-11-20T10:16:10.0436708Z",
    "stream": "ORDERS",
    "consumer": "work",
    "consumer_seq": 2,
    "stream_seq": 2,
    "deliveries": 1,
}
TERMINATED = NAK | {"type": "io.nats.jetstream.advisory.v1.terminated", "stream_seq": 4, "reason": "bad thing"}
TOO_OFTEN = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver",
    "timestamp": "2026-11-20T10:16:11Z",
    "stream": "ORDERS",
    "consumer": "work",
    "stream_seq": 5,
    "deliveries": 3,
}
ACK_SUBJECT = "$JS.EVENT.METRIC.CONSUMER.ACK.ORDERS.work"
SECOND = 1_000_000
AT = microseconds("2026-11-20T10:16:10Z")


def block(headers: dict[str, str] | None) -> bytes:
    """A header block as it comes over the wire."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b""


def advisory(kind: str) -> str:
    return f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.ORDERS.work"


@pytest.mark.parametrize(
    ("subject", "headers", "body", "record"),
    [
        ("tap.ORDERS.t0", HEADERS, None, Arrival("ORDERS", 2, AT - 10_122, "orders.t0", HEADERS)),
        (ACK_SUBJECT, None, ACK, Acknowledged("ORDERS", "work", 2, 2, AT + 745_883, 0.001156065)),
        (advisory("MSG_NAKED"), None, NAK, Advisory("MSG_NAKED", "ORDERS", "work", 2, 1, AT + 43_670, None)),
        (
            advisory("MSG_TERMINATED"),
            None,
            TERMINATED,
            Advisory("MSG_TERMINATED", "ORDERS", "work", 4, 1, AT + 43_670, "bad thing"),
        ),
        (
            advisory("MAX_DELIVERIES"),
            None,
            TOO_OFTEN,
            Advisory("MAX_DELIVERIES", "ORDERS", "work", 5, 3, AT + SECOND, None),
        ),
        (advisory("CREATED"), None, {"stream": "ORDERS", "consumer": "work"}, ConsumerCreated("ORDERS", "work")),
        (advisory("PAUSE"), None, {}, None),
    ],
)
def test_a_recorded_message_says(subject: str, headers: Any, body: Any, record: Any) -> None:
    for separators in ((",", ":"), (", ", ": ")):  # as the server writes it, and as any other JSON
        data = json.dumps(body, separators=separators).encode() if body is not None else b""
        assert parse(subject.encode(), block(headers), data) == record


@pytest.mark.parametrize(
    ("subject", "headers", "data", "fault"),
    [
        ("tap.x", None, b"", "header Nats-Sequence is missing"),
        ("tap.x", HEADERS | {"Nats-Sequence": "two"}, b"", "cannot be read"),
        ("tap.x", HEADERS | {"Nats-Sequence": "0"}, b"", "below 1"),
        ("tap.x", HEADERS | {"Nats-Time-Stamp": "yesterday"}, b"", "no UTC time"),
        (ACK_SUBJECT, None, b"\xff{", "not JSON"),
        (ACK_SUBJECT, None, b"[1]", "not a JSON object"),
        (ACK_SUBJECT, None, json.dumps(ACK | {"deliveries": 0}).encode(), "deliveries is below 1"),
        (ACK_SUBJECT, None, json.dumps(ACK | {"ack_time": -1}).encode(), "ack_time is negative"),
        (ACK_SUBJECT, None, json.dumps(ACK | {"stream": 3}).encode(), "stream is no text"),
        (advisory("MSG_NAKED"), None, json.dumps(NAK | {"timestamp": "2026-13-01T00:00:00Z"}).encode(), "no UTC time"),
    ],
)
def test_a_broken_message_is_refused_with_its_fault(subject: str, headers: Any, data: bytes, fault: str) -> None:
    with pytest.raises(Malformed, match=fault):
        parse(subject.encode(), block(headers), data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01.5Z", SECOND + 500_000),
        ("1970-01-01T00:00:01.000001999Z", SECOND + 1),
    ],
)
def test_times_of_any_length_are_cut_to_microseconds(text: str, expected: int) -> None:
    assert microseconds(text) == expected


def test_of_a_header_that_is_there_twice_the_servers_own_counts() -> None:
    forged = block({"Nats-Sequence": "99", "Tenant": "a"})[:-2] + block(HEADERS).removeprefix(b"NATS/1.0\r\n")
    record = parse(b"tap.ORDERS.t0", forged, b"")
    assert isinstance(record, Arrival)
    assert (record.sequence, record.headers["Tenant"]) == (2, "acme")


@pytest.mark.parametrize(
    ("subject", "pattern", "expected"),
    [
        ("a.b.c", "a.>", True),
        ("a", "a.>", False),
        ("a.b.c", "a.*.c", True),
        ("a.b", "a.*.c", False),
        ("a.b.c", "a.*", False),
        ("a.b", "a.b", True),
    ],
)
def test_subjects_match_as_the_server_matches_them(subject: str, pattern: str, expected: bool) -> None:
    assert matches(subject, pattern) is expected


def test_stored_headers_are_read() -> None:
    assert headers_of(b"NATS/1.0\r\nTenant: a:b\r\nX:1\r\nTenant: c\r\n\r\n") == {"Tenant": "a:b", "X": "1"}
