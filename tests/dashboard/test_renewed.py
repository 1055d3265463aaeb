"""However many look at a page, what it shows is worked out once, and nobody waits for it who has something to see."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from dashboard import repository
from dashboard.renewed import Renewed
from dashboard.repository import Repository
from lake.errors import SojournError
from lake.store import Lake
from lake.versions import Versions
from lake.worker.worker import Worker
from tests.dashboard.conftest import STORY_END
from tests.dashboard.scene import _append as append_rows
from tests.dashboard.scene import alerts_of
from tests.support.waiting import wait_until


def test_who_has_an_answer_does_not_wait_for_a_newer_one_and_has_it_the_next_time() -> None:
    renewed, go, asked = Renewed[int](), Event(), []

    def slow() -> int:
        asked.append(1)
        go.wait(60)
        return 2

    assert renewed.answer("a", lambda: 1, 0.0) == 1
    assert renewed.answer("a", slow, 0.0) == 1 and asked == [], "nothing is new"
    assert [renewed.answer("b", slow, 0.0) for _ in range(20)] == [1] * 20
    go.set()
    assert [renewed.answer("b", slow, 60.0) for _ in range(20)] == [2] * 20
    assert asked == [1], "worked out once for all"


def test_what_came_to_an_end_between_two_looks_is_shown_though_there_is_something_newer_by_then() -> None:
    renewed, go = Renewed[int](), [Event() for _ in range(3)]

    def look(version: int) -> int:
        return renewed.answer(version, lambda: (go[version].wait(60), version)[1], 0.0)

    go[0].set()
    assert look(0) == 0
    for version in (1, 2):
        assert look(version) == version - 1
        work = renewed._work
        assert work is not None
        go[version].set()
        work.result(60)
    assert renewed.answer(3, lambda: Event().wait(0.1), 0.0) == 2, "shown at once, the newest that there is"


def test_the_first_waits_and_an_error_is_told_and_tried_again() -> None:
    renewed, go = Renewed[int](), Event()

    def fails() -> int:
        go.wait(60)
        raise SojournError("gone")

    with ThreadPoolExecutor(4) as pool:
        told = [pool.submit(renewed.answer, "a", fails, 0.0) for _ in range(4)]
        go.set()
        assert {str(one.exception()) for one in told} == {"gone"}
    assert renewed.answer("a", lambda: 1, 0.0) == 1
    with pytest.raises(SojournError):
        renewed.answer("b", fails, 60.0)
    assert renewed.answer("b", lambda: 2, 0.0) == 2, "what was shown before an error is not shown again"


def test_whether_there_is_news_is_known_while_the_lake_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, go = Lake(tmp_path), Event()
    lake.create()
    versions = Versions(tmp_path)
    before = versions.token()
    page = Repository(tmp_path).at_one_instant()
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    assert versions.token() != before
    query = Worker.query
    monkeypatch.setattr(Worker, "query", lambda *told, **more: (go.wait(60), query(*told, **more))[1])
    monkeypatch.setattr(repository, "BELIEVED_SECONDS", 0.0)
    repository._token.clear()
    monkeypatch.setattr(repository, "PRESENT_SECONDS", 0.0)
    try:
        assert Repository(tmp_path).at_one_instant().read == page.read, "a page shows what it has"
    finally:
        go.set()
    wait_until(lambda: bool(Repository(tmp_path).at_one_instant().alert_states()), "what is new to be shown")


def test_where_an_answer_took_longer_than_anybody_waits_the_next_page_has_the_last_at_once() -> None:
    renewed, go = Renewed[int](), Event()
    assert renewed.answer("a", lambda: (Event().wait(0.2), 1)[1], 0.1) == 1 and renewed.took >= 0.2
    assert renewed.answer("b", lambda: (go.wait(60), 2)[1], 0.1) == 1
    go.set()
    assert renewed.begin("b", lambda: 3)[0].result(60) == 2


def test_a_reading_that_takes_long_is_begun_before_the_page_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.create()
    monkeypatch.setattr(repository, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(repository, "AHEAD_SECONDS", 0.0)
    read: list[str] = []
    monkeypatch.setattr(repository, "_present", lambda root: ({"": read.append(root) or []}, {}))
    Repository(tmp_path).at_one_instant(1.5)
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    wait_until(lambda: len(read) == 2, "it is read though no page asks")
    assert Repository(tmp_path).at_one_instant().read_at is None


def test_who_has_a_reading_begun_ahead_does_not_wait_for_what_came_since_unless_that_is_long_ago() -> None:
    renewed, asked = Renewed[str](), Event()

    def look(token: str) -> str:
        return renewed.answer(token, lambda: token, 60.0)

    def ahead() -> None:
        renewed.begin("ahead", lambda: "ahead")[0].result(60)
        asked.set()

    assert look("before") == "before"
    renewed.ahead(0.0, ahead, 60.0)
    assert asked.wait(60)
    wait_until(lambda: renewed._new_until > 0.0, "the timer to have ended")
    assert look("since") == "ahead", "as of a moment ago, at once"
    renewed._new_until = monotonic()
    assert look("since") == "since"


def test_however_often_somebody_looks_what_is_begun_ahead_is_the_newest() -> None:
    renewed = Renewed[int]()
    for number in range(3):
        begun = Event()

        def ahead(token: int = number, begun: Event = begun) -> None:
            renewed.begin(token, lambda: token, ahead=True)[0].result(60)
            begun.set()

        wait_until(lambda: renewed._timer is None or not renewed._timer.is_alive(), "the timer to have ended")
        renewed.ahead(0.0, ahead, 60.0)
        assert begun.wait(60)
        assert renewed.answer(99, lambda: 99, 60.0) == number, "each time from before the last one was due"
