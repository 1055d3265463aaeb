"""The reference page of the shipped rules, generated from their files: ``python -m alerts.rules.document``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from alerts.durations import format_duration
from alerts.rules.loader import BUILTIN, OPTIONAL, load_rules
from alerts.rules.model import Rule

#: What `benchmarks/alerts_parts/week.py` found.
WEEK = BUILTIN.with_name("week.json")

_INTRO = """# Shipped rules

This page is generated (`make docs`) from `alerts/rules/builtin/`, where each file has its runbook and its tests beside
it. They run unless `[alert] builtin = false`. `sojourn rules test` runs their tests.

What `critical` promises: it does not fire for work in progress within the time that work takes there, for delayed
messages, for retries, because a broker's data has stopped (but StaleData), nor for a queue whose events do not add up
with the broker's own count (coverage outside 0.8–1.25). `tests/alerts/situations.py` holds the situations that every
rule is tried on, and those in which somebody must be told.

Two things are not known to any rule: that a queue is emptied at a set time, by night say, and that it is no longer
used. Rules to which these look alike are `warning`, but NoConsumersWhileGrowing: silence it for queues of the first
kind.
"""

_WEEK = """## A week of traffic

What the shipped rules would have paged in {days} days of the lab's traffic – {messages:,} messages, evaluated each
{step} – on calm queues and on queues that something was wrong with at known times: a tenant that sent twelve times its
share for a quarter of an hour (`noisy`), consumers that stood still for an hour (`outage`), a batch that was
dead-lettered (`poison`). A page is true if it came meanwhile or within two hours, while what had piled up was worked
off. At this step a `for` that is shorter holds nothing back, and what lies between two evaluations is not seen:
evaluated as often as in service, rules may tell fewer short deviations, and some that are missed here.
`python -m benchmarks.alerts_parts.week` does it again and writes
`alerts/rules/week.json`, of which this is made.

**False critical pages: {critical}** ({calm} queues that nothing was ever wrong with, and the others' calm hours).
Pages a queue and day: {true_a_day} true, {false_a_day} false, {loud_a_day} without those for information.

| queue | wrong there | alert | severity | true pages | false pages | false pages a day |
|---|---|---|---|---|---|---|
{lines}
"""

_OPTIONAL = """# Shipped, evaluated where they are named

The files in `alerts/rules/optional/`: name one under `rules` in `[alert]`, or copy it. How objectives are written:
[rule-files.md](rule-files.md).
"""


def markdown() -> str:
    """The whole page."""
    shipped, optional = load_rules((), builtin=True), load_rules([OPTIONAL], builtin=False)
    return "\n".join(
        [_INTRO, *_sections(shipped), _week(json.loads(WEEK.read_text())), _OPTIONAL, *_sections(optional)]
    )


def _week(told: dict[str, Any]) -> str:
    pages, queues, days = told["pages"], told["queues"], told["days"]
    silent = [name for name in queues if all(one["queue"] != name for one in pages)]
    lines = [
        f"| `{one['queue']}` | {', '.join(dict.fromkeys(queues.get(one['queue'], ()))) or '–'} | {one['alert']} "
        f"| {one['severity']} | {one['true']} | {one['false']} | {one['false'] / days:.2g} |"
        for one in pages
    ]
    lines += [f"| `{name}` | {', '.join(queues[name]) or '–'} | none | | 0 | 0 | 0 |" for name in silent]
    times = len(queues) * days
    return _WEEK.format(
        days=days,
        messages=told["messages"],
        step=format_duration(timedelta(seconds=told["step_seconds"])),
        critical=sum(one["false"] for one in pages if one["severity"] == "critical"),
        calm=sum(not troubles for troubles in queues.values()),
        false_a_day=f"{sum(one['false'] for one in pages) / times:.2g}",
        loud_a_day=f"{sum(one['false'] for one in pages if one['severity'] != 'info') / times:.2g}",
        true_a_day=f"{sum(one['true'] for one in pages) / times:.2g}",
        lines="\n".join(lines),
    )


def _sections(rules: Sequence[Rule]) -> list[str]:
    return [_section(name, list(group)) for name, group in groupby(rules, key=lambda rule: rule.group)]


def _section(name: str, rules: list[Rule]) -> str:
    lines = [f"## `{name}`", "", "| alert | severity | for | says | reads |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(_line(rule) for rule in rules), ""])


def _line(rule: Rule) -> str:
    runbook = f"../alerts/rules/{Path(rule.source).parent.name}/{rule.annotations['runbook']}"
    says = rule.annotations["summary"].replace("|", "\\|")
    reads = ", ".join(f"`{table}`" for table in sorted(rule.tables)) or "nothing"
    return (
        f"| [{rule.name}]({runbook}) | {rule.labels['severity']} | {format_duration(rule.hold)} | `{says}` | {reads} |"
    )


if __name__ == "__main__":
    print(markdown(), end="")
