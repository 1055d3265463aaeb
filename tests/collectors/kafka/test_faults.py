"""What production does to groups, on a real broker: lost, stuck and half-known groups are never quiet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from collectors.kafka.source import KafkaSource
from collectors.samples import Sample
from tests.collectors.kafka.reading import read, read_once, settings, using
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

QUICK = {"interval": 0.1, "window": 3}
FOR_EVER = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}


async def sampled(
    source: KafkaSource, topic: str, group: str, until: Callable[[Sample], bool], between: Callable[[], Any] = int
) -> Sample:
    """The first sample of ``group`` on ``topic`` that is as wanted; ``between`` readings something happens."""
    deadline = time.monotonic() + 60
    while True:
        sample = (await read_once(source)).get((topic, group))
        if sample is not None and until(sample):
            return sample
        assert time.monotonic() < deadline, sample
        between()
        await asyncio.sleep(0.05)


def test_a_group_that_retention_has_overtaken_is_lost_until_it_commits_past_the_start(
    kafka_server: KafkaServer,
) -> None:
    kafka_server.make_topics("eaten", partitions=2)
    kafka_server.produce("eaten", 50)
    kafka_server.commit("dead", "eaten", {0: 4, 1: 0})

    async def work(source: KafkaSource) -> None:
        await sampled(source, "eaten", "dead", lambda sample: sample.status == "STOP")
        kafka_server.delete_records("eaten", 50)  # nothing is left
        lost = (await read_once(source))["eaten", "dead"]
        assert (lost.status, lost.lost_total, lost.depth, lost.retention_margin) == ("LOST", 46, 0, 0)
        kafka_server.produce("eaten", 3)
        lost = (await read_once(source))["eaten", "dead"]
        assert (lost.status, lost.lost_total, lost.depth, lost.retention_margin) == ("LOST", 46, 3, 0)
        kafka_server.commit("dead", "eaten", {0: 53})
        found = (await read_once(source))["eaten", "dead"]
        assert (found.status, found.lost_total, found.acked_total) == ("OK", 46, 49)

    using(settings(kafka_server.bootstrap, "eaten", status=QUICK), work)
    kafka_server.commit("dead", "eaten", {0: 10})
    assert read(settings(kafka_server.bootstrap, "eaten"))["eaten", "dead"].status == "LOST"  # as it is found


def test_a_group_with_members_that_has_committed_nothing_has_a_row_for_each_assigned_topic(
    kafka_server: KafkaServer,
) -> None:
    kafka_server.make_topics("begun-a", partitions=2)
    kafka_server.make_topics("begun-b")
    kafka_server.produce("begun-a", 3)
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.bootstrap, "group.id": "beginner", "enable.auto.commit": False}
    )
    chosen = {"groups": {"include": ["beginner"]}}
    try:
        consumer.subscribe(["begun-a", "begun-b"])

        def assigned() -> bool:
            consumer.poll(0.05)
            return len(consumer.assignment()) == 3

        wait_until(assigned, "its partitions", seconds=60)
        found = read(settings(kafka_server.bootstrap, "begun-*", **chosen))
        assert set(found) == {("begun-a", "beginner"), ("begun-b", "beginner")}
        stuck = found["begun-a", "beginner"]
        assert (stuck.consumers, stuck.depth, stuck.unknown_partitions) == (1, 0, 1)  # the other partition is empty
        assert stuck.unavailable["unknown_partitions"] == "1 of 2 partitions are unknown; 0: nothing is committed"
        kafka_server.produce("begun-a", 1, partition=1)
        stuck = read(settings(kafka_server.bootstrap, "begun-a", **chosen))["begun-a", "beginner"]
        assert (stuck.consumers, stuck.depth, stuck.unknown_partitions) == (1, None, 2)
        assert stuck.unavailable["depth"] == "2 of 2 partitions are unknown; 0: nothing is committed"
    finally:
        consumer.close()


async def _until_stuck(source: KafkaSource, server: KafkaServer, topic: str) -> tuple[Sample, Sample]:
    first = (await read_once(source))[topic, "reader"]
    server.produce(topic, 4)
    return first, await sampled(source, topic, "reader", lambda sample: sample.status == "STOP")


@pytest.mark.parametrize(("choice", "depths"), [("earliest", (10, 14)), ("latest", (0, 4))])
def test_where_a_group_begins_without_a_commit_is_taken_from_the_settings(
    kafka_server: KafkaServer, choice: str, depths: tuple[int, int]
) -> None:
    topic = f"beginning-{choice}"
    kafka_server.make_topics(topic, partitions=2)
    kafka_server.produce(topic, 12)
    kafka_server.delete_records(topic, 2)
    kafka_server.commit("reader", topic, {1: 0})
    chosen = {"uncommitted": {"other": "unknown", "read*": choice}, "status": QUICK}

    def work(source: KafkaSource) -> Awaitable[tuple[Sample, Sample]]:
        return _until_stuck(source, kafka_server, topic)

    first, later = using(settings(kafka_server.bootstrap, topic, **chosen), work)
    assert (first.depth, later.depth) == depths
    assert (later.unknown_partitions, later.lost_total, later.acked_total) == (0, 0, 0)
    assert later.oldest_age_seconds is not None and 0 < later.oldest_age_seconds < 300


def test_a_transaction_that_hangs_is_told_of_and_blocks_who_reads_committed_records(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("held", partitions=2)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap, "transactional.id": "hangs", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("held", b"x", partition=0)
    producer.commit_transaction(60)  # offset 0, and the marker 1
    producer.begin_transaction()
    began = time.time_ns() // 1_000_000
    producer.produce("held", b"x", partition=0, timestamp=began - 90_000)
    assert producer.flush(60) == 0  # offset 2: it never ends
    kafka_server.commit("strict", "held", {0: 1, 1: 0})  # the last record that it may read is acknowledged
    kafka_server.commit("undeclared", "held", {0: 1, 1: 0})
    kafka_server.produce("held", 7)
    kafka_server.commit("loose", "held", {0: 10, 1: 0})
    alive = Consumer({"bootstrap.servers": kafka_server.bootstrap, "group.id": "undeclared", "log_level": 0})
    broker = settings(kafka_server.bootstrap, "held", read_committed=["strict"], status=QUICK)

    async def work(source: KafkaSource) -> None:
        found = await read_once(source)
        for group in ("strict", "undeclared", "loose"):
            sample = found["held", group]
            assert sample.transactional_lag == 8
            assert sample.transactional_age_seconds == pytest.approx(90, abs=60)
        strict, end = found["held", "strict"], 0
        assert (strict.depth, strict.oldest_age_seconds) == (1, 0.0)  # the marker: nothing that it could read
        more = iter(range(10_000))

        def write() -> None:
            if next(more) % 4 == 0:
                kafka_server.produce("held", 1)

        blocked = await sampled(source, "held", "strict", lambda sample: sample.status == "BLOCKED", write)
        assert (blocked.transactional_lag or 0) > 8
        found = await read_once(source)
        assert found["held", "undeclared"].status == "STOP"  # nobody is there
        end = found["held", "loose"].published_total or 0
        kafka_server.commit("loose", "held", {0: end})
        assert (await read_once(source))["held", "loose"].status in ("OK", None)
        alive.subscribe(["held"])
        await sampled(source, "held", "undeclared", lambda sample: sample.status == "BLOCKED", lambda: alive.poll(0))
        producer.abort_transaction(60)
        free = await sampled(source, "held", "strict", lambda sample: sample.transactional_lag == 0)
        assert (free.transactional_age_seconds, free.status != "BLOCKED") == (0.0, True)

    try:
        using(broker, work)
    finally:
        alive.close()


@pytest.mark.parametrize(("unit", "words"), [(0.001, "1970-01-"), (1000, "yet to come")])
def test_record_times_in_another_unit_are_unknown_ages(kafka_server: KafkaServer, unit: float, words: str) -> None:
    topic = f"unit-{unit}"
    kafka_server.make_topics(topic, config=FOR_EVER)
    kafka_server.produce(topic, 2, timestamp=round(time.time() * 1000 * unit))
    kafka_server.commit("reader", topic, {0: 0})
    sample = read(settings(kafka_server.bootstrap, topic))[topic, "reader"]
    assert (sample.depth, sample.oldest_age_seconds) == (2, None)
    assert words in sample.unavailable["oldest_age_seconds"]
    assert "is its time in milliseconds?" in sample.unavailable["oldest_age_seconds"]


def test_a_rewind_is_no_restart_of_a_counter(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("back")
    kafka_server.produce("back", 50)

    async def work(source: KafkaSource) -> None:
        acked = []
        for offset in (30, 40, 5, 12):
            kafka_server.commit("reader", "back", {0: offset})
            acked.append((await read_once(source))["back", "reader"].acked_total)
        assert acked == [0, 10, 10, 17]

    using(settings(kafka_server.bootstrap, "back"), work)
