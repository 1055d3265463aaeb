"""Rows become JSON that any program reads, without loss."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from collectors.records import Event, Rejected, events_table, rejected_table
from collectors.transport.encode import Encoder
from collectors.transport.outlet import source_of
from lake.store import conform
from lake.tables import MESSAGE_EVENTS, QUEUE_SAMPLES, REJECTED_RECORDS, TABLES
from tests.collectors.rows import summary_rows

AT = 1_790_000_000_123_456


def encoded(name: str, rows: pa.Table) -> list[tuple[str, dict[str, object]]]:
    records = Encoder().records(name, conform(rows, TABLES[name].schema))
    return [(key.decode(), json.loads(value)) for key, value in records]


def test_an_event_keeps_every_column_and_microsecond() -> None:
    event = Event("failed", "a|b", "s", 'te"nant ü\n', "m\\1", 2, AT, AT + 1, 0.25, "why")
    ((key, value),) = encoded("message_events", events_table([event], "mq", "tap"))
    assert key == "mq|a|b"
    assert set(value) == set(MESSAGE_EVENTS.schema.names)
    assert value["tenant"] == 'te"nant ü\n'
    assert value["message_id"] == "m\\1"
    assert value["enqueued_at"] == "2026-09-21T14:13:20.123456Z"
    assert value["occurred_at"] == "2026-09-21T14:13:20.123457Z"
    assert value["attempt"] == 2
    assert value["processing_seconds"] == 0.25
    assert value["priority"] is None


def test_a_number_that_json_does_not_know_becomes_null() -> None:
    events = [Event("completed", "q", None, None, "m", 1, AT, AT, bad) for bad in (math.nan, math.inf, -math.inf)]
    assert [value["processing_seconds"] for _, value in encoded("message_events", events_table(events, "mq", "t"))] == [
        None
    ] * 3


def test_lists_and_maps_are_lists_and_objects() -> None:
    (_, summary), *_ = encoded("event_summaries", summary_rows("q", ["a"]))
    (cell,) = summary["backlog_cells"]  # type: ignore[misc, attr-defined]
    assert set(cell) == {"second", "net"}
    sample = {field.name: [None] for field in QUEUE_SAMPLES.schema}
    fields = [field.with_nullable(True) for field in QUEUE_SAMPLES.schema]
    row = pa.table(sample, schema=pa.schema(fields)).to_pylist()[0]
    row |= {"broker": "mq", "queue": "q", "source": "s", "unavailable": [("depth", "it does not say")]}
    loose = pa.Table.from_pylist([row], pa.schema(fields))
    ((_, value),) = [(k, json.loads(v)) for k, v in Encoder().records("queue_samples", loose)]
    assert value["unavailable"] == {"depth": "it does not say"}


def test_a_record_without_a_queue_is_keyed_by_its_source() -> None:
    rejected = rejected_table([Rejected(1, AT, "bad", '{"half": \x00')], "tap")
    ((key, value),) = encoded("rejected_records", rejected)
    assert key == "tap"
    assert value["raw"] == '{"half": \x00'
    assert set(value) == set(REJECTED_RECORDS.schema.names)


@pytest.mark.parametrize(
    ("app_id", "source"),
    [
        ("nats-tap:mq", "nats-tap:mq"),
        ("nats-tap:mq@2026-01-01T00:00:00Z", "nats-tap:mq"),
        ("nats-tap:mq@2026-01-01T00:00:00Z#rejected", "nats-tap:mq"),
        ("nats-tap:a#1@t#rejected", "nats-tap:a#1"),
        ("kafka-tap:mq#orders-3", "kafka-tap:mq"),
        ("kafka-tap:mq#bill%23ing/orders-3", "kafka-tap:mq"),
    ],
)
def test_all_that_a_source_numbers_belongs_to_one_writer(app_id: str, source: str) -> None:
    assert source_of(app_id) == source
