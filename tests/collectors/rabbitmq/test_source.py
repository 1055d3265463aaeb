"""The sampler on a real node: what RabbitMQ tells is told right, what it does not tell is null with a reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from uuid import NAMESPACE_OID, uuid3

import pika
import pytest

from brokers.errors import ConnectionLost
from collectors.rabbitmq.parse import NOT_COUNTED, PUSHED
from tests.collectors.rabbitmq.conftest import Make
from tests.collectors.rabbitmq.reading import opened, read, read_until
from tests.support.facts import proves
from tests.support.rabbitmq import RabbitServer

BOTH = pytest.mark.parametrize("api", ["management", "prometheus"])


@pytest.fixture
def channel(rabbit: RabbitServer) -> Iterator[Any]:
    """An application's channel with confirms."""
    connection = rabbit.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def publish(channel: Any, queue: str, number: int, **properties: Any) -> None:
    for _ in range(number):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2, **properties))


async def test_depth_flight_prefetch_and_totals_are_the_brokers(channel: Any, broker: Make) -> None:
    channel.queue_declare("work", durable=True)
    publish(channel, "work", 12, timestamp=int(time.time()) - 100)
    channel.basic_qos(prefetch_count=5)
    taken = [next(messages)[0] for messages in [channel.consume("work")] for _ in range(3)]
    channel.basic_ack(taken[0].delivery_tag)
    channel.basic_nack(taken[1].delivery_tag, requeue=True)
    channel.connection.process_data_events(0.2)
    async with opened(broker(api="management")) as source:
        # A node tells of depth, totals and prefetch each at a moment of its own.
        found = await read_until(
            source,
            lambda found: (
                found["work"].redelivered_total == 1 and found["work"].prefetch is not None and found["work"].depth
            ),
        )
    work = found["work"]
    assert (work.depth, work.in_flight, work.consumers, work.prefetch) == (6, 5, 1, 5)
    assert (work.published_total, work.acked_total, work.redelivered_total) == (12, 1, 1)
    assert work.delivered_total == 7
    assert (work.queue_type, work.state) == ("classic", "running")
    assert work.oldest_age_seconds is not None and 99 <= work.oldest_age_seconds < 160
    assert work.consumer_utilisation_ratio is not None and 0 <= work.consumer_utilisation_ratio <= 1
    assert work.unavailable["empty_polls_total"] == PUSHED
    assert work.staleness_seconds == 5.3


@BOTH
async def test_each_type_of_queue_tells_what_it_can(channel: Any, broker: Make, api: str) -> None:
    for kind in ("classic", "quorum", "stream"):
        channel.queue_declare(f"of-{kind}", durable=True, arguments={"x-queue-type": kind})
        channel.queue_purge(f"of-{kind}") if kind != "stream" else None
        publish(channel, f"of-{kind}", 4)
    async with opened(broker(api=api)) as source:
        found = await read_until(
            source,
            lambda found: (
                found["of-classic"].depth == found["of-quorum"].depth == 4 and found["of-stream"].in_flight == 0
            ),
        )
    assert [found[f"of-{kind}"].queue_type for kind in ("classic", "quorum", "stream")] == [
        "classic",
        "quorum",
        "stream",
    ]
    assert found["of-stream"].depth is None and "offset" in found["of-stream"].unavailable["depth"]
    assert found["of-classic"].oldest_age_seconds is None
    assert found["of-quorum"].oldest_age_seconds is None


@BOTH
async def test_an_empty_queue_has_depth_and_age_zero_not_unknown(channel: Any, broker: Make, api: str) -> None:
    channel.queue_declare("empty", durable=True)
    async with opened(broker(api=api)) as source:
        found = await read_until(source, lambda found: found["empty"].depth == 0 == found["empty"].in_flight)
    empty = found["empty"]
    assert (empty.in_flight, empty.consumers, empty.oldest_age_seconds) == (0, 0, 0.0)
    assert empty.published_total is None
    if api == "management":
        assert empty.unavailable["published_total"] == NOT_COUNTED


async def test_empty_polls_are_those_of_basic_get(channel: Any, broker: Make) -> None:
    channel.queue_declare("polled", durable=True)
    publish(channel, "polled", 1)
    for _ in range(4):
        channel.basic_get("polled", auto_ack=True)
    async with opened(broker(api="management")) as source:
        found = await read_until(source, lambda found: found["polled"].polls_total == 4)
    assert found["polled"].empty_polls_total == 3


