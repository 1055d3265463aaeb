"""Writes docs/lab: every scenario under every order and policy. ``python -m lab.document FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.compare import Compared, compare
from lab.scenario import Scenario, load, names
from lab.table import said

SEEDS = 5
_HEAD = """\
# The lab's scenarios

Written by `make lab`: each file of `lab/scenarios/` under every order and policy, beside doing nothing (first in, first
out, no limits). Means ± 95 % intervals over {seeds} seeds; the same seed brings the same arrivals to each.

* **quiet p99**: how old messages are at their first attempt (seconds, the time that their producers held them back
  included), of tenants that are not reported apart. **Change**: less the same without anything, seed by seed.
* **apart p99**: the same of the large or noisy tenants that a scenario reports apart.
* **completed**: by the end of the measured time, ÷ what is completed by then without anything.
* **innocents**: tenants that did nothing wrong and had a limit, over all seeds.
* **worse**: in what it is worse than doing nothing beyond its interval – the quiet wait longer, by more than a message
  takes; less than 97 % is completed; innocents are limited.

*fair order* is start-time fair queueing, as `sojourn.FairConsumer` does it; *round robin* is by deficit; *quiet first*
is the rule of SQS fair queues; *entitled* are standing entitlements; *controlled* is the shipped policy, with a target
of three seconds.
"""


def page(scenarios: dict[str, Scenario], seeds: int) -> str:
    """The page about ``scenarios``, by name."""
    parts = [_HEAD.format(seeds=seeds)]
    for name, scenario in scenarios.items():
        parts.append(f"\n## {name}\n\n{scenario.title}.\n\n{_table(scenario, compare(scenario, range(seeds)))}")
    return "".join(parts)


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
    path = Path(folder) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(scenarios, SEEDS), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
