"""While a stretch of events is deferred, whatever sums up all that ever happened is unknown, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lake.reader import Reader
from lake.store import Lake
from lake.tables import GAPS
from tests.reference.generate import Row, generate
from tests.reference.partials import fill

#: The columns that are unknown meanwhile.
LEVELS: dict[str, set[str]] = {
    "tenant_backlog": {
        *("backlog", "in_flight", "ready", "oldest_age_seconds", "share", "noisy"),
        *("drain_state", "drain_eta_seconds", "coverage", "reconciled_backlog"),
    },
    "concurrency": {"in_flight"},
    "queue_health": {
        *("oldest_age_seconds", "quiet_oldest_age_seconds", "noisy_tenants", "mode", "mode_since", "coverage"),
    },
    "attempt_age": set(),
}
#: Those for which the broker's word stands in.
TOLD = {"queue_health": {"in_flight", "drain_state", "drain_eta_seconds"}}


def note(lake: Lake, gap_id: str, *, open: bool) -> None:
    row = {"gap_id": gap_id, "at": datetime.now(UTC), "open": open, "first_version": 3, "last_version": 9, "events": 70}
    lake.append("gaps", pa.Table.from_pylist([row], GAPS.schema))


@pytest.mark.parametrize("twin", ["", "_now"])
def test_levels_are_unknown_until_the_last_gap_is_closed(tmp_path: Path, twin: str) -> None:
    lake = fill(tmp_path, *generate(5, messages=60, seconds=90), finished=True)
    reader = Reader(tmp_path)

    def rows(view: str) -> list[Row]:
        table = reader.query(f"SELECT * FROM {view}{twin}")
        return sorted(table.to_pylist(), key=lambda row: repr(list(row.values())[:8]))

    before = {view: rows(view) for view in LEVELS}
    note(lake, "a", open=True)
    note(lake, "b", open=True)
    note(lake, "a", open=False)
    assert reader.query("SELECT gap_id, events FROM open_gaps").to_pylist() == [{"gap_id": "b", "events": 70}]
    for view in LEVELS:
        assert sorted(repr(_but_what_is_told(view, row)) for row in rows(view)) == sorted(
            repr(_but_what_is_told(view, _unknowing(view, row))) for row in before[view]
        )
    note(lake, "b", open=False)
    assert {view: rows(view) for view in LEVELS} == before


def test_so_are_those_of_a_queues_totals(tmp_path: Path) -> None:
    lake = fill(tmp_path, *generate(5, messages=60, seconds=90), finished=True)
    reader, levels = Reader(tmp_path), ("backlog", "in_flight", "ready")
    before = reader.query("SELECT * FROM stage_totals").to_pylist()
    note(lake, "a", open=True)
    during = reader.query("SELECT * FROM stage_totals").to_pylist()
    assert during == [row | dict.fromkeys(levels) for row in before] != before


def _unknowing(view: str, row: Row) -> Row:
    """``row`` without its levels; a queue of which only samples tell keeps them."""
    if view == "queue_health" and row["noisy_tenants"] is None:
        return row
    return {name: None if name in LEVELS[view] else value for name, value in row.items()}


def _but_what_is_told(view: str, row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in TOLD.get(view, ())}