@proves("rabbitmq", "dead letters", "found by arguments, policies and bindings")
async def test_dead_letter_queues_are_found_through_arguments_policies_and_bindings(
    channel: Any, rabbit: RabbitServer, broker: Make
) -> None:
    channel.exchange_declare("dlx", "topic")
    channel.exchange_declare("parked", "fanout")
    declared: dict[str, dict[str, Any]] = {
        "orders": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"},
        "orders.dead": {"x-dead-letter-exchange": "parked"},
        "orders.parked": {},
        "orders.late": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shared.dead"},
        "orders.odd": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shared.dead"},
        "shared.dead": {},
        "mail": {},
        "mail.dead": {},
        "retried": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retried.wait"},
        "retried.wait": {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "retried",
            "x-message-ttl": 60_000,
        },
        "round.1": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round.2"},
        "round.2": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round.1"},
    }
    for queue, arguments in declared.items():
        channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.queue_bind("orders.parked", "parked", "")
    channel.queue_bind("mail.dead", "dlx", "mail.#")
    definition = {"dead-letter-exchange": "dlx", "dead-letter-routing-key": "mail.failed"}
    rabbit.api("PUT", "policies/%2F/mail", {"pattern": "^mail$", "definition": definition, "apply-to": "queues"})
    publish(channel, "orders", 2)
    method, _, _ = channel.basic_get("orders")
    channel.basic_reject(method.delivery_tag, requeue=False)
    async with opened(broker(api="management")) as source:
        found = await read_until(source, lambda found: found["orders.dead"].depth == 1)
        async with opened(broker(api="prometheus")) as cheap:
            same = await read(cheap)
    assert found["orders"].depth == 1
    for read_by in (found, same):
        serves = {queue: read_by[queue].dead_letter_for for queue in declared}
        assert serves == {
            **dict.fromkeys(declared),
            "orders.dead": "orders",
            "orders.parked": "orders",
            "mail.dead": "mail",
            "shared.dead": "orders.late,orders.odd",
            "retried.wait": "retried",
        }
        assert "circle" in read_by["round.1"].unavailable["dead_letter_for"]


