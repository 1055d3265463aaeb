"""History that was deferred is in gold once, wherever a crash comes and whoever works beside it; without Spark."""

from __future__ import annotations

import pydoc
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lake.store import Lake
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import EVENTS
from spark_analytics.catching_up import gaps as gaps_module
from spark_analytics.catching_up.filling import Process, pieces
from spark_analytics.catching_up.gaps import Gap, Gaps, told_open
from spark_analytics.catching_up.log import DataFile
from spark_analytics.catching_up.places import Place
from spark_analytics.catching_up.turns import Turns
from spark_analytics.gold import checkpoint_path
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.routine import run_maintenance
from spark_analytics.maintenance.streams import needed
from tests.spark_analytics.events import bronze, event
from tests.spark_analytics.gaps import (
    NAME,
    analysed,
    assert_gold_is_of,
    before_live,
    begun,
    fill,
    gap_rows,
    gaps_files,
    life,
    note,
    offset,
    opened,
    start,
    write,
)
from tests.spark_analytics.test_transforms import counted


class Killed(Exception):
    """Stands for a SIGKILL."""


class Fuse:
    """Burns through before the ``left``-th durable step from now on."""

    def __init__(self, patch: pytest.MonkeyPatch, *more: str) -> None:
        """``more``: further steps, by their full names."""
        self.left: int | None = None
        for name in more:
            patch.setattr(name, self._before(pydoc.locate(name)))
        for owner, name in (
            (gaps_module, "write_atomically"),
            (shutil, "rmtree"),
            (Lake, "append"),
            (Lake, "add"),
            (Path, "unlink"),
        ):
            patch.setattr(owner, name, self._before(getattr(owner, name)))

    def _before(self, step: Any) -> Callable[..., Any]:
        def stepped(*args: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Killed
            if self.left is not None:
                self.left -= 1
            return step(*args, **named)

        return stepped


@pytest.mark.timeout(900)
def test_killed_before_any_durable_step_it_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Lake(tmp_path / "template")
    template.create()
    analysed(template, 2)
    write(template, *range(2, 5))
    note(checkpoint_path(template.root, "events"), "offsets", 1, offset(template, Place(4)))
    fuse = Fuse(monkeypatch)
    steps, killed = 0, True
    while killed:
        lake = Lake(tmp_path / str(steps))
        shutil.copytree(template.root, lake.root)
        fuse.left, killed = steps, False
        try:
            start(lake)
            fill(lake)
        except Killed:
            killed = True
        fuse.left = None
        write(Lake(lake.root), 5)  # while it is down
        start(lake)
        fill(lake)
        fresh = Lake(lake.root)
        assert_gold_is_of(fresh, before_live(fresh, 6))
        assert set(gap_rows(fresh).values()) == {1}
        assert told_open(fresh) == set() and Gaps(fresh).open() == []
        steps += 1
    assert steps > 12


def test_a_piece_keeps_its_bounds_when_the_setting_changes_meanwhile(lake: Lake) -> None:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    start(lake)

    def half(gap: Gap) -> Process:
        def process(number: int, files: Files) -> int:
            rows = bronze([row for place in (2, 3) for row in life(place)])
            marks = EVENTS.compute(rows.select(EVENTS.schema.names).cast(EVENTS.schema))["marks"]
            lake.append("marks", marks, app_id=gap.gap_id, version=number)
            raise Killed

        return process

    two = sum(file.size_bytes for file in gaps_files(lake, Place(3), 5))
    with pytest.raises(Killed):
        fill(lake, two, half)
    start(lake)
    fill(lake, 1 << 30)
    assert_gold_is_of(lake, before_live(lake, 8))


def test_files_go_into_pieces_in_their_order() -> None:
    files = [DataFile(Path(str(number)), 10, 1, Place(number + 1)) for number in range(5)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, None, 20)] == [(2, 2), (4, 2), (5, 1)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, Place(3), 20)] == [(3, 3), (5, 2)]
    assert [(ends.version, len(piece)) for ends, piece in pieces(files, None, 1)] == [(n, 1) for n in range(1, 6)]
    assert list(pieces([], Place(7), 20)) == [(Place(7), [])]
    assert list(pieces([], None, 20)) == []


# -- beside others ----------------------------------------------------------------------------------------------------


def test_maintenance_keeps_what_history_needs_and_lets_go_of_it_then(lake: Lake) -> None:
    opened(lake)
    everything = Retention(replaced_for=timedelta(0), bronze_for=timedelta(days=1))
    for _ in range(3):
        done = {one.table: one for one in run_maintenance(lake, everything)}
        assert "the analysis has not read further" in done[NAME].vacuumed.held
    assert lake.read(NAME).num_rows == 0, "old days were dropped"
    fill(lake)
    assert_gold_is_of(lake, before_live(lake, 8))
    table = lake.ensure(NAME)
    log_folder = lake.path(NAME) / "_delta_log"
    begun(lake, Gaps(lake).live().checkpoint, "from 8", Place(table.version() + 1))
    assert needed(lake.root, table, log_folder).files_since is None


def test_marks_of_failures_wait_for_what_history_has_to_say(lake: Lake) -> None:
    opened(lake)
    late = {"message_id": "x", "enqueued": 0}
    settled = [event("failed", 0, attempt=1, **late), event("received", 1, attempt=2, **late)]
    settled.append(event("completed", 400_000, message_id="y", attempt=2))
    rows = EVENTS.compute(bronze(settled).select(EVENTS.schema.names).cast(EVENTS.schema))
    for table in EVENTS.writes:
        lake.append(table, rows[table])
    before = counted(lake.read("marks").to_pylist())
    run_maintenance(lake, Retention())
    assert counted(lake.read("marks").to_pylist()) == before
    fill(lake)
    run_maintenance(lake, Retention())
    assert counted(lake.read("marks").to_pylist()) != before


def test_the_present_goes_before_history() -> None:
    turns, order = Turns(), list[str]()
    entered, waiting = threading.Event(), threading.Event()

    def patient() -> None:
        with turns.patient():
            order.append("history")

    def hurried() -> None:
        waiting.set()
        with turns.hurried():
            order.append("present")

    def working() -> None:
        with turns.patient():
            entered.set()
            waiting.wait()
            while turns._hurried == 0:
                pass

    threads = [threading.Thread(target=working)]
    threads[0].start()
    entered.wait()
    threads += [threading.Thread(target=patient), threading.Thread(target=hurried)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["present", "history"]
