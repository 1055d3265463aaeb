"""How often forecasts of :mod:`lake.forecast` hold in the lab: what came in each scenario is held against them.

``python -m lab.forecasts`` prints docs/forecasts.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab import scenario as scenarios
from lab.queue import Queue
from lake.forecast import FEWEST, Forecast, breached, drained

#: What a forecast is made from: bins of so many seconds, so many of them at most.
BIN, BINS = 1, 18
#: How often one is made (seconds), and from how many waiting messages on: one to drain, one to wait beyond a target.
EVERY, DRAINS_FROM, GROWS_FROM = 3, 50, 10
#: The targets, in seconds, that waits are foretold to pass.
TARGETS = (2.0, 5.0, 15.0)
#: It drains for hours, so that most forecasts are of it: it is told apart, too.
LONGEST = "outage"


@dataclass(frozen=True, slots=True)
class Held:
    """How many forecasts were made of one kind, and how many of them held; ``early``: reached before the interval."""

    made: int = 0
    held: int = 0
    early: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(self.made + other.made, self.held + other.held, self.early + other.early)

    @property
    def share(self) -> float:
        """The part that held; not a number where none was made."""
        return self.held / self.made if self.made else math.nan


def judged(name: str, seeds: Iterable[int]) -> tuple[Held, Held]:
    """Drains, and waits beyond targets, foretold in a scenario with nothing done about it."""
    gone, late = Held(), Held()
    for seed in seeds:
        one, other = _judged(name, seed)
        gone, late = gone + one, late + other
    return gone, late


def _judged(name: str, seed: int) -> tuple[Held, Held]:
    scenario = scenarios.resampled(scenarios.load(name), seed)
    queue = Queue(scenario, scenario.variants[0].servers, seed)
    ready: list[int] = []

    def look() -> None:
        ready.append(sum(account.ready for account in queue.accounts.values()))
        queue.at(queue.now + 1.0, look)

    queue.at(1.0, look)
    queue.run()
    seconds = len(ready)
    came, went = _flows(queue, ready)
    waits = _waits(queue, seconds)
    gone, late = Held(), Held()
    for now in range(FEWEST * BIN, seconds - 10, EVERY):
        waiting, bins = ready[now - 1], _bins(came, went, ready, now)
        if waiting >= DRAINS_FROM:
            end = next((at for at in range(now, seconds) if ready[at] == 0), None)
            gone += _verdict(drained(waiting, *bins, BIN), end, now, seconds)
        for target in TARGETS if waiting >= GROWS_FROM else ():
            if (forecast := breached(waiting, target, *bins, BIN)) is not None:
                over = next((at for at in range(now, seconds) if waits[at] > target), None)
                late += _verdict(forecast, over, now, seconds)
    return gone, late


def _flows(queue: Queue, ready: list[int]) -> tuple[list[int], list[int]]:
    """What came, and what went to a consumer, in each second: what waits changed by their difference."""
    came = [sum(account.arrivals.get(second, 0) for account in queue.accounts.values()) for second in range(len(ready))]
    before = [0, *ready[:-1]]
    return came, [max(0, more - (now - was)) for more, now, was in zip(came, ready, before, strict=True)]


def _bins(came: list[int], went: list[int], ready: list[int], now: int) -> tuple[list[int], list[int]]:
    """Bins of the newest stretch in which some waited throughout, the oldest first."""
    bins: tuple[list[int], list[int]] = [], []
    for end in range(now, max(0, now - BIN * BINS), -BIN):
        if end - BIN < 0 or min(ready[end - BIN : end]) <= 0:
            break
        for found, flow in zip(bins, (came, went), strict=True):
            found.insert(0, sum(flow[end - BIN : end]))
    return bins


def _waits(queue: Queue, seconds: int) -> list[float]:
    """How long who came in each second waited at most; who never began waited to the end."""
    waits = [0.0] * seconds
    for account in queue.accounts.values():
        for one in account.begun:
            if (came := int(one.enqueued_at)) < seconds:
                waits[came] = max(waits[came], one.began_at - one.enqueued_at)
        for one in account.came:
            if not one.done:
                came = min(seconds - 1, int(one.enqueued_at))
                waits[came] = max(waits[came], queue.now - one.enqueued_at)
    return waits


def _verdict(forecast: Forecast | None, at: int | None, now: int, seconds: int) -> Held:
    """Whether it came within the interval; not told where nothing was foretold, or the run ended too soon to say."""
    if forecast is None or math.isinf(forecast.middle):
        return Held()
    if at is None:
        return Held() if forecast.late > seconds - now else Held(1, 0)
    after = at - now + 1
    return Held(1, int(forecast.early <= after <= forecast.late), int(after < forecast.early))


def over_all(seeds: Sequence[int]) -> dict[str, tuple[Held, Held]]:
    """By scenario, of all that the lab has, what :func:`judged` says."""
    return {name: judged(name, seeds) for name in scenarios.names()}


def summed(found: Mapping[str, tuple[Held, Held]], without: str = "") -> tuple[Held, Held]:
    """All of ``found`` together, ``without`` one of them."""
    counted = [both for name, both in found.items() if name != without]
    return sum((gone for gone, _ in counted), Held()), sum((late for _, late in counted), Held())


def document(seeds: Sequence[int]) -> str:
    """docs/forecasts.md: how forecasts are made, and how often they hold."""
    found = over_all(seeds)
    told = {**found, f"**all but {LONGEST}**": summed(found, LONGEST), "**all**": summed(found)}
    rows = [f"| {name} | {_cells(gone)} | {_cells(late)} |" for name, (gone, late) in told.items()]
    return "\n".join([_TEXT.format(seeds=len(seeds), longest=LONGEST), *rows, ""])


def _cells(held: Held) -> str:
    return f"{held.made:,} | {held.share:.0%} | {held.early:,}" if held.made else "0 | – | –"


_TEXT = """# Forecasts

A queue's page says when it is drained, and when who comes will wait beyond the target, as three figures: the 10th,
50th and 90th percentile. The interval between the outer two is meant to hold four times in five. It is made from the
queue's own newest arrivals and starts of the time in which some waited throughout, by one pure function
(`lake/forecast.py`, which tells the law and its sources). An outer figure that is never reached is said to be never;
where the middle one is, nothing is foretold but that.

How often it holds, in the lab: each scenario with nothing done about it, {seeds} seeds, a forecast every three seconds
while 50 messages wait (drained) or 10 (waits beyond 2, 5 and 15 s), with what came held against it. *Early*: it came
before the interval; the others that did not hold came later, or not at all. Floods that begin and end within seconds
are what no look back can foretell: that is why intervals are as wide as they are, and why single scenarios are off.
`{longest}` drains for hours, so that most forecasts are of it; the bottom rows have all with it and without.
`python -m lab.forecasts` prints this page; the two constants were set on other seeds.

| scenario | drains foretold | held | early | waits foretold | held | early |
|---|---|---|---|---|---|---|"""


if __name__ == "__main__":
    print(document(range(10)), end="")
