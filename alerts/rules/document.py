"""The reference page of the shipped rules, generated from their files: ``python -m alerts.rules.document``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from alerts.durations import format_duration
from alerts.rules.loader import OPTIONAL, load_rules
from alerts.rules.model import Rule

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

_OPTIONAL = """# Shipped, evaluated where they are named

The files in `alerts/rules/optional/`: name one under `rules` in `[alert]`, or copy it. How objectives are written:
[rule-files.md](rule-files.md).
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join(
        [_INTRO, *_sections(load_rules((), builtin=True)), _OPTIONAL, *_sections(load_rules([OPTIONAL], builtin=False))]
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
