"""The sampler against a real server: what is told is right, what is not told is null with a reason."""

from __future__ import annotations

import pytest

from brokers.errors import ConnectionLost
from collectors.board import Board
from collectors.context import Context
from collectors.registry import factory
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.sqs.source import SqsSource
from collectors.writer import Writer
from lake.store import Lake
from tests.collectors.sqs.support import broker, by_queue, opened, read_once, reasons_missing
from tests.support.elasticmq import ElasticMq, prepare
from tests.support.facts import proves


async def test_a_sample_tells_what_waits_is_in_flight_and_delayed(elasticmq: ElasticMq) -> None:
    elasticmq.make("counts-orders", VisibilityTimeout="45")
    elasticmq.send("counts-orders", 5)
    elasticmq.send("counts-orders", 1, delay=900)
    elasticmq.receive("counts-orders", 2)
    sample = (await read_once(broker(elasticmq.url, "counts-")))["counts-orders"]
    assert (sample.depth, sample.in_flight, sample.delayed) == (3, 2, 1)
    assert sample.visibility_timeout_seconds == 45.0
    assert (sample.queue_type, sample.in_flight_limit, sample.staleness_seconds) == ("standard", 120_000, 60.0)


async def test_every_null_has_its_reason(elasticmq: ElasticMq) -> None:
    elasticmq.make("reason-a")
    sample = (await read_once(broker(elasticmq.url, "reason-")))["reason-a"]
    assert reasons_missing(sample) == []
    assert "CloudWatch" in sample.unavailable["oldest_age_seconds"]


async def test_queues_that_a_pattern_excludes_are_left_out(elasticmq: ElasticMq) -> None:
    for name in ("left-orders", "left-tmp-1", "left-tmp-2"):
        elasticmq.make(name)
    assert set(await read_once(broker(elasticmq.url, "left-", exclude=["left-tmp-*"]))) == {"left-orders"}


def test_the_region_is_the_environments_where_none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    told = [broker("https://sqs.example").region]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    told.append(broker("https://sqs.example").region)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    told += [broker("https://sqs.example").region, broker("https://sqs.example", region="eu-north-1").region]
    assert told == ["us-east-1", "eu-west-1", "eu-central-1", "eu-north-1"]


async def test_a_fifo_queue_has_its_own_limit(elasticmq: ElasticMq) -> None:
    elasticmq.make("kinds-a.fifo", FifoQueue="true")
    elasticmq.send("kinds-a.fifo", 3)
    sample = (await read_once(broker(elasticmq.url, "kinds-", fifo_in_flight_limit=20_000)))["kinds-a.fifo"]
    assert (sample.queue_type, sample.in_flight_limit, sample.depth) == ("fifo", 20_000, 3)


@proves("sqs", "dead letters", "found by redrive policies")
async def test_a_dead_letter_queue_names_the_queues_that_it_serves(elasticmq: ElasticMq) -> None:
    elasticmq.make("served-dead")
    policy = elasticmq.redrive_to("served-dead")
    elasticmq.make("served-b", RedrivePolicy=policy)
    elasticmq.make("served-a", RedrivePolicy=policy)
    samples = await read_once(broker(elasticmq.url, "served-"))
    assert samples["served-dead"].dead_letter_for == "served-a,served-b"
    assert samples["served-a"].dead_letter_for is None


async def test_new_queues_appear_and_deleted_ones_are_left_out(elasticmq: ElasticMq) -> None:
    elasticmq.make("change-old")
    async with opened(broker(elasticmq.url, "change-")) as source:
        assert set(by_queue(await source.read())) == {"change-old"}
        elasticmq.make("change-new")
        assert set(by_queue(await source.read())) == {"change-old", "change-new"}
        elasticmq.ask("DeleteQueue", QueueUrl=elasticmq.address("change-old"))
        assert set(by_queue(await source.read())) == {"change-new"}


async def test_a_queue_deleted_between_listing_and_reading_is_left_out(elasticmq: ElasticMq) -> None:
    elasticmq.make("between-a")
    elasticmq.make("between-b")
    async with opened(broker(elasticmq.url, "between-", list_interval=3600)) as source:
        elasticmq.ask("DeleteQueue", QueueUrl=elasticmq.address("between-b"))
        assert set(by_queue(await source.read())) == {"between-a"}


async def test_no_queue_is_no_sample(elasticmq: ElasticMq) -> None:
    assert await read_once(broker(elasticmq.url, "nobody-made-this")) == {}


@pytest.mark.deep  # as in the contract of all
async def test_a_server_that_goes_away_is_a_lost_connection_and_comes_back(own_elasticmq: ElasticMq) -> None:
    own_elasticmq.make("orders")
    source = SqsSource(broker(own_elasticmq.url, list_interval=3600))
    await source.open()
    assert len(await source.read()) == 1
    own_elasticmq.kill()
    with pytest.raises(ConnectionLost):
        await source.read()
    with pytest.raises(ConnectionLost):
        await source.open()
    own_elasticmq.start()
    own_elasticmq.make("orders")
    await source.open()
    assert [sample.depth for sample in await source.read()] == [0]
    await source.close()
    await source.close()


async def test_samples_arrive_in_the_lake_at_the_brokers_own_interval(elasticmq: ElasticMq, lake: Lake) -> None:
    prepare(elasticmq)
    settings = CollectSettings.model_validate({"brokers": [elasticmq.settings(prefix="prepared-", sample_interval=7)]})
    writer = Writer(lake)
    (sampler,) = factory("sqs")(settings.brokers[0], Context(settings, writer, SelfMetrics(), Board()))
    assert (sampler.name, sampler.interval) == ("sqs-sampler:mq", 7.0)
    await sampler.open()
    await sampler.step()
    await sampler.close()
    writer.close()
    rows = {row["queue"]: row for row in lake.read("queue_samples").to_pylist()}
    assert {queue: row["depth"] for queue, row in rows.items()} == {
        "prepared-dead": 1,
        "prepared-orders": 3,
        "prepared-invoices.fifo": 2,
    }
    assert rows["prepared-dead"]["dead_letter_for"] == "prepared-orders"
    assert dict(rows["prepared-orders"]["unavailable"])["consumers"]
