"""Sidelining on a real broker: a limited tenant's excess waits aside and comes back, in order, when all is calm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.control.active_limit import ActiveLimit, Key, RuleKey, Target
from alerts.control.actuators.spillover import Spillover, SpilloverSettings
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.laws.limits import Limit
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

Start = Callable[..., Any]
LIMIT = Limit(3.0, 3.0, 0.0, 2e9, 120.0)
T0 = ActiveLimit(
    Key("p", Target("mq", "orders", "t0")), "a1", RuleKey("tenants", "NoisyTenant"), "aside", False, 3.0, LIMIT, "why"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        client.xgroup_create("orders", "work", id="0", mkstream=True)
        yield client


def settings(server: RedisServer, **changes: Any) -> dict[str, Any]:
    mover = {"kind": "redis_stream", "name": "mq", "url": server.url}
    return {"name": "aside", "mover": mover, "queues": ["orders"], "return_rate": 1e6, **changes}


@pytest.fixture
def make(server: RedisServer) -> Callable[..., Spillover]:
    def begin(now: Callable[[], float] | None = None, **changes: Any) -> Spillover:
        chosen = SpilloverSettings.model_validate(settings(server, **changes))
        return Spillover(chosen) if now is None else Spillover(chosen, now=now)

    return begin


def send(client: Any, *numbers: int) -> None:
    for number in numbers:
        for tenant in ("t0", "t1"):
            client.xadd("orders", {"Tenant": tenant, "number": number})


def numbers(client: Any, key: str, tenant: str = "t0") -> list[int]:
    return [int(fields["number"]) for _, fields in client.xrange(key) if fields["Tenant"] == tenant]


def limit(one: Spillover, *active_limits: ActiveLimit) -> None:
    one._wanted = {item.key.target: item for item in active_limits}
    one.round()


def test_what_the_rate_may_have_stays_and_the_rest_waits_aside_until_all_is_calm(make: Any, client: Any) -> None:
    one = make()
    send(client, *range(10))
    limit(one, T0)
    assert numbers(client, "orders") == [0, 1, 2] and numbers(client, "orders-aside") == list(range(3, 10))
    assert numbers(client, "orders", "t1") == list(range(10))
    client.xreadgroup("work", "one", {"orders": ">"}, count=4)  # 0 and 1 of either
    send(client, 10)
    limit(one, T0)
    assert numbers(client, "orders") == [0, 1, 2, 3, 4], "what was consumed makes room for the oldest"
    assert numbers(client, "orders-aside") == [5, 6, 7, 8, 9, 10]
    limit(one)
    for _ in range(5):
        one.round()
    assert numbers(client, "orders") == list(range(11)) and numbers(client, "orders-aside") == []


def test_only_what_is_old_goes_aside_where_that_is_asked_for(make: Any, client: Any) -> None:
    send(client, 0, 1)
    young, old = make(old_seconds=3600.0), make(old_seconds=0.001, now=lambda: 4e9)
    limit(young, T0)
    assert numbers(client, "orders-aside") == []
    limit(old, T0)
    assert numbers(client, "orders-aside") == [0, 1] and numbers(client, "orders", "t1") == [0, 1]


def test_what_is_delayed_comes_back_when_it_is_old_enough(make: Any, client: Any) -> None:
    send(client, 0)
    limit(make(keep_seconds=0.0, old_seconds=0.001, now=lambda: 4e9), T0)
    limit(make(delay_seconds=3600.0))
    assert numbers(client, "orders-aside") == [0]
    limit(make(delay_seconds=3600.0, now=lambda: 4e9))
    assert numbers(client, "orders-aside") == [] and numbers(client, "orders") == [0]


def test_messages_are_dropped_only_where_their_owner_says_that_they_may_be_lost(
    make: Any, client: Any, server: RedisServer
) -> None:
    with pytest.raises(ValidationError, match="may_lose_messages"):
        SpilloverSettings.model_validate(settings(server, expire_seconds=1.0))
    send(client, *range(6))
    limit(make(may_lose_messages=True, expire_seconds=3600.0), T0)
    assert numbers(client, "orders-aside") == [3, 4, 5]
    limit(make(may_lose_messages=True, expire_seconds=3600.0, now=lambda: 4e9), T0)
    assert numbers(client, "orders-aside") == [] and numbers(client, "orders") == [0, 1, 2]


def test_it_comes_back_no_faster_than_the_return_rate(make: Any, client: Any) -> None:
    send(client, *range(30))
    one = make(return_rate=1.0)
    limit(one, T0)
    one._credit = 2.0
    limit(one)
    assert len(numbers(client, "orders-aside")) >= 25


def test_a_policy_puts_aside_and_what_is_aside_comes_back_after_a_restart(
    start: Start, server: RedisServer, client: Any, tmp_path: Any
) -> None:
    for number in range(40):
        client.xadd("orders", {"Tenant": "t0", "number": number})
    mover = settings(server)["mover"] | {"name": "nats"}  # as the world of these tests calls its broker
    spillovers = [settings(server, mover=mover)]
    loop = start(actuator="aside", spillovers=spillovers, lease_seconds=600)
    loop.throttle("t0")
    (row,) = loop.journal()
    assert row["outcome"] == "applied" and dict(row["inputs"])["setting"] == "orders-aside"
    wait_until(lambda: len(numbers(client, "orders-aside")) == 30, "what exceeds 10/s to go aside")
    loop.control.controller.pause(loop.world.now)
    loop.control.close()
    start(spillovers=spillovers)
    wait_until(lambda: numbers(client, "orders-aside") == [], "all to come back")
    assert numbers(client, "orders") == list(range(40))


def test_a_queue_that_it_does_not_serve_is_refused_and_a_broker_that_is_away_is_a_failure(make: Any) -> None:
    one: Spillover = make()
    other = replace(T0, key=Key("p", Target("mq", "bills", "t0")))
    assert "does not serve" in str(one.enforce([other])[other.key.target].error)
    gone = SpilloverSettings.model_validate(
        {
            "name": "aside",
            "queues": ["orders"],
            "mover": {"kind": "redis_stream", "name": "mq", "url": "redis://127.0.0.1:9"},
        }
    )
    away = Spillover(gone)
    limit(away, T0)
    assert "cannot be reached" in str(away.enforce([T0])[T0.key.target].error)


def test_a_policy_may_name_a_spillover(server: RedisServer) -> None:
    given = ControlSettings.model_validate(
        {"policies": [{"name": "p", "actuator": "aside"}], "spillovers": [settings(server)]}
    )
    assert isinstance(given.policies[0], PolicySettings)
