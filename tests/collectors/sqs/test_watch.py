"""CloudWatch beside the sampler: a local server speaks its documented protocol; the queues are a real server's."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from collectors.samples import Sample
from collectors.sqs.source import SqsSource
from tests.collectors.sqs.support import action, broker, by_queue, error, opened, reasons_missing
from tests.support.elasticmq import ElasticMq
from tests.support.faulty import Fault, FaultyHttp, Hang, Reply, Request

TOLD = ("oldest_age_seconds", "empty_polls_total", "published_total", "delivered_total", "acked_total")


def tells(**values: float) -> Any:
    """A rule that answers every query with one value of the last minute, by metric; nothing for the rest."""

    def rule(request: Request) -> Fault:
        assert action(request) == "GetMetricData"
        minute, found = int(time.time()) // 60 * 60, []
        for query in json.loads(request.body)["MetricDataQueries"]:
            value = values.get(query["MetricStat"]["Metric"]["MetricName"])
            points: dict[str, Any] = {"Timestamps": [], "Values": []}
            if value is not None:
                points = {"Timestamps": [float(minute)], "Values": [value]}
            found.append({"Id": query["Id"], "StatusCode": "Complete", **points})
        return Reply(200, json.dumps({"MetricDataResults": found, "Messages": []}).encode())

    return rule


async def until(source: SqsSource, is_it: Any) -> dict[str, Sample]:
    """Read until ``is_it`` holds for the samples."""
    for _ in range(100):
        samples = by_queue(list(await source.read()))
        if is_it(samples):
            return samples
        await asyncio.sleep(0.05)
    raise AssertionError(f"it never came: {samples}")


def settings(elasticmq: ElasticMq, proxy: FaultyHttp, **changes: Any) -> Any:
    told = {"enabled": True, "endpoint": proxy.url, "interval": 1.0} | changes
    return broker(elasticmq.url, "watch-", cloudwatch=told, list_interval=3600)


async def test_what_cloudwatch_tells_is_in_the_samples(elasticmq: ElasticMq) -> None:
    elasticmq.make("watch-orders")
    rule = tells(ApproximateAgeOfOldestMessage=61.0, NumberOfEmptyReceives=9.0, NumberOfMessagesSent=4.0)
    with FaultyHttp(rule=rule) as proxy:
        async with opened(settings(elasticmq, proxy)) as source:
            seen = await until(source, lambda all: all["watch-orders"].oldest_age_seconds is not None)
        sample = seen["watch-orders"]
        assert (sample.oldest_age_seconds, sample.empty_polls_total, sample.published_total) == (61.0, 9, 4)
        assert sample.acked_total is None and reasons_missing(sample) == []
        assert "Credential=AKIATEST/" in proxy.seen[0].headers["authorization"]
        assert "/monitoring/aws4_request" in proxy.seen[0].headers["authorization"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (error("AccessDenied", 403), "CloudWatch: AccessDenied"),
        (Reply(200, b"<html/>"), "CloudWatch: the answer is not of the JSON protocol"),
        (Reply(404), "CloudWatch: HTTP status 404"),
    ],
)
async def test_without_cloudwatch_the_queues_are_read_and_its_part_is_unknown(
    elasticmq: ElasticMq, fault: Reply, reason: str
) -> None:
    elasticmq.make("watch-orders")
    with FaultyHttp(rule=lambda request: fault) as proxy:
        async with opened(settings(elasticmq, proxy)) as source:
            seen = await until(source, lambda all: all["watch-orders"].unavailable["acked_total"] == reason)
    sample = seen["watch-orders"]
    assert sample.depth == 0
    assert [getattr(sample, name) for name in TOLD] == [None] * 5
    assert {sample.unavailable[name] for name in TOLD} == {reason}


async def test_a_cloudwatch_that_hangs_delays_no_sample(elasticmq: ElasticMq) -> None:
    elasticmq.make("watch-orders")
    with FaultyHttp(rule=lambda request: Hang()) as proxy:
        async with opened(settings(elasticmq, proxy)) as source:
            for _ in range(3):
                sample = by_queue(list(await source.read()))["watch-orders"]
                assert sample.depth == 0 and sample.unavailable["acked_total"] == "CloudWatch was not read yet"


async def test_what_is_refused_later_is_unknown_at_once(elasticmq: ElasticMq) -> None:
    elasticmq.make("watch-orders")
    with FaultyHttp(rule=tells(ApproximateAgeOfOldestMessage=5.0)) as proxy:
        async with opened(settings(elasticmq, proxy)) as source:
            await until(source, lambda all: all["watch-orders"].oldest_age_seconds == 5.0)
            proxy.rule = lambda request: error("AccessDenied", 403)
            await until(source, lambda all: all["watch-orders"].oldest_age_seconds is None)


async def test_only_the_metrics_that_are_named_are_asked_for(elasticmq: ElasticMq) -> None:
    elasticmq.make("watch-orders")
    with FaultyHttp(rule=tells(ApproximateAgeOfOldestMessage=5.0)) as proxy:
        async with opened(settings(elasticmq, proxy, metrics=["age"])) as source:
            seen = await until(source, lambda all: all["watch-orders"].oldest_age_seconds == 5.0)
        names = {
            query["MetricStat"]["Metric"]["MetricName"]
            for request in proxy.seen
            for query in json.loads(request.body)["MetricDataQueries"]
        }
    assert names == {"ApproximateAgeOfOldestMessage"}
    assert "not among the metrics" in seen["watch-orders"].unavailable["acked_total"]


async def test_a_connection_that_is_opened_again_counts_no_minute_twice(elasticmq: ElasticMq) -> None:
    elasticmq.make("watch-orders")
    with FaultyHttp(rule=tells(NumberOfMessagesSent=4.0)) as proxy:
        async with opened(settings(elasticmq, proxy)) as source:
            await until(source, lambda all: all["watch-orders"].published_total is not None)
            proxy.rule = tells()
            await source.open()
            sample = by_queue(list(await source.read()))["watch-orders"]
            assert sample.published_total in (None, 4)
            proxy.rule = tells(NumberOfMessagesDeleted=1.0)
            seen = await until(source, lambda all: all["watch-orders"].acked_total is not None)
            assert seen["watch-orders"].published_total == 4
