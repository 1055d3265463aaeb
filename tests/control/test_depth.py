"""Glances: brokers asked how many messages wait, and what entitlements make of that. Real servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.control import build
from alerts.control.board import Congestion
from alerts.control.depth.base import Depth, Unknown
from alerts.control.depth.cadence import (
    CALM_SECONDS,
    HURRIED_SECONDS,
    REST_SECONDS,
    Cadence,
)
from alerts.control.depth.looker import Looker
from alerts.control.depth.metrics import families
from alerts.control.depth.registry import KINDS, make
from alerts.control.settings import ControlSettings
from lake.clock import Clock
from lake.errors import SojournError
from tests.collectors.support import api, connect
from tests.support.kafka import KafkaServer
from tests.support.nats import NatsServer
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

Fill = Callable[[int, int], None]


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def fill_nats(url: str, stream: str, messages: int, taken: int, consumers: tuple[str, ...] = ("work",)) -> None:
    """A work queue of ``messages``, of which ``taken`` are in flight."""

    async def work() -> None:
        connection = await connect(url)
        retention = "workqueue" if len(consumers) < 2 else "limits"
        body = {"name": stream, "subjects": [f"{stream}.*"], "retention": retention, "storage": "memory"}
        await api(connection, f"STREAM.CREATE.{stream}", body)
        for name in consumers:
            config = {"durable_name": name, "ack_policy": "explicit"}
            await api(connection, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
        jetstream = connection.jetstream()
        for number in range(messages):
            await jetstream.publish(f"{stream}.a", str(number).encode())
        if taken:
            queue = await jetstream.pull_subscribe_bind(consumers[0], stream)
            assert len(await queue.fetch(taken)) == taken
        await connection.close()

    asyncio.run(work())


def nats_depth(url: str, **more: Any) -> Depth:
    depth = make(KINDS.chosen({"kind": "nats", "name": "nats", "url": url, "timeout": 5} | more))
    depth.open()
    return depth


def test_nats_tells_what_no_consumer_was_given(nats: NatsServer) -> None:
    fill_nats(nats.url, "ORDERS", 30, 12)
    fill_nats(nats.url, "NEWS", 9, 4, ("quick", "idle"))
    fill_nats(nats.url, "ALONE", 5, 0, ())
    depth = nats_depth(nats.url)
    assert depth.waiting("ORDERS") == 18
    assert depth.waiting("NEWS") == 9, "the one that is the furthest behind"
    for queue in ("ALONE", "NOT-THERE", "a.b", ""):
        with pytest.raises(Unknown):
            depth.waiting(queue)
    depth.close()
    depth = nats_depth(nats.url, consumer="quick")
    assert depth.waiting("NEWS") == 5
    with pytest.raises(Unknown):
        depth.waiting("ORDERS")
    depth.close()
    with pytest.raises(SojournError):
        depth.waiting("NEWS")


def test_redis_tells_how_long_a_list_is_and_how_far_a_group_is_behind(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, server.client() as client:
        client.rpush("orders", *range(7))
        client.zadd("later", {"a": 1, "b": 2})
        for number in range(5):
            client.xadd("news", {"n": number})
        client.xgroup_create("news", "g", id="0")
        client.xreadgroup("g", "c", {"news": ">"}, count=2)
        client.set("text", "no queue")
        depth = make(KINDS.chosen({"kind": "redis", "name": "redis", "url": server.url, "timeout": 5}))
        depth.open()
        assert [depth.waiting(key) for key in ("orders", "later", "news")] == [7, 2, 3]
        for key in ("text", "never-seen"):
            with pytest.raises(Unknown):
                depth.waiting(key)
        client.delete("orders")
        assert depth.waiting("orders") == 0, "Redis deletes a list that is empty"
        depth.close()


def test_rabbitmq_tells_what_is_ready_of_queues_that_somebody_consumes(tmp_path: Path) -> None:
    with RabbitServer(tmp_path) as server, server.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("orders", "alone"):
            channel.queue_declare(queue, durable=True)
            for number in range(9):
                channel.basic_publish("", queue, str(number).encode())
        channel.basic_qos(prefetch_count=4)
        channel.basic_consume("orders", lambda *_: None)
        given = {"kind": "rabbitmq", "name": "mq", "url": server.amqp_url, "timeout": 10}
        depth = make(KINDS.chosen(given))
        depth.open()
        try:
            wait_until(lambda: depth.waiting("orders") == 5, "four to be delivered")
            for queue in ("alone", "not-there"):
                with pytest.raises(Unknown):
                    depth.waiting(queue)
            assert depth.waiting("orders") == 5, "the question before ended the channel"
        finally:
            depth.close()
        with pytest.raises(SojournError):
            depth.waiting("orders")
    with pytest.raises(SojournError):
        depth.open()


def test_kafka_tells_how_far_a_group_is_behind_over_all_partitions(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        server.make_topics("orders", "bills", partitions=2)
        for partition, number in ((0, 30), (1, 12)):
            server.produce("orders", number, partition=partition)
        server.commit("work", "orders", {0: 21, 1: 12})
        server.commit("work", "bills", {0: 0})
        given = {"kind": "kafka", "name": "kafka", "bootstrap": server.bootstrap, "group": "work"}
        depth = make(KINDS.chosen(given | {"timeout": 20, "timeout_seconds": 20}))
        depth.open()
        try:
            assert depth.waiting("orders") == 9
            server.produce("orders", 4, partition=1)
            wait_until(lambda: depth.waiting("orders") == 13, "the end to be told")
            for topic in ("bills", "not-there"):
                with pytest.raises(Unknown):
                    depth.waiting(topic)
        finally:
            depth.close()
        with pytest.raises(SojournError):
            depth.waiting("orders")


def test_hurried_queues_are_asked_ten_times_a_second_calm_ones_less_and_never_more_than_the_bound() -> None:
    looked = [(False, 10.0, 1), (False, 10.0, 4), (True, 10.0, 1), (True, 10.0, 5), (True, 4.0, 3)]
    for hurried, per_second, queues in looked:
        names = [f"q{number}" for number in range(queues)]
        cadence, now, asked = Cadence(names, per_second), 0.0, dict.fromkeys(names, 0)
        while True:
            name, pause = cadence.next(now, lambda _, hurried=hurried: hurried)  # type: ignore[misc]
            now += pause
            if now >= 10:
                break
            cadence.asked(name, now)
            asked[name] += 1
        every = HURRIED_SECONDS if hurried else CALM_SECONDS
        wanted = min(queues / every, per_second) * 10
        assert sum(asked.values()) == pytest.approx(wanted, abs=2) and sum(asked.values()) <= 10 * 10 + 1
        assert max(asked.values()) - min(asked.values()) <= 1
    cadence.rest(now)
    assert cadence.next(now, lambda _: True)[1] == REST_SECONDS


class Heard:
    """Stands where the entitler does."""

    def __init__(self, *places: tuple[str, str]) -> None:
        self.places, self.glances = list(places), list[tuple[tuple[str, str], float]]()
        self.came = threading.Event()

    def hurried(self, place: tuple[str, str]) -> bool:
        return True

    def counts(self, place: tuple[str, str], now: datetime) -> bool:
        return False

    def glance(self, place: tuple[str, str], waiting: float, now: datetime) -> None:
        self.glances.append((place, waiting))


def test_a_broker_that_goes_away_tells_nothing_until_it_is_back(tmp_path: Path) -> None:
    heard = Heard(("nats", "orders"), ("nats", "no-such"), ("other", "bills"))
    with NatsServer(tmp_path) as server:
        fill_nats(server.url, "ORDERS", 4, 0)
        given = {"kind": "nats", "name": "nats", "url": server.url, "names": {"orders": "ORDERS"}, "timeout": 5}
        looker = Looker(KINDS.chosen(given), heard, Clock())  # type: ignore[arg-type]
        looker.start()
        try:
            wait_until(lambda: heard.glances, "a glance")
            wait_until(lambda: looker.asked["unknown"], "the other queue to be asked for")
            server.kill()
            wait_until(lambda: looker.asked["failed"], "the failure to be noted")
            before = len(heard.glances)
            server.start()
            fill_nats(server.url, "ORDERS", 6, 0)
            wait_until(lambda: (("nats", "orders"), 6.0) in heard.glances[before:], "it to tell again")
            assert {place for place, _ in heard.glances} == {("nats", "orders")}, "unknown is not zero"
            found = {name: samples for name, _, _, samples in families([looker], heard, Clock().now())}  # type: ignore[arg-type]
            assert found["depth_messages"] == [({"broker": "nats", "queue": "orders"}, 6.0)]
            assert len(found["depth_counts"]) == 2
        finally:
            looker.stop()


def test_without_entitlements_nothing_is_asked(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        settings = ControlSettings.model_validate({"depth": [{"kind": "nats", "name": "nats", "url": server.url}]})
        control = build(settings, tmp_path / "lake", tmp_path / "state")
        assert not any(thread.name.startswith("glances-") for thread in threading.enumerate())
        assert list(families(control.lookers, control.entitler, datetime.now(UTC))) == []
        control.close()


def test_two_of_one_broker_and_unknown_kinds_are_refused() -> None:
    one = {"kind": "nats", "name": "nats", "url": "nats://127.0.0.1:1"}
    for depth in ([one, one], [one | {"kind": "pigeon"}], [one | {"questions_per_second": 11}]):
        with pytest.raises(ValidationError):
            ControlSettings.model_validate({"depth": depth})


class Glanced:
    """A control part over a world whose broker is asked as well."""

    def __init__(self, world: Any, folder: Path) -> None:
        settings = {"policies": [], "entitlements": [{"broker": "nats", "queue": "orders"}]}
        clock = Clock(lambda: world.now, lambda: world.now.timestamp())
        self.world = world
        self.control = build(ControlSettings.model_validate(settings), folder / "lake", folder / "state", clock=clock)

    def run(self, seconds: float, *, waiting: float | None) -> None:
        entitler = self.control.entitler
        for tenth in range(1, round(seconds * 10) + 1):
            self.world.advance(0.1)
            if waiting is not None:
                entitler.glance(("nats", "orders"), waiting, self.world.now)
            if tenth % 10 == 0:
                entitler.step(self.world.now, self.world.query)

    @property
    def congested(self) -> list[Congestion]:
        items = self.control.board.snapshot.items.values()
        return [item for item in items if isinstance(item, Congestion) and item.valid_until > self.world.now]


@pytest.fixture
def glanced(world: Any, tmp_path: Path) -> Iterator[Glanced]:
    found = Glanced(world, tmp_path)
    world.calm()
    yield found
    found.control.close()


def test_a_wait_that_the_broker_tells_binds_before_metrics_do_and_ends_unless_they_confirm_it(glanced: Glanced) -> None:
    glanced.run(4, waiting=4)
    assert glanced.congested == []
    glanced.run(0.2, waiting=40)
    (congestion,) = glanced.congested
    assert "not known yet" in congestion.reason
    glanced.run(5, waiting=40)
    assert glanced.congested == [], "metrics tell of nobody who floods it"
    glanced.run(20, waiting=40)
    assert glanced.congested == [], "nor is it presumed again at once"


def test_what_metrics_confirm_stays_and_the_depth_drives_what_the_flood_may_send(glanced: Glanced) -> None:
    glanced.run(4, waiting=4)
    glanced.world.noisy_rate, glanced.world.backlog = 120, 60
    glanced.run(2, waiting=60)
    assert glanced.congested

    def noisy() -> float:
        items = glanced.control.board.snapshot.items
        return items["entitled", "nats", "orders", "t0"].rate  # type: ignore[union-attr]

    glanced.run(0.1, waiting=0)
    short = noisy()
    glanced.run(0.1, waiting=60)
    assert noisy() < short / 2, "within a tenth of a second"


@pytest.mark.parametrize(("sends", "stays"), [(45, True), (10, False)], ids=["all that it may", "its usual"])
def test_a_flood_that_was_held_from_its_first_moments_on_is_confirmed_by_what_it_sends(
    glanced: Glanced, sends: int, stays: bool
) -> None:
    """Held to its share it never sends more than that: let go, all that its producers held would come at once."""
    glanced.world.finished = 15
    glanced.run(8, waiting=4)
    glanced.world.noisy_rate = sends
    glanced.run(6, waiting=40)
    assert bool(glanced.congested) == stays
    law = glanced.control.entitler._queues["nats", "orders"].law
    assert law.state.held == (frozenset({"t0"}) if stays else frozenset())


def test_a_flood_is_presumed_until_metrics_show_what_came_since(glanced: Glanced) -> None:
    """Where they come two seconds late, none of them tells of a flood that began two seconds ago."""
    glanced.world.finished, glanced.world.lag = 15, timedelta(seconds=2)
    glanced.run(8, waiting=4)
    glanced.run(2.5, waiting=40)
    assert glanced.congested, "metrics tell of what was before"
    glanced.world.noisy_rate = 45
    glanced.run(2, waiting=40)
    assert glanced.control.entitler._queues["nats", "orders"].law.state.held == {"t0"}
    glanced.run(6, waiting=40)
    assert glanced.congested


def test_nothing_is_presumed_for_long_though_metrics_stand_still(glanced: Glanced) -> None:
    glanced.world.finished = 15
    glanced.run(8, waiting=4)
    glanced.world.lag += timedelta(seconds=10)
    glanced.run(4.9, waiting=40)
    assert glanced.congested, "metrics tell of what was before"
    glanced.run(0.3, waiting=40)
    assert glanced.congested == []


def test_a_flood_out_of_nothing_need_not_go_on_to_rise_while_it_is_held(glanced: Glanced) -> None:
    """Who is new did lately what it did first, before it was held: since it may send less, less comes."""
    glanced.world.finished = 15
    glanced.run(8, waiting=4)
    glanced.run(0.5, waiting=40)
    for sends in (20, 20, 20):
        glanced.world.more = {"new": sends}
        glanced.control.entitler.step(glanced.world.now, glanced.world.query)
        glanced.run(0.5, waiting=40)
    state = glanced.control.entitler._queues["nats", "orders"].law.state
    assert state.held == {"new"} and state.presumed_since is None


@pytest.mark.parametrize(("sends", "held"), [(4, True), (1, False)], ids=["what it might", "less than half"])
def test_who_sent_all_that_it_might_then_stays_held_though_it_may_send_more_now(
    glanced: Glanced, sends: int, held: bool
) -> None:
    """Metrics tell of a second ago; let go, it would send all at once what its producers held meanwhile."""
    glanced.run(4, waiting=4)
    glanced.world.noisy_rate, glanced.world.backlog = 120, 60
    glanced.run(3, waiting=60)
    glanced.run(0.6, waiting=0)
    glanced.world.noisy_rate, glanced.world.backlog = sends, 10
    glanced.control.entitler.step(glanced.world.now, glanced.world.query)
    law = glanced.control.entitler._queues["nats", "orders"].law
    assert ("t0" in law.state.held) == held


def test_who_is_held_and_sends_nothing_for_a_moment_is_not_taken_for_gone(glanced: Glanced) -> None:
    glanced.run(4, waiting=4)
    glanced.world.noisy_rate, glanced.world.backlog = 120, 60
    glanced.run(3, waiting=60)
    glanced.world.noisy_rate, glanced.world.backlog = 0, 10
    law = glanced.control.entitler._queues["nats", "orders"].law
    glanced.run(2, waiting=10)
    assert law.rates["t0"] < 60, "what the others leave, not what one gets who was never seen"
    assert "t0" in law.state.held
    glanced.run(4, waiting=10)
    assert "t0" not in law.rates, "for so long none of it came"


@pytest.mark.parametrize("waiting", [None, 4000.0], ids=["no glances", "of another queue"])
def test_what_metrics_do_not_confirm_is_not_believed(glanced: Glanced, waiting: float | None) -> None:
    glanced.run(4, waiting=waiting)
    glanced.run(0.3, waiting=40)
    assert glanced.congested == []
    assert not glanced.control.entitler.counts(("nats", "orders"), glanced.world.now)


def test_without_fresh_metrics_glances_bind_nobody(glanced: Glanced) -> None:
    glanced.run(4, waiting=4)
    glanced.world.fails = SojournError("no lake")
    glanced.run(6, waiting=4)
    glanced.run(1, waiting=40)
    assert glanced.congested == []


def test_glances_that_cease_leave_it_to_metrics_and_to_the_lease(glanced: Glanced) -> None:
    glanced.run(4, waiting=4)
    glanced.run(0.2, waiting=40)
    assert glanced.congested
    glanced.world.fails = SojournError("no lake")
    glanced.world.advance(0.1)
    glanced.run(5, waiting=None)
    assert glanced.congested, "its lease runs on"
    glanced.run(timedelta(seconds=8).total_seconds(), waiting=None)
    assert glanced.congested == []
