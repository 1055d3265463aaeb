"""What ``Limits.try_acquire`` costs its caller – without a limit, with one, held to an entitlement –, and one publish.

In the caller's own processor time, which others on the machine do not lengthen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import sojourn
from benchmarks.figures import Figure
from sojourn.client.publishes import Publishes
from sojourn.client.wire import Update, WireCongestion, WireEntitlement, WireLimit

ROUNDS, CALLS = 30, 5_000
NOWHERE = "http://127.0.0.1:1"


def measure(scale: float) -> Iterator[Figure]:
    """The median over rounds; the baseline is one look into a dictionary by a tuple."""
    calls = max(100, int(CALLS * scale))
    held = {("orders", "acme"): 1}
    baseline = _microseconds(lambda: held.get(("orders", "noisy")), calls)
    with sojourn.Limits(NOWHERE) as limits:
        yield Figure(
            "client_decision_us_free", _microseconds(lambda: limits.try_acquire("orders", "a"), calls), "us", baseline
        )
        limits.update([WireLimit("nats", "orders", "noisy", 1e9, 1e9, 3600, "")])
        limited = _microseconds(lambda: limits.try_acquire("orders", "noisy"), calls)
        limits.update([WireLimit("nats", "orders", "noisy", 1e-9, 1, 3600, "")])
        refused = _microseconds(lambda: limits.try_acquire("orders", "noisy"), calls)
        yield Figure("client_decision_us_refused", refused, "us", baseline)
        limits.apply(
            Update(
                None,
                whole=True,
                entitled=[WireEntitlement("nats", "orders", "*", 1e9, 1e9)],
                congested=[WireCongestion("nats", "orders", 3600, "")],
            )
        )
        entitled = _microseconds(lambda: limits.try_acquire("orders", "a"), calls)
        yield Figure("client_decision_us_entitled", entitled, "us", baseline)
        yield Figure("client_decision_us", limited, "us", baseline)
    publishes, key = Publishes(), ("nats", "orders")
    yield Figure("client_publish_us", _microseconds(lambda: publishes.add(key, 0.01), calls), "us", baseline)


def _microseconds(call: Callable[[], object], calls: int) -> float:
    taken = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(calls):
            call()
        taken.append((time.thread_time() - started) / calls)
    return 1e6 * median(taken)
