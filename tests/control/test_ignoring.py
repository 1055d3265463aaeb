"""One of twenty producers that obeys no limit, on a real broker: those who obey are held, and do not pay for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sojourn
from tests.control.producers import ASKS, PRODUCERS, Producers
from tests.control.test_loop import until
from tests.support.nats import NatsServer


def test_a_twentieth_that_ignores_a_limit_on_a_real_broker_neither_voids_it_nor_drives_it_down(
    start: Callable[..., Any], serve: Callable[..., Any], tmp_path: Path
) -> None:
    loop = start(floor=2.0, max_step=0.5, effect_seconds=5, lease_seconds=600)
    loop.world.now = datetime.now(UTC)
    with (
        NatsServer(tmp_path / "nats") as server,
        serve(loop.control) as url,
        sojourn.Limits(url, broker="nats") as limits,
        Producers(server, limits, ignoring=1) as producers,
    ):
        until(lambda: producers.number("t0") > 50 and producers.number("t1") > 5)
        loop.throttle("t0")
        until(limits.in_force)
        before, seconds, held = Counter(producers.stored), 20, 0.0
        began = previous = datetime.now(UTC)
        for second in range(1, seconds + 1):
            known = producers.number("t0")
            until(lambda second=second: (datetime.now(UTC) - began).total_seconds() >= second)  # type: ignore[misc]
            now = datetime.now(UTC)
            passed = (now - previous).total_seconds()
            held += passed * max(limits.in_force().values(), default=ASKS)
            # What the metrics would show: what the broker really took, and a backlog that drains meanwhile.
            loop.world.noisy_rate = round((producers.number("t0") - known) / passed)
            loop.world.backlog = max(4, loop.world.backlog - 20)
            loop.world.now, previous = now, now
            loop.step("t0")
            loop.trace.append(loop.served().get("t0"))
        came = Counter(producers.stored)
        came.subtract(before)
        loop.control.wake()
    obeying = sum(count for name, count in came.items() if name.startswith("t0-")) - came["t0-0"]
    burst = 2 * max(loop.trace)  # of the first limit and of one that rose
    assert obeying <= held + burst, "those who obey keep the limit together"
    assert came["t0-0"] > 2 * obeying / (PRODUCERS - 1), "the one that ignores it sends on as it likes"
    assert came["t1"] > 0, "whom no alert names is not held"
    assert min(loop.trace) > 2.0, "those who obey do not pay for it down to the floor"
    assert not [row for row in loop.journal() if "no effect" in row["reason"]]
