"""Between batches: nothing is done until there are data, and whoever catches up does not rest."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lake.checksum import checksum
from lake.log import log_entry
from lake.store import Lake
from spark_analytics import pace
from spark_analytics.pace import BUSY_ROWS, LONGEST_REST, Pace, due, until_next
from tests.spark_analytics.events import bronze, event
from tests.support.waiting import PATIENCE, wait_until


class Rig:
    """A pace over the table of events."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.stopping = threading.Event()
        self.pace = Pace(lake.path("message_events"), 0.0, self.stopping)
        self.newest: int | None = None

    def add(self) -> None:
        self.lake.append("message_events", bronze([event("enqueued")]))

    @contextmanager
    def resting(self, version: int) -> Iterator[threading.Thread]:
        """A thread that rests until there is something in the commits from ``version`` on."""

        def rest() -> None:
            self.newest = self.pace.rest(version)

        thread = threading.Thread(target=rest, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            self.stopping.set()
            thread.join(5 * PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def rig(lake: Lake) -> Rig:
    return Rig(lake)


def ends(thread: threading.Thread) -> Callable[[], bool]:
    return lambda: not thread.is_alive()


def test_a_query_rests_until_there_are_new_data(rig: Rig) -> None:
    rig.add()
    with rig.resting(2) as thread:
        thread.join(0.2)
        assert thread.is_alive()
        rig.add()
        wait_until(ends(thread), "the query to go on")
        assert not rig.stopping.is_set()
    assert rig.newest == 2


def test_commits_without_new_data_wake_nobody(rig: Rig) -> None:
    for _ in range(12):
        rig.add()
    with rig.resting(13) as thread:
        rig.lake.compact("message_events")
        rig.lake.append("message_events", bronze([]), app_id="tap", version=1)
        thread.join(0.2)
        assert thread.is_alive()
        rig.add()
        wait_until(ends(thread), "the query to go on")


def test_spark_does_not_look_between_a_commit_and_its_checksum(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would plan a query for what the checksum says."""
    monkeypatch.setattr(pace, "SETTLE_SECONDS", PATIENCE)
    rig.add()
    newest = rig.lake.ensure("message_events").version()
    told = checksum(rig.lake.path("message_events"), newest)
    text = told.read_text(encoding="utf-8")
    checksum(rig.lake.path("message_events"), newest - 1).write_text(text, encoding="utf-8")
    told.unlink()
    thread = threading.Thread(target=rig.pace.settle, args=(newest,), daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    told.write_text(text, encoding="utf-8")
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_writers_that_leave_no_checksums_are_not_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SETTLE_SECONDS", 10 * PATIENCE)
    rig.add()
    for file in (rig.lake.path("message_events") / "_delta_log").glob("*.crc"):
        file.unlink()
    thread = threading.Thread(target=rig.pace.settle, args=(rig.lake.version("message_events"),), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_query_that_left_data_behind_does_not_rest(rig: Rig) -> None:
    assert rig.pace.rest(None) is None  # it returns: nothing else happens in the table


def test_who_is_stopped_rests_no_longer(rig: Rig) -> None:
    with rig.resting(1) as thread:
        rig.stopping.set()
        wait_until(ends(thread), "the rest to end")


def test_a_rest_is_twice_the_work_but_bounded_and_never_shorter_than_the_interval() -> None:
    assert due(0.1, 0.0) == pytest.approx(0.3)
    assert due(0.1, 0.0, BUSY_ROWS) == pytest.approx(0.05), "much has come: more is coming"
    assert due(0.1, 1.0) == pytest.approx(0.9)
    assert due(5.0, 0.0) == LONGEST_REST
    assert due(5.0, 60.0) == 55.0
    assert due(0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("age", "apart", "wait"),
    [
        (0.3, 0.5, 0.2),  # newer by 0.3 s, for 0.1 s that gold is older on average
        (0.4, 0.5, 0.1),
        (0.1, 0.5, 0.0),  # what is there is new enough
        (0.6, 0.5, 0.0),  # late: nobody knows when it comes
        (0.5, 3.0, 0.0),  # commits too far apart to be reckoned on
        (-5.0, 0.5, 0.0),  # a clock was set
        (0.0, 0.0, 0.0),
    ],
)
def test_a_batch_waits_for_a_commit_that_comes_soon(age: float, apart: float, wait: float) -> None:
    assert until_next(age, apart) == pytest.approx(wait)


def stamp(rig: Rig, version: int, seconds_ago: float) -> None:
    """Have it that ``version`` was committed so long ago."""
    then = time.time() - seconds_ago
    os.utime(log_entry(rig.lake.path("message_events"), version), (then, then))


def test_it_goes_on_with_the_commit_that_it_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEADY_SECONDS", 10 * PATIENCE)
    rig.add()
    rig.add()
    stamp(rig, 1, 3 * PATIENCE)
    stamp(rig, 2, PATIENCE)
    with rig.resting(2) as thread:
        thread.join(0.2)
        assert thread.is_alive()
        rig.add()
        wait_until(ends(thread), "the query to go on")
        assert not rig.stopping.is_set()
    assert rig.newest == 3


def test_it_goes_on_without_one_that_does_not_come(rig: Rig) -> None:
    rig.add()
    rig.add()
    stamp(rig, 1, 0.7)
    stamp(rig, 2, 0.2)
    with rig.resting(2) as thread:
        wait_until(ends(thread), "the query to go on")
        assert not rig.stopping.is_set()
