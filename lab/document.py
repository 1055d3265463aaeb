"""Writes docs/lab: every scenario under every order and policy. ``python -m lab.document FOLDER``."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from lab.breakwater import SPIKE_SECONDS, STEP, WINDOW, spike
from lab.compare import Compared, compare
from lab.plot import bars, curves
from lab.published import BATCH_RATES, CAPACITIES, LIMIT, LIVE_RATE, WANTED, partitioned, priorities
from lab.scenario import Scenario, load, names
from lab.stats import estimate
from lab.sums import table
from lab.table import said

SEEDS = 6
_HEAD = """\
# The lab's scenarios

Written by `make lab`: each file of `lab/scenarios/` under every order and policy, beside doing nothing (first in, first
out, no limits). Means and, in brackets, their 95 % intervals: by bootstrap over {seeds} seeds. The same seed brings the
same arrivals to each.

* **quiet p99**: how old messages are at their first attempt (seconds, the time that their producers held them back
  included), of tenants that are not reported apart. **Change**: less the same without anything, seed by seed.
* **apart p99**: the same of the large or noisy tenants that a scenario reports apart.
* **completed**: by the end of the measured time, ÷ what is completed by then without anything.
* **innocents**: tenants that did nothing wrong and had a limit, over all seeds.
* **worse**: in what it is worse than doing nothing beyond its interval – the quiet wait longer, by more than a message
  takes; less than 97 % is completed; innocents are limited.

*fair order* is start-time fair queueing, as `sojourn.FairConsumer` does it; *round robin* is by deficit; *quiet first*
is the rule of SQS fair queues; *entitled* are standing entitlements; *controlled* is the shipped rule on noisy tenants
and the shipped controller under the shipped policy, with a target of three seconds.

Tables that others published, by these laws: [published.md](published.md).
"""


_PUBLISHED = """\
# Published tables, by our laws

Written by `make lab`; the tests hold the figures to what the sources say (`tests/lab/test_published.py`,
`tests/control/test_published_laws.py`).

## Sums

What a formula says, by the functions that ship (`lab/sums.py`): prefetch by round trips, Little's law, backlogs and
outages, the odds of shuffle sharding.

| | published | ours | source |
|---|---|---|---|
{sums}
## A partitioned limiter

Two workers, log-normal service of 20 ms on average, a limit of {limit} in work, of which live traffic is guaranteed all
and batch traffic nothing (Netflix concurrency-limits, *limit by partition*): live traffic at {live:g}/s hardly notices
what batch traffic does. Parts of what was asked for that was served, over {seeds} seeds.

| batch traffic | live, served | batch, served |
|---|---|---|
{partitions}
## Priorities

Three consumers that each want to publish {wanted:g}/s, of priority P1, P2 and P3; in the middle third of the time the
broker takes {least:g}/s. Each watches the median of its own publishes and their errors, and lets go by 20, 40 and 60 %
where that is too long, to gain 15, 10 and 5/s where it is not (Zalando, April 2024). Nobody tells anybody anything, and
P1 stays while P3 yields.

![rates of P1, P2 and P3](priorities.svg)

| | before | while the broker is slow | afterwards |
|---|---|---|---|
{priorities}"""


_SPIKE = """
## Breakwater's spike

A thousand clients, ten cores of 10 µs, an SLO of 200 µs; demand goes from 0.7 to 1.4 times the capacity (Cho et al.,
OSDI 2020). Stable is where 99 % of what is served is within the SLO and 80 % of the capacity is used, for 20 ms;
goodput is of the capacity over {seconds:g} s from the spike on. Steps of one round trip (10 µs), an unbounded queue but
for Breakwater's own dropping, seed 0. The order is the published one; DAGOR is quicker here, as its windows are 2,000
requests without a second's floor, and SEDA later, as nobody gives up: what came in the spike is still to be served.

| | stable after | published | goodput |
|---|---|---|---|
{rows}"""
_PUBLISHED_STABLE = {"Breakwater": "less than 20 ms", "DAGOR": "500 ms", "SEDA": "1.58 s"}


def _spike() -> str:
    rows = ""
    for law, told in _PUBLISHED_STABLE.items():
        one = spike(law, 0)
        within = WINDOW * STEP / 1e3
        after = f"{one.stable_after * 1e3:.0f} ms" if one.stable_after else f"less than {within:g} ms"
        after = after if math.isfinite(one.stable_after) else f"not within {SPIKE_SECONDS:g} s"
        rows += f"| {law} | {after} | {told} | {one.goodput:.2f} |\n"
    return _SPIKE.format(rows=rows, seconds=SPIKE_SECONDS)


def published(seeds: int) -> tuple[str, str]:
    """The page of published tables, and its plot."""
    runs = [partitioned(seed) for seed in range(seeds)]
    lines = ""
    for number, rate in enumerate(BATCH_RATES):
        parts = [said(estimate([run[number][name].part for run in runs])) for name in ("live", "batch")]
        lines += f"| {rate:g}/s | {' | '.join(parts)} |\n"
    all_curves = [priorities(seed) for seed in range(seeds)]
    spans, rows = ((50, 100), (120, 200), (250, 300)), ""
    for number, curve in enumerate(all_curves[0]):
        found = [said(estimate([run[number].mean(*span) for run in all_curves])) for span in spans]
        rows += f"| {curve.priority} | {' | '.join(found)} |\n"
    text = _PUBLISHED.format(
        limit=LIMIT,
        live=LIVE_RATE,
        seeds=seeds,
        partitions=lines,
        wanted=WANTED,
        least=min(CAPACITIES),
        priorities=rows,
        sums=table(),
    )
    return text, curves([(one.priority, one.rates) for one in all_curves[0]], "/s")


def page(scenarios: dict[str, Scenario], seeds: int) -> tuple[str, dict[str, str]]:
    """The page about ``scenarios``, by name, and its plots by file name."""
    parts, plots = [_HEAD.format(seeds=seeds)], {}
    for name, scenario in scenarios.items():
        found = compare(scenario, range(seeds))
        parts.append(f"\n## {name}\n\n{scenario.title}.\n\n{_table(scenario, found)}")
        if plot := bars([(one.variant, one.quiet) for one in found], "s"):
            plots[f"{name}.svg"] = plot
            parts.append(f"\n![quiet tenants' p99 in {name}]({name}.svg)\n")
    return "".join(parts), plots


def _table(scenario: Scenario, found: list[Compared]) -> str:
    lines = [
        "| | quiet p99 | change | apart p99 | completed | innocents | worse |\n",
        "|---|---|---|---|---|---|---|\n",
    ]
    for number, one in enumerate(found):
        change = said(one.quiet_change) if number else ""
        completed = said(one.throughput) if number else "1"
        worse = ", ".join(one.worse(scenario.service_mean)) or "–"
        lines.append(
            f"| {one.variant} | {said(one.quiet)} | {change} | {said(one.suspect)} | {completed} "
            f"| {one.innocents} | {worse} |\n"
        )
    return "".join(lines)


def main(folder: str) -> None:
    """Write the page into ``folder``."""
    # What compares capacities, as an hour's outage does, compares no policies: `sojourn lab outage`.
    scenarios = {name: load(name) for name in names()}
    scenarios = {name: one for name, one in scenarios.items() if len({v.servers for v in one.variants}) == 1}
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    text, plots = page(scenarios, SEEDS)
    tables, plots["priorities.svg"] = published(SEEDS)
    for name, content in {"README.md": text, "published.md": tables + _spike(), **plots}.items():
        (root / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
