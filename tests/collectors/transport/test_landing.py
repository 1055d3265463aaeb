"""From Kafka through real Spark into bronze and gold: what comes that way is what the lake itself would hold."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from collectors.records import Rejected, events_table, now_us, rejected_table
from collectors.transport.settings import TransportSettings
from lake.reader import Reader
from lake.store import Lake
from lake.tables import EVENT_TYPES
from tests.collectors.rows import event_rows, summary_rows
from tests.collectors.test_sink import some_events
from tests.collectors.transport.making import bronze, settings
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = 1  # a start of Spark each

#: Analyses each lake that is named, once: by the transport's settings, or ``null`` for the lake's own.
_PROGRAM = """
import json, logging, signal, sys, threading
from pathlib import Path
from spark_analytics.run import run
from spark_analytics.settings import AnalyzeSettings
logging.basicConfig(level="INFO")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
once = sys.argv[1] == "once"
for root, transport in json.loads(sys.argv[2]):
    chosen = {"transport": transport} if transport else {}
    run(AnalyzeSettings(quick_start=True, driver_memory="1g", **chosen), Path(root), stop, once=once)
"""


def analysis(
    log: Path, how: str, *lakes: tuple[Lake, TransportSettings | None], **more: str
) -> subprocess.Popen[bytes]:
    """An analysis in a process of its own; ``more`` are settings of its transport."""
    wanted = [(str(lake.root), _analytics(transport, more)) for lake, transport in lakes]
    repository = str(Path(__file__).parents[3])
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, how, json.dumps(wanted)],
            env={**os.environ, "PYTHONPATH": repository},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


def _analytics(transport: TransportSettings | None, more: dict[str, str]) -> dict[str, Any] | None:
    if transport is None:
        return None
    return {"kind": "kafka", "bootstrap": transport.bootstrap, "prefix": transport.prefix, **more}


def fill(place: Any, summaries: pa.Table) -> None:
    """Every kind of record, as collectors write them."""
    for version, seed in enumerate((1, 2), start=1):
        place.append("message_events", events_table(some_events(150, seed), "mq", "tap"), app_id="t@1", version=version)
    place.append("event_summaries", summaries, app_id="t@1", version=1)
    refused = rejected_table([Rejected(1, now_us(), "unreadable", "half a reco")], "tap")
    place.append("rejected_records", refused, positions={"t#rejected": 1})


def rows(lake: Lake, name: str) -> list[str]:
    """The rows of a table, but for when they were ingested."""
    table = lake.read(name).drop_columns(["ingested_at", "ingest_date"])
    return sorted(str(row) for row in table.to_pylist() if not str(row["source"]).startswith("kafka:"))


def test_the_views_are_those_of_records_that_went_to_the_lake_itself(
    kafka_server: KafkaServer, lake: Lake, tmp_path: Path
) -> None:
    chosen = settings(kafka_server)
    direct = Lake(tmp_path / "direct")
    direct.create()
    summaries = summary_rows("rolled", ["a", "b", None])
    fill(direct, summaries)
    fill(bronze(chosen, lake), summaries)
    _produce(chosen, [b"no record", b"{}", None, b'[{"event_type": "enqueued"}]'])
    log = tmp_path / "log"
    assert analysis(log, "once", (lake, chosen), (direct, None)).wait(170) == 0, log.read_text()
    for name in ("message_events", "event_summaries"):
        assert rows(lake, name) == rows(direct, name)
    (carried,) = rows(lake, "rejected_records")
    assert "half a reco" in carried
    refused = [row for row in lake.read("rejected_records").to_pylist() if row["source"].startswith("kafka:")]
    assert sorted(row["raw"] for row in refused) == ["", '[{"event_type": "enqueued"}]', "no record", "{}"]
    by_tenant = """
        SELECT queue, tenant, SUM(enqueued) AS arrived, SUM(completed) AS completed, SUM(dead_lettered) AS dead,
               SUM(first_attempt_age_count) AS first, SUM(retries) AS retries
        FROM partials GROUP BY queue, tenant ORDER BY queue, tenant"""
    for query in (by_tenant, "SELECT COUNT(*) AS marks FROM marks"):
        found = Reader(lake.root).query(query)
        assert found.num_rows
        assert found.equals(Reader(direct.root).query(query))


def test_a_topic_is_begun_at_the_time_that_the_user_says(kafka_server: KafkaServer, lake: Lake, tmp_path: Path) -> None:
    chosen, log = settings(kafka_server), tmp_path / "log"
    sender = bronze(chosen, lake)
    sender.append("message_events", event_rows("before", ["a"]), app_id="t", version=1)
    time.sleep(0.1)  # Kafka's times are milliseconds
    between = datetime.now(UTC).isoformat()
    sender.append("message_events", event_rows("after", ["a"]), app_id="t", version=2)
    running = analysis(log, "once", (lake, chosen), starting_offsets=between)
    assert running.wait(170) == 0, log.read_text()
    assert lake.read("message_events").column("queue").to_pylist() == ["after"]


def _produce(chosen: TransportSettings, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": chosen.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(f"{chosen.prefix}.message_events", value)
    assert producer.flush(20) == 0


def test_killing_the_analysis_at_any_instant_neither_loses_nor_doubles(
    kafka_server: KafkaServer, lake: Lake, tmp_path: Path
) -> None:
    chosen, chance, log = settings(kafka_server), random.Random(7), tmp_path / "log"
    sender, expected = bronze(chosen, lake), Counter[str]()

    def send(version: int) -> None:
        events = some_events(60, seed=version)
        sender.append("message_events", _named(events_table(events, "mq", "tap"), version), app_id="t", version=version)
        expected.update(event.event_type for event in events)

    send(1)
    for attempt in range(KILLS):
        before = lake.version("message_events")
        running = analysis(log, "live", (lake, chosen))
        wait_until(lambda: lake.version("message_events") > before, "records in bronze", seconds=90)  # noqa: B023
        for number in range(4):
            send(10 * (attempt + 1) + number)
            time.sleep(chance.uniform(0.0, 0.3))
        running.send_signal(signal.SIGKILL)
        running.wait()
        send(10 * (attempt + 1) + 5)
    assert analysis(log, "once", (lake, chosen)).wait(170) == 0, log.read_text()
    held = lake.read("message_events", columns=["event_id", "event_type"])
    assert len(set(held.column("event_id").to_pylist())) == held.num_rows
    assert Counter(held.column("event_type").to_pylist()) == expected
    gold = lake.read("partials", columns=list(EVENT_TYPES))
    assert {name: sum(gold.column(name).to_pylist()) for name in expected} == dict(expected)


def _named(events: pa.Table, version: int) -> pa.Table:
    """Events whose ids no other version has."""
    ids = pa.array([f"{version}-{one}" for one in events.column("event_id").to_pylist()])
    return events.set_column(events.schema.get_field_index("event_id"), "event_id", ids)
