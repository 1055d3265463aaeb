"""Two brokers, one of which dies: what it led is unknown until the other leads it, and never wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.kafka.reader import ClusterReader
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.source import KafkaSource
from collectors.kafka.vendor import VendorReader
from tests.collectors.kafka.reading import read_once, settings, using
from tests.support.deep import examples
from tests.support.facts import proves
from tests.support.kafka import KafkaServer
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[KafkaServer, KafkaServer]]:
    """A cluster of two; the first is the controller, too."""
    both = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "2"}
    with (
        KafkaServer(tmp_path / "first", properties=both) as first,
        KafkaServer(tmp_path / "second", properties=both, joining=first) as second,
    ):
        yield first, second


@pytest.mark.slow
@pytest.mark.parametrize("made", [ClusterReader, VendorReader][: examples(1, 2)])
@proves("kafka", "cluster shapes", "two brokers, one of which dies")
def test_a_broker_that_dies_leaves_unknowns_until_another_leads(
    brokers: tuple[KafkaServer, KafkaServer], made: Callable[[KafkaBroker], ClusterReader]
) -> None:
    first, second = brokers
    wait_until(lambda: len(first.admin().list_topics(timeout=5).brokers) == 2, "both brokers")
    first.make_topics("spread", partitions=4, replicas=2)
    for partition in range(4):
        first.produce("spread", 5, partition=partition)
    groups = [f"group-{number}" for number in range(4)]  # coordinated by one broker or the other
    for group in groups:
        first.commit(group, "spread", dict.fromkeys(range(4), 2))

    async def work(source: KafkaSource) -> None:
        deadline = time.monotonic() + PATIENCE * 60
        while True:
            found = await read_once(source)
            if [found["spread", group].depth for group in groups if ("spread", group) in found] == [12] * 4:
                break
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)
        second.kill()
        unknown = 0
        while time.monotonic() < deadline:
            found = await read_once(source)
            assert {group for _, group in found} >= set(groups)  # nobody disappears
            told = [found["spread", group] for group in groups]
            for sample in told:  # three wait on each of four partitions; null where the group's coordinator is away
                missing = sample.unknown_partitions
                assert sample.depth == (None if missing in (None, 4) else 3 * (4 - missing)), sample
            whole = all(sample.unknown_partitions == 0 for sample in told)
            unknown += not whole
            if whole and (unknown or made is VendorReader):  # librdkafka's answers may wait until the other leads
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the other broker never led what the dead one had")

    async def reopened(source: KafkaSource) -> None:
        source.reader = made(broker)
        await source.open()
        await work(source)

    broker = settings(f"{second.bootstrap},{first.bootstrap}", "spread", timeout_seconds=2)
    using(broker, reopened)
