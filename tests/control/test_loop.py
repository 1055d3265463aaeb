"""The whole way: an alert, the controller, its API over HTTP, and a producer that uses the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import sojourn
from tests.support.waiting import PATIENCE


def until(condition: Callable[[], Any], seconds: float = 15) -> None:
    deadline = time.monotonic() + PATIENCE * seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def sent(limits: sojourn.Limits, tenant: str, messages: int) -> int:
    return sum(bool(limits.try_acquire("orders", tenant)) for _ in range(messages))


def test_a_noisy_producer_is_held_to_its_share_alone_and_set_free_again(
    start: Callable[..., Any], serve: Callable[..., Any]
) -> None:
    loop = start(lease_seconds=600)
    loop.world.now = datetime.now(UTC)
    with serve(loop.control) as url, sojourn.Limits(url, broker="nats") as limits:
        until(lambda: limits.counters()["updates"] == 1)
        assert sent(limits, "t0", 1000) == 1000
        loop.throttle("t0")
        until(limits.in_force)
        assert limits.in_force() == {("orders", "t0"): 10.0}
        assert sent(limits, "t0", 1000) < 1000  # the burst, and what trickles in meanwhile
        assert sent(limits, "t1", 1000) == 1000
        loop.control.controller.revoke(loop.journal()[0]["action_id"], datetime.now(UTC))
        until(lambda: not limits.in_force())
        assert sent(limits, "t0", 1000) == 1000
        loop.control.wake()


def test_a_dry_run_never_reaches_a_producer(start: Callable[..., Any], serve: Callable[..., Any]) -> None:
    loop = start(dry_run=True)
    loop.world.now = datetime.now(UTC)
    with serve(loop.control) as url, sojourn.Limits(url, poll_seconds=0.05) as limits:
        loop.throttle("t0")
        assert loop.decisions() == ["throttle"]
        polls = limits.counters()["polls"]
        until(lambda: limits.counters()["polls"] >= polls + 3)
        assert limits.in_force() == {}
        loop.control.wake()
