"""A receipt's interval holds what a run without the limit really shows: ten pairs of runs, each by its own chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab.receipt import worked_out
from lab.stats import quantile
from lake.store import Lake
from lake.tables import ACTIONS
from tests.lab.test_receipt import JOURNAL, SINCE
from tests.lab.test_replay import START, arrivals, events, lake_of

RUNS, COVERED = 10, 8


def held(came: list[tuple[float, str, list[float]]], limit: float) -> list[tuple[float, str, list[float]]]:
    """What comes under a limit from :data:`SINCE` on."""
    found, free = [], SINCE
    for at, name, work in came:
        if name == "noisy" and at >= SINCE:
            at = free = max(free + 1 / limit, at)
        found.append((at, name, work))
    return sorted(found)


def waits(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Each tenant's p99 of ages at first attempts, of what came from :data:`SINCE` on."""
    came: dict[str, tuple[float, str]] = {}
    ages: dict[str, list[float]] = {}
    for row in rows:
        at = (row["occurred_at"] - START).total_seconds()
        if row["event_type"] == "enqueued":
            came[row["message_id"]] = at, row["tenant"]
        elif row["event_type"] == "received" and row["attempt"] == 1:
            enqueued, tenant = came[row["message_id"]]
            if enqueued >= SINCE:
                ages.setdefault(tenant, []).append(at - enqueued)
    return {tenant: quantile(found, 0.99) for tenant, found in ages.items()}


@pytest.mark.slow
@pytest.mark.deep
def test_in_eight_of_ten_the_interval_covers_what_the_untreated_run_showed(tmp_path: Path) -> None:
    covered = []
    for run in range(1, RUNS + 1):
        treated = events(held(arrivals(run), 15.0))
        without, with_it = waits(events(arrivals(run + 100))), waits(treated)
        quiet = [tenant for tenant in with_it if tenant != "noisy"]
        saved = sum(without[tenant] - with_it[tenant] for tenant in quiet) / len(quiet)
        root = lake_of(tmp_path / str(run), treated)
        Lake(root).append("actions", pa.Table.from_pylist(JOURNAL, schema=ACTIONS.schema))
        _, found = worked_out(root, JOURNAL, "a1", 8)
        assert found.saved.half_width < 0.5 * found.saved.mean, "it says something"
        covered.append(found.saved.low <= saved <= found.saved.high)
    assert sum(covered) >= COVERED, covered
