"""Who waits for a commit is woken by the kernel, and looks by itself wherever that cannot be relied on."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lake.log import log_entry
from lake.log_watch import MOST_MISSED, LogWatch
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")

#: As long as a test may take, and a little more: a wait that ends by this ends too late.
FOREVER = 20 * PATIENCE


class NeverLook(threading.Event):
    """Ends no wait: whoever looks by itself is found out."""

    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError("it looks by itself")


class Looks(threading.Event):
    """Counts how often somebody looks by itself."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return False


@pytest.fixture
def table(tmp_path: Path) -> Path:
    log_entry(tmp_path / "table", 0).parent.mkdir(parents=True)
    return tmp_path / "table"


def commit(table: Path, version: int) -> None:
    """As ours are made: written beside, then linked."""
    draft = table / "_delta_log" / f"_commit_{version}.json.tmp"
    draft.write_text("{}")
    log_entry(table, version).hardlink_to(draft)
    draft.unlink()


@contextmanager
def waiting(watch: LogWatch) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=watch.wait, args=(0.001, NeverLook(), FOREVER), daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    yield thread
    thread.join(FOREVER / 2)
    assert not thread.is_alive()


def ready(*tables: Path) -> LogWatch:
    """A watch that has looked once, as its first wait is for."""
    watch, looks = LogWatch(*tables), Looks()
    watch.wait(0.001, looks)
    assert looks.count == 1, "nobody tells what was committed before"
    return watch


def test_a_commit_ends_the_wait_and_nothing_else_in_the_log_does(table: Path) -> None:
    watch = ready(table)
    with waiting(watch) as thread:
        (table / "_delta_log" / "00000000000000000000.crc").write_text("{}")
        (table / "_delta_log" / "_last_checkpoint").write_text("{}")
        thread.join(0.1)
        assert thread.is_alive()
        commit(table, 0)
    with waiting(watch):  # as deltalake makes one
        draft = table / "_delta_log" / "draft"
        draft.write_text("{}")
        draft.rename(log_entry(table, 1))


def test_of_several_tables_each_ends_it_and_one_committed_between_two_waits_ends_the_next(
    table: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "_delta_log").mkdir(parents=True)
    watch = ready(table, other)
    for each in (table, other):
        with waiting(watch):
            commit(each, 0)
    commit(other, 1)
    watch.wait(0.001, NeverLook(), FOREVER)


def test_a_table_that_is_not_there_yet_and_one_that_is_made_anew_are_looked_for(tmp_path: Path) -> None:
    watch, looks, table = LogWatch(tmp_path / "later"), Looks(), tmp_path / "later"
    watch.wait(0.001, looks)
    watch.wait(0.001, looks)
    assert looks.count == 2
    for round in range(2):
        (table / "_delta_log").mkdir(parents=True)
        watch.wait(0.001, looks)
        assert looks.count == 3 + 2 * round, "what came before it was watched"
        with waiting(watch):
            commit(table, 0)
        shutil.rmtree(table)
        watch.wait(0.001, NeverLook(), FOREVER)  # told that it goes
        watch.wait(0.001, looks)
        assert looks.count == 4 + 2 * round


def test_where_commits_come_of_which_nobody_tells_it_is_looked_as_often_as_without(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, looks = ready(table), Looks()
    watch.wait(0.001, looks, 0.001)
    commit(table, 0)
    watch.found()  # told between the wait and the look: no reason for doubt
    monkeypatch.setattr(watch, "_came", lambda seconds: False)  # as on a disk that another machine writes
    for number in range(MOST_MISSED):
        watch.wait(0.001, looks)
        assert looks.count == 0, number
        watch.found()
    watch.wait(0.001, looks)
    assert looks.count == 1
