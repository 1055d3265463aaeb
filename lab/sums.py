"""Published figures that are sums, by the functions that ship: the first part of docs/lab/published.md."""

from __future__ import annotations

from typing import NamedTuple

from alerts.laws import concurrency, drain
from lake import prefetch
from sojourn.client import shuffle_sharding

#: RabbitMQ, May 2012: 50 ms each way, work of 4 ms, and then of 40 (seconds).
ROUND_TRIP, WORK, SLOWER_WORK = 0.100, 0.004, 0.040
WORKERS, SHARD = 100, 5


class Sum(NamedTuple):
    """What is asked, what was published, and what our function says of it."""

    what: str
    source: str
    published: str
    ours: str


def sums() -> list[Sum]:
    """All of them."""
    rabbitmq, amazon, little = "RabbitMQ, May 2012", "Amazon Builders' Library", "Little 1961"
    first, double = prefetch.needed(ROUND_TRIP, WORK), prefetch.needed(2 * ROUND_TRIP, WORK)
    idle = prefetch.waiting(double, ROUND_TRIP, WORK)
    found = [
        Sum("prefetch for 100 ms there and back, 4 ms of work", rabbitmq, "26", f"{first}"),
        Sum("for a network that is twice as slow", rabbitmq, "51", f"{double}"),
        Sum("of those 51 buffered once it is quick again", rabbitmq, "25: 100 ms", f"{idle:g}: {_ms(idle * WORK)}"),
    ]
    for count, published in ((first, "880 ms (95 %)"), (double, "1880 ms (97 %)")):
        waits = prefetch.waiting(count, ROUND_TRIP, SLOWER_WORK) * SLOWER_WORK
        part = waits / (waits + ROUND_TRIP / 2)
        told = f"{_ms(waits)} ({part:.0%})".replace("%", " %")
        found.append(Sum(f"a prefetch of {count}, work of 40 ms: spent buffered", rabbitmq, published, told))
    capacity, half_an_hour = 100.0, 1800.0
    lasts = half_an_hour / 60 + drain.drain_seconds(9 * capacity * half_an_hour, capacity, 0) / 60
    outage = drain.capacity_needed(3600 * capacity, capacity, 3600) / capacity
    found += [
        Sum("in work at 100/s of 0.1 s", little, "10", f"{concurrency.littles_law(100, 0.1)}"),
        Sum("the same once work takes 10 s", little, "1000", f"{concurrency.littles_law(100, 10)}"),
        Sum("ten times the capacity for half an hour is done after", amazon, "300 minutes", f"{lasts:g} minutes"),
        Sum("an hour's outage made good within an hour takes", amazon, "twice the capacity", f"{outage:g} times"),
    ]
    for shared, percent in enumerate(("77", "21", "1.8", "0.06", "0.0006", "0.0000013")):
        ours = 100 * shuffle_sharding.overlap(WORKERS, SHARD, shared)
        what = f"customers that share {shared} of {SHARD} of {WORKERS} workers"
        found.append(Sum(what, amazon, f"{percent} %", f"{ours:.2g} %" if ours >= 1e-4 else f"{ours:.7f} %"))
    return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def table() -> str:
    """:func:`sums` as rows of Markdown."""
    return "".join(f"| {one.what} | {one.published} | {one.ours} | {one.source} |\n" for one in sums())
