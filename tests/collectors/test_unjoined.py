"""What ``sojourn doctor`` says of events and samples that do not meet."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from collectors.samples import Sample, samples_table
from collectors.unjoined import Names, mismatches, read_names
from lake.store import Lake
from lake.tables import MESSAGE_EVENTS

ORDERS, MAILS = ("celery", "orders"), ("redis", "mails")


def test_events_without_samples_are_named_with_what_joins_them() -> None:
    names = Names({ORDERS: True, MAILS: True}, {("redis", "orders"), MAILS})
    (one,) = mismatches(names, ["redis"])
    assert (one.subject, "orders" in one.found, "one of redis" in one.fix) == ("events of celery", True, True)
    (one,) = mismatches(names, [])
    assert "[[collect.brokers]]" in one.fix


def test_a_queue_that_is_called_otherwise_at_its_broker_is_told_of() -> None:
    (one,) = mismatches(Names({("redis", "mail.new"): True}, {MAILS}), ["redis"])
    assert "as_queue" in one.fix


def test_queues_without_tenants_get_a_hint_how_to_name_them() -> None:
    (one,) = mismatches(Names({MAILS: False}, {MAILS}), ["redis"])
    assert "redis/mails" in one.found and "sojourn.tenant" in one.fix


def test_what_meets_is_nothing_to_tell() -> None:
    assert list(mismatches(Names({MAILS: True}, {MAILS, ("redis", "idle")}), ["redis"])) == []


def test_the_names_are_those_of_the_newest_rows(tmp_path: Path) -> None:
    lake, now = Lake(tmp_path), datetime.now(UTC)
    assert read_names(lake, now) == Names()
    lake.create()
    told = [("celery", "orders", "acme", "otlp"), ("celery", "orders", None, "otlp"), ("nats", "tapped", None, "tap")]
    lake.append("message_events", _events(told, now))
    for source in ("redis", "receiver:receive"):
        lake.append("queue_samples", samples_table([Sample("orders", 1, depth=0)], source, source))
    assert read_names(lake, now) == Names({ORDERS: True}, {("redis", "orders")})


def _events(told: list[tuple[str, str, str | None, str]], now: datetime) -> pa.Table:
    rows = [
        {
            "event_id": str(number),
            "event_type": "enqueued",
            "broker": broker,
            "queue": queue,
            "tenant": tenant,
            "message_id": str(number),
            "occurred_at": now,
            "clock": "producer",
            "source": source,
            "ingested_at": now,
            "ingest_date": now.date(),
        }
        for number, (broker, queue, tenant, source) in enumerate(told)
    ]
    return pa.Table.from_pylist(rows, schema=MESSAGE_EVENTS.schema)
