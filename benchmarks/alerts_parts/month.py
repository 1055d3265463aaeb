"""A month of history under `sojourn rules backtest`: one rule each minute with another threshold, all rules each ten.

The lake is that of :mod:`benchmarks.alerts_parts.week`, for 30 days.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from alerts.backtest.plot import svg
from alerts.backtest.report import table
from alerts.backtest.run import backtest
from alerts.rules.changes import Changes
from alerts.rules.loader import load_rules
from benchmarks.alerts_parts.week import BEGIN, STEP, fill
from benchmarks.figures import Figure
from lake.store import Lake

DAYS = 30
STALE_AFTER = timedelta(minutes=3)
CHANGED, MINUTE = "DrainTooLong", timedelta(minutes=1)


def measure(scale: float) -> Iterator[Figure]:
    """Seconds from the command to its table and plot; ``scale``: of the days."""
    days = max(1, round(DAYS * scale))
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder))
        lake.create()
        yield Figure("backtest_month_messages", fill(lake, days), "messages")
        rules = load_rules((), builtin=True, changes=Changes([f"{CHANGED}.threshold=2h"]))
        one = [rule for rule in rules if rule.name == CHANGED]
        for name, chosen, step in (("rule_each_minute", one, MINUTE), ("all_each_10_minutes", rules, STEP)):
            began = time.monotonic()
            found = backtest(
                chosen,
                lake.root,
                BEGIN + timedelta(hours=1),
                BEGIN + timedelta(days=days),
                step,
                stale_after=STALE_AFTER,
            )
            drawn = table(found), svg(found)
            yield Figure(f"backtest_month_{name}_seconds", time.monotonic() - began, "s")
            yield Figure(f"backtest_month_{name}_evaluations", found.instants * len(chosen), "evaluations")
            assert all(drawn)
