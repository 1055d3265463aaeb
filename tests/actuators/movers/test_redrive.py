"""Dead letters that go back to their queue on a real broker: a canary, a rate, and what stops it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from actuators.movers.base import TRACE, Trace
from actuators.movers.redrive import Book, Plan, Progress, World, mover_of, run
from collectors.settings import CollectSettings
from lake.errors import SojournError, UserError
from lake.store import Lake
from sojourn.cli import main
from tests.support.nats import NatsServer
from tests.support.redis import RedisServer

PLAN = Plan("r1", "mq", "dead", "orders", rate=5.0, canary=2, canary_seconds=7.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        for number in range(20):
            client.xadd("dead", {"Tenant": "ab"[number % 2], "number": number, "error": "timeout"})
        yield client


@dataclasses.dataclass
class Case:
    """One redrive whose waits run what consumers do meanwhile."""

    world: World
    book: Book
    waits: list[float]
    told: list[Progress]

    def run(self, plan: Plan = PLAN) -> Progress:
        return run(Progress(plan), self.book, self.world, self.told.append)


@pytest.fixture
def case(server: RedisServer, client: Any, tmp_path: Path) -> Callable[..., Case]:
    settings = CollectSettings.model_validate({"brokers": [{"kind": "redis", "name": "mq", "url": server.url}]})

    def make(meanwhile: Callable[[int], bool | None] = lambda _: None, age: Any = lambda: 0.0) -> Case:
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            return bool(meanwhile(len(waits)))

        return Case(World(mover_of(settings.brokers[0]), age, wait), Book(tmp_path / "redrives"), waits, [])

    return make


def numbers(client: Any, key: str) -> list[int]:
    return [int(fields["number"]) for _, fields in client.xrange(key)]


def test_a_canary_goes_first_and_the_rest_at_the_rate_in_order(case: Any, client: Any) -> None:
    one = case()
    ended = one.run()
    assert (ended.state, ended.moved, ended.died) == ("done", 20, 0)
    assert numbers(client, "orders") == list(range(20)) and numbers(client, "dead") == []
    assert one.waits == [7.0, 1.0, 1.0, 1.0, 0.6], "the canary is watched; then 5 a second"
    assert [progress.state for progress in one.told] == ["canary", "running", "done"]
    assert one.book.read("r1") == ended


def test_only_what_the_filter_names_goes_back(case: Any, client: Any) -> None:
    plan = dataclasses.replace(PLAN, tenants=("a",), header=("error", "timeout"))
    assert case().run(plan).moved == 10
    assert numbers(client, "orders") == list(range(0, 20, 2))
    assert case().run(dataclasses.replace(PLAN, id="r2", header=("error", "other"))).moved == 0
    assert case().run(dataclasses.replace(PLAN, id="r3", older_than=3600.0)).moved == 0


def test_it_stops_when_what_went_back_dies_again_and_leaves_that_where_it_is(case: Any, client: Any) -> None:
    def dies(_: int) -> None:
        for id, fields in client.xrange("orders"):
            client.xadd("dead", fields)
            client.xdel("orders", id)

    ended = case(dies).run()
    assert (ended.state, ended.moved, ended.died) == ("stopped", 2, 2)
    assert "dead again" in ended.reason
    assert len(numbers(client, "dead")) == 20
    again = case()
    assert again.run(dataclasses.replace(PLAN, id="r2")).moved == 18, "each is tried once"
    assert numbers(client, "dead") == [0, 1]


def test_it_stops_when_quiet_tenants_wait_longer(case: Any, client: Any) -> None:
    ages = iter([1.0, 12.0, 3.0, 12.0, 13.0])
    ended = case(age=lambda: next(ages)).run()
    assert ended.state == "stopped" and "13.0 s" in ended.reason, "seen twice in a row"
    ended = case(age=lambda: 11.0).run(dataclasses.replace(PLAN, id="r2"))
    assert (ended.state == "stopped" and ended.moved == 0) or ended.moved <= 2


def test_what_was_interrupted_goes_on_with_a_canary(case: Any, client: Any) -> None:
    one = case(lambda number: number == 2)
    ended = one.run()
    assert (ended.state, ended.moved) == ("stopped", 7)
    two = case()
    ended = run(two.book.read("r1"), two.book, two.world, two.told.append)
    assert (ended.state, ended.moved) == ("done", 20)
    assert two.waits[0] == 7.0
    with pytest.raises(UserError, match="is done"):
        run(ended, two.book, two.world, two.told.append)


def test_what_died_again_before_its_cause_was_mended_holds_up_no_second_try(case: Any, client: Any) -> None:
    def dies(_: int) -> None:
        for id, fields in client.xrange("orders"):
            client.xadd("dead", fields)
            client.xdel("orders", id)

    stopped = case(dies).run()
    assert (stopped.state, stopped.moved, stopped.died) == ("stopped", 2, 2)
    two = case()
    ended = run(two.book.read("r1"), two.book, two.world, two.told.append)
    assert (ended.state, ended.moved, ended.died) == ("done", 20, 2)
    assert ended.reason == "20 are back, nothing chosen is left: 2 brought back before (--again takes these, too)"
    third = case().run(dataclasses.replace(PLAN, id="r2", again=True))
    assert (third.state, third.moved, third.reason) == ("done", 2, "2 are back, nothing is left")


def test_what_died_again_is_not_tried_for_ever(case: Any, client: Any) -> None:
    def die(_: int) -> None:
        for id, fields in client.xrange("orders"):
            client.xadd("dead", fields)
            client.xdel("orders", id)

    ended = case(die).run(dataclasses.replace(PLAN, again=True, max_failed=0.5))
    assert ended.state == "stopped" and ended.moved == 2


def test_what_a_spillover_had_put_aside_before_it_died_is_brought_back(case: Any, client: Any) -> None:
    client.delete("dead")
    trace = Trace.now("orders-1", "orders", "1-0", None, {}).text()
    client.xadd("dead", {"Tenant": "a", "number": 1, TRACE: trace})
    assert case().run().moved == 1


def test_the_end_says_why_the_rest_stays(case: Any, client: Any) -> None:
    client.xadd("dead", {"number": 20})
    ended = case().run(dataclasses.replace(PLAN, tenants=("c",)))
    assert ended.reason == "0 are back, nothing chosen is left: 20 of other tenants, 1 naming no tenant"
    ended = case().run(dataclasses.replace(PLAN, id="r2", header=("error", "other")))
    assert ended.reason == "0 are back, nothing chosen is left: 21 without error=other"


def test_a_tenants_field_is_found_whatever_its_case(case: Any, client: Any) -> None:
    client.xadd("dead", {"tenant": "c"})
    assert case().run(dataclasses.replace(PLAN, tenants=("c",))).moved == 1


def test_on_nats_a_tenant_is_found_where_the_collector_finds_it(tmp_path: Path) -> None:
    async def made(url: str) -> None:
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name="DEAD", subjects=["dead.*"])
        await stream.add_stream(name="ORDERS", subjects=["orders.*"])
        for number in range(6):
            await stream.publish(f"dead.{'ab'[number % 2]}", b"%d" % number)
        await client.close()

    with NatsServer(tmp_path / "nats") as server:
        asyncio.run(made(server.url))
        streams = [{"name": "ORDERS", "tenant": ["key:orders.{tenant}", "key:dead.{tenant}"]}]
        settings = {"brokers": [{"kind": "nats", "name": "mq", "url": server.url, "streams": streams}]}
        (broker,) = CollectSettings.model_validate(settings).brokers
        mover = mover_of(broker, subject="orders.{tenant}", queues=("DEAD", "ORDERS"))
        assert mover.move("DEAD", "ORDERS", lambda one: one.tenant == "a", 10).moved == 3
        spill = mover_of(broker, queues=("ORDERS",))
        assert spill.move("ORDERS", "ORDERS-aside", lambda one: one.tenant == "a", 10).moved == 3
        assert spill.count("ORDERS-aside", lambda one: one.tenant == "a", 10) == 3, "as well as aside"
        assert spill.give_back("ORDERS-aside", "ORDERS", lambda one: True, 10).moved == 3, "home again"
        assert mover.waiting("DEAD") == 3


def test_it_can_be_cancelled_from_elsewhere(case: Any, client: Any) -> None:
    one: Case = case(lambda number: one.book.cancel("r1") if number == 2 else None)
    ended = one.run()
    assert (ended.state, ended.moved) == ("cancelled", 7)
    assert len(numbers(client, "dead")) == 13


def test_a_broker_that_fails_leaves_it_to_be_gone_on_with(case: Any, client: Any) -> None:
    def full(_: int) -> None:
        client.execute_command("CONFIG", "SET", "maxmemory", "1")

    one = case(full)
    try:
        with pytest.raises(SojournError, match="OOM"):
            one.run()
    finally:
        client.execute_command("CONFIG", "SET", "maxmemory", "0")
    left = one.book.read("r1")
    assert (left.moved, left.moving, left.over) == (2, 5, False)
    two = case()
    assert run(left, two.book, two.world, two.told.append).moved == 20


@pytest.mark.parametrize("changes", [{"rate": 0.0}, {"rate": -1.0}, {"target": "dead"}, {"max_failed": 2.0}])
def test_a_plan_that_makes_no_sense_is_refused(case: Any, client: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        case().run(dataclasses.replace(PLAN, **changes))
    assert len(numbers(client, "dead")) == 20


def test_by_command_it_is_audited_and_listed(
    server: RedisServer, client: Any, lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sojourn.toml"
    config.write_text(f'[[collect.brokers]]\nkind = "redis"\nname = "mq"\nurl = "{server.url}"\n')
    beside = ["-c", str(config), "--lake", str(lake.root)]
    options = ["--broker", "mq", "--tenant", "a", "--canary", "3", "--canary-seconds", "0", "--rate", "1000"]
    assert main.run(["redrive", "start", "dead", "orders", *options, *beside]) == 0
    assert numbers(client, "orders") == list(range(0, 20, 2))
    assert main.run(["redrive", "list", *beside]) == 0
    assert "done, 10 back, 0 dead again" in capsys.readouterr().out
    rows = sorted(lake.read("actions").to_pylist(), key=lambda row: row["at"])
    assert [(row["decision"], dict(row["inputs"])["moved"]) for row in rows] == [
        ("redrive", "0"), ("redrive", "3"), ("redrive", "10"),
    ]  # fmt: skip
    (id,) = {row["action_id"] for row in rows}
    assert main.run(["redrive", "resume", id, *beside]) != 0, "it is done"
    assert main.run(["redrive", "cancel", id, *beside]) != 0, "it is done"
    assert main.run(["redrive", "cancel", "../x", *beside]) != 0
    assert main.run(["redrive", "start", "dead", "orders", "--broker", "none", *beside]) != 0
    assert json.loads((lake.root / "state" / "redrives" / f"{id}.json").read_text())["state"] == "done"


def test_one_that_nobody_works_on_is_told_so_and_cancelled_at_once(
    server: RedisServer, client: Any, lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sojourn.toml"
    config.write_text(f'[[collect.brokers]]\nkind = "redis"\nname = "mq"\nurl = "{server.url}"\n')
    beside = ["-c", str(config), "--lake", str(lake.root)]
    book = Book(lake.root / "state" / "redrives")
    book.write(Progress(PLAN, "running", moved=4, moving=2))  # as a kill leaves it
    assert main.run(["redrive", "list", *beside]) == 0
    assert "nobody works on it" in capsys.readouterr().out
    assert main.run(["redrive", "cancel", PLAN.id, *beside]) == 0
    assert book.read(PLAN.id).state == "cancelled"
    assert [row["reason"] for row in lake.read("actions").to_pylist()] == ["cancelled by the operator"]
    assert main.run(["actions", "list", *beside]) == 0
    said = capsys.readouterr().out
    assert "redrive all tenants on orders from dead" in said and "no limit" not in said and "by  " not in said

    client.xadd("orders", {"number": 1})
    client.delete("dead")
    client.lpush("dead", "no stream")
    assert main.run(["redrive", "start", "dead", "orders", "--broker", "mq", *beside]) == 1
    (failed,) = [one for one in book.all() if one.plan.id != PLAN.id]
    assert failed.state == "stopped" and "WRONGTYPE" in failed.reason and "resume" in failed.reason


def test_brokers_that_are_watched_are_reached_for_moving_or_it_is_said_why_not() -> None:
    brokers = [
        {"kind": "nats", "name": "a", "url": "nats://127.0.0.1:9", "streams": ["ORDERS"]},
        {"kind": "rabbitmq", "name": "b", "amqp_url": "amqp://127.0.0.1:9/%2F"},
        {"kind": "rabbitmq", "name": "c"},
        {"kind": "kafka", "name": "d"},
    ]
    nats, rabbit, no_address, kafka = CollectSettings.model_validate({"brokers": brokers}).brokers
    assert type(mover_of(nats, subject="orders.{tenant}")).__name__ == "NatsMover"
    assert type(mover_of(rabbit)).__name__ == "RabbitMover"
    with pytest.raises(UserError, match="amqp_url"):
        mover_of(no_address)
    with pytest.raises(UserError, match="kafka cannot be moved"):
        mover_of(kafka)
