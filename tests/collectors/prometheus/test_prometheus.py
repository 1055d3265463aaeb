"""Pages of metrics become the samples that they should: one of a real Artemis, three written after documentation."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from brokers.errors import ConnectionLost
from brokers.tenants import parse
from collectors.prometheus.parse import NotMetrics, samples
from collectors.prometheus.recipes import RECIPES
from collectors.prometheus.settings import PrometheusBroker
from collectors.prometheus.source import PrometheusSource
from collectors.samples import METRIC_NAMES, Sample, TenantShare
from tests.support.exposition import RECORDED, Exposition
from tests.support.facts import Note, measured, proves

NOW = 1_800_000_000_000_000
#: Recipe → (queue, subscriber) → (depth, in flight, delayed, age, consumers, published, acknowledged, dead letters of).
EXPECTED: dict[str, dict[tuple[str, str | None], tuple[Any, ...]]] = {
    "pulsar": {
        ("persistent://shop/eu/orders", "billing"): (6, 5, 1, None, 2, None, None, None),
        ("persistent://shop/eu/mail", "sender"): (0, 0, 0, 0.0, None, None, None, None),
    },
    "artemis": {
        ("orders", None): (3, 2, 3, None, 1, 13, 4, None),
        ("DLQ", None): (1, 0, 0, None, 0, 1, 0, "orders"),
    },
    "pubsub": {
        ("orders-billing", None): (40, 2, None, 75.0, None, None, None, None),
        ("orders-dead", None): (None, None, None, 3600.0, None, None, None, "orders-billing"),
    },
    "servicebus": {
        ("orders", None): (12, None, 4, None, None, None, None, None),
        ("mail", None): (None, None, 0, None, None, None, None, None),
        ("orders/$deadletterqueue", None): (5, None, None, None, None, None, None, "orders"),
    },
}


def told(sample: Sample) -> tuple[Any, ...]:
    unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None} - {"dead_letter_for"}
    assert set(sample.unavailable) == unknown and all(sample.unavailable.values())
    return (
        *(sample.depth, sample.in_flight, sample.delayed, sample.oldest_age_seconds, sample.consumers),
        *(sample.published_total, sample.acked_total, sample.dead_letter_for),
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_page_becomes_the_samples_that_it_should(recipe: str, note: Note) -> None:
    page = (RECORDED / f"{recipe}.txt").read_text()
    serves = {"DLQ": "orders", "orders-dead": "orders-billing"}
    found = samples(page, RECIPES[recipe], NOW, dead_letters=serves, staleness=60.0)
    assert {(one.queue, one.subscriber): told(one) for one in found} == EXPECTED[recipe]
    assert {(one.sampled_at, one.staleness_seconds) for one in found} == {(NOW, 60.0)}
    note(*measured(recipe, [one for one in found if one.depth != 0]))  # an empty queue's age is known to be none
    if any(one.dead_letter_for for one in found):
        note((recipe, "dead letters", "by its metric" if RECIPES[recipe].dead else "by the settings"))


@proves("artemis", "cluster shapes", "a page that Artemis 2.44 printed")
def test_the_messages_that_a_real_artemis_was_sent_add_up() -> None:
    """recording/ArtemisPage.java says what became of each: 13 were sent, of which one was given up."""
    page = (RECORDED / "artemis.txt").read_text()
    dead, orders = sorted(samples(page, RECIPES["artemis"], NOW), key=lambda one: one.queue)
    held = (orders.depth or 0) + (orders.in_flight or 0) + (orders.delayed or 0)
    assert orders.published_total == 13 == held + (orders.acked_total or 0) + (dead.depth or 0)


@pytest.mark.parametrize(
    ("recipe", "rule", "chosen", "share"),
    [
        ("pulsar", "queue:persistent://{tenant}/*", "*/orders", TenantShare("shop", 6, 5, 1, None)),
        ("artemis", "queue:{tenant}", "orders", TenantShare("orders", 3, 2, 3, None)),
        ("pubsub", "queue:*-{tenant}", "*-billing", TenantShare("billing", 40, 2, None, 75.0)),
        ("servicebus", "queue:{tenant}", "orders", TenantShare("orders", 12, None, 4, None)),
    ],
)
def test_a_queue_whose_name_says_whose_it_is_is_theirs_as_a_whole_and_patterns_choose(
    recipe: str, rule: str, chosen: str, share: TenantShare, note: Note
) -> None:
    page = (RECORDED / f"{recipe}.txt").read_text()
    orders, *_ = samples(page, RECIPES[recipe], NOW, queues=[chosen], rules=[parse(rule)])
    assert orders.tenants == (share,)
    note((recipe, "per tenant", "by the queue's name"))


def test_a_metric_by_another_exporters_name_counts_and_by_both_counts_once() -> None:
    name = "subscription_num_outstanding_messages"
    page = f'pubsub_googleapis_com:{name}{{subscription_id="a"}} 7\n'
    (one,) = samples(page, RECIPES["pubsub"], NOW)
    assert one.in_flight == 7
    page += f'stackdriver_pubsub_subscription_pubsub_googleapis_com_{name}{{subscription_id="a"}} 5\n'
    (one,) = samples(page, RECIPES["pubsub"], NOW)
    assert one.in_flight == 5


def test_what_is_no_page_of_metrics_is_said_and_what_is_no_number_is_unknown() -> None:
    with pytest.raises(NotMetrics, match="no page of metrics"):
        samples("<html>{{{ sign in", RECIPES["artemis"], NOW)
    page = 'artemis_message_count{queue="a"} -1\nartemis_message_count{address="x"} 3\n'
    page += 'artemis_consumer_count{queue="a"} 1\n'
    (one,) = samples(page, RECIPES["artemis"], NOW)
    assert (one.queue, one.depth, one.consumers) == ("a", None, 1)
    assert samples("", RECIPES["artemis"], NOW) == []


async def test_an_endpoint_that_is_away_or_not_there_is_a_lost_connection(tmp_path: Any) -> None:
    with Exposition(tmp_path, RECORDED / "artemis.txt") as server:
        settings = {"kind": "prometheus", "name": "mq", "recipe": "artemis"}
        source = PrometheusSource(PrometheusBroker.model_validate({**settings, "url": server.url}))
        await source.open()
        assert {one.queue for one in await source.read()} == {"orders", "DLQ"}
        absent = PrometheusSource(PrometheusBroker.model_validate({**settings, "url": f"{server.url}.not"}))
        await absent.open()
        with pytest.raises(ConnectionLost, match="404"):
            await absent.read()
        await absent.close()
    with pytest.raises(ConnectionLost, match="cannot be read"):
        await source.read()
    await source.close()
    with pytest.raises(ConnectionLost):
        await source.read()
    with pytest.raises(ValidationError, match="http"):
        PrometheusBroker.model_validate({**settings, "url": "redis://x"})