@BOTH
async def test_queues_of_other_virtual_hosts_carry_its_name(
    channel: Any, rabbit: RabbitServer, broker: Make, api: str
) -> None:
    rabbit.api("PUT", "vhosts/other")
    rabbit.api("PUT", "permissions/other/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with rabbit.connect("other") as connection:
        connection.channel().queue_declare("same", durable=True)
        connection.channel().queue_declare('a "quoted" name', durable=True)
    channel.queue_declare("same", durable=True)
    channel.queue_declare("other/same", durable=True)
    async with opened(broker(api=api)) as source:
        names = {"same", "other/same", "%2F/other/same", 'other/a "quoted" name'}
        found = await read_until(source, lambda found: all(found[name].depth == 0 for name in names))
    async with opened(broker(api=api, vhosts=["other"])) as source:
        alone = set(await read(source))
    assert names <= set(found)
    assert alone == {"other/same", 'other/a "quoted" name'}


async def test_a_queue_without_statistics_is_unread_and_never_zero(channel: Any, broker: Make) -> None:
    """A quorum queue just declared is listed before it tells its numbers."""
    async with opened(broker(api="management")) as source:
        await read(source)
        channel.queue_declare("young", durable=True, arguments={"x-queue-type": "quorum"})
        publish(channel, "young", 3)
        seen = []
        await read_until(source, lambda found: not seen.append(found["young"].depth) and found["young"].depth == 3)
    assert set(seen) <= {None, 3}


@BOTH
async def test_a_queue_that_is_deleted_is_left_out(channel: Any, broker: Make, api: str) -> None:
    channel.queue_declare("gone", durable=True)
    async with opened(broker(api=api)) as source:
        await read_until(source, lambda found: found["gone"].depth == 0)
        channel.queue_delete("gone")
        source._listed_at = float("-inf")  # as if a minute had passed
        await read_until(source, lambda found: "gone" not in found)


async def test_auto_reads_the_management_api_while_it_is_cheap(channel: Any, broker: Make) -> None:
    channel.queue_declare("auto", durable=True)
    async with opened(broker(), interval=60) as source:
        for _ in range(4):
            await read(source)
        assert source.reads == "management"


async def test_auto_turns_to_metrics_where_the_management_api_is_dear_and_back(channel: Any, broker: Make) -> None:
    channel.queue_declare("auto", durable=True)
    async with opened(broker(), interval=1e-6) as source:  # everything is too expensive for such a cycle
        for _ in range(4):
            found = await read(source)
        assert source.reads == "prometheus"
        assert "auto" in found
        source._interval = 60.0
        await read(source)
        assert source.reads == "prometheus"  # not tried again at once
        source._tried_at = float("-inf")  # as if ten minutes had passed
        await read(source)
        assert source.reads == "management"


async def test_auto_reads_metrics_where_the_management_api_does_not_answer(
    channel: Any, rabbit: RabbitServer, broker: Make
) -> None:
    channel.queue_declare("alone", durable=True)
    async with opened(broker(url="http://127.0.0.1:1")) as source:
        found = await read_until(source, lambda found: found["alone"].depth == 0)
    assert found["alone"].queue_type is None
    for name in ("queue_type", "prefetch"):
        assert "management API cannot be read" in found["alone"].unavailable[name]
    with pytest.raises(ConnectionLost):  # metrics at an address that was only guessed may be another broker's
        async with opened(broker(url="http://127.0.0.1:1", metrics_urls=[])):
            pass


async def test_auto_never_reads_the_metrics_of_another_broker(broker: Make) -> None:
    async with opened(broker(), interval=1e-6) as source:
        source._cluster = "another"
        for _ in range(4):
            await read(source)
        assert source.reads == "management"


async def test_reading_leaves_no_trace_on_the_users_queues(channel: Any, rabbit: RabbitServer, broker: Make) -> None:
    channel.queue_declare("untouched", durable=True)
    publish(channel, "untouched", 2)
    async with opened(broker(api="management")) as source:
        before = set(await read(source))
        for _ in range(5):
            await read(source)
            await asyncio.sleep(0.1)
        # The broker's statistics come in their own time, each figure apart.
        found = await read_until(
            source, lambda found: found["untouched"].published_total == 2 and found["untouched"].depth == 2
        )
    assert set(found) == before
    assert (found["untouched"].delivered_total or 0) == 0
    assert found["untouched"].consumers == 0


async def test_a_queue_of_which_no_node_tells_any_more_is_unknown_in_its_row_while_no_list_says_that_it_is_gone(
    broker: Make, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, arguments in (
        ("parted", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
        ("dead", {}),
    ):
        channel.queue_declare(name, durable=True, arguments=arguments)
    async with opened(broker(api="prometheus")) as source:
        found = await read_until(source, lambda found: found["dead"].dead_letter_for == "parted")
        assert found["dead"].depth == 0
        with monkeypatch.context() as lost:
            lost.setattr("collectors.rabbitmq.source.read_listing", _unreachable)
            for name in ("parted", "dead"):
                channel.queue_delete(name)  # as on a node whose metrics and management cannot be reached
            await read_until(source, lambda found: found["dead"].depth is None)
            await asyncio.sleep(0.3)  # a list is due
            for _ in range(2):
                found = await read(source)
                assert (found["parted"].depth, found["dead"].depth) == (None, None)
                assert "no node's metrics tell of it" in found["parted"].unavailable["depth"]
                assert found["dead"].dead_letter_for == "parted"
        await read_until(source, lambda found: not {"parted", "dead"} & found.keys())


def _unreachable(client: Any) -> Any:
    raise ConnectionLost("it does not answer")


@proves("rabbitmq", "cluster shapes", "several management addresses, one of which is away")
@pytest.mark.parametrize("api", ["management", "prometheus"])
async def test_a_node_that_is_away_is_passed_over_and_excluded_queues_are_left_out(
    broker: Make, rabbit: RabbitServer, api: str
) -> None:
    results = str(uuid3(NAMESPACE_OID, api))  # as kombu names the queue of a process' results
    names = [f"passed-{api}", f"passed-{api}-tmp", f"celery@{api}.celery.pidbox", f"celeryev.{api}", results]
    with rabbit.connect() as connection:
        for name in names:
            connection.channel().queue_declare(name, durable=True)
    chosen = broker(url="http://127.0.0.1:1", servers=[rabbit.url], api=api, exclude=["*-tmp"])
    async with opened(chosen) as source:
        found = await read_until(source, lambda found: names[0] in found)
    assert not found.keys() & set(names[1:])
    with rabbit.connect() as connection:
        for name in names:
            connection.channel().queue_delete(name)
