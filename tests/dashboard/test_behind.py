"""History is worked out behind the pages: nobody waits for it but who never saw any."""

from __future__ import annotations

from threading import Event
from time import monotonic

import pytest

from dashboard.behind import LEAST_REST, OLDEST_SECONDS, REST, Behind
from lake.errors import SojournError
from tests.support.waiting import PATIENCE, wait_until

LONG = 20.0 * PATIENCE


def test_the_first_answer_is_waited_for_a_while_and_shown_when_it_is_there() -> None:
    behind, go = Behind(), Event()
    assert behind.answer("q", (1,), lambda: (go.wait(), "one")[1], 0.01) is None
    assert behind.answer("q", (1,), lambda: "never", 0.01) is None, "it is worked out once"
    go.set()
    assert behind.answer("q", (1,), lambda: "never", LONG) == "one"


def test_who_asks_later_does_not_wait_as_long_again_for_what_somebody_waited_for_in_vain() -> None:
    behind, go = Behind(), Event()
    assert behind.answer("q", (1,), go.wait, 0.01) is None
    behind._known["q"].first -= 2 * LONG  # asked for long ago
    begun = monotonic()
    assert behind.answer("q", (1,), go.wait, LONG) is None
    assert monotonic() - begun < LONG
    go.set()


def test_an_old_answer_is_shown_at_once_while_a_newer_one_is_worked_out() -> None:
    behind, go = Behind(), Event()
    assert behind.answer("q", (1,), lambda: "one", LONG) == "one"

    def newer() -> str:
        go.wait()
        return "two"

    wait_until(lambda: behind._known["q"].due < monotonic(), "the rest")
    assert behind.answer("q", (1,), newer, LONG) == "one", "nothing has changed"
    assert behind.answer("q", (2,), newer, LONG) == "one"
    go.set()
    wait_until(lambda: behind.answer("q", (2,), newer, LONG) == "two", "the newer answer")


def test_what_fails_at_first_is_said_and_tried_again_and_later_failures_keep_the_answer() -> None:
    behind = Behind()

    def fail() -> str:
        raise SojournError("the lake cannot be read")

    with pytest.raises(SojournError, match="cannot be read"):
        behind.answer("q", (1,), fail, LONG)
    behind._known["q"].due = monotonic() + 1000
    with pytest.raises(SojournError, match="cannot be read"):
        behind.answer("q", (2,), lambda: "too soon", LONG)
    behind._known["q"].due = 0
    assert behind.answer("q", (2,), lambda: "one", LONG) == "one"
    for version in range(3, 20):
        assert behind.answer("q", (version,), fail, LONG) == "one"


def test_while_the_process_ends_pages_keep_what_they_have_and_nothing_is_logged() -> None:
    behind = Behind()
    assert behind.answer("q", (1,), lambda: "one", LONG) == "one"
    behind._known["q"].due = 0
    behind._worker.shutdown()
    assert behind.answer("q", (2,), lambda: "two", LONG) == "one"
    assert behind.answer("another", (2,), lambda: "two", LONG) is None


def test_many_answers_rest_as_long_as_all_of_them_took_together() -> None:
    behind = Behind()

    def slow() -> str:
        Event().wait(0.05)
        return "slow"

    for number in range(4):
        assert behind.answer(number, (1,), slow, LONG) == "slow"
        behind._known[number].work.result(LONG)
    took = [behind._known[number].took for number in range(4)]
    assert behind._known[3].due - behind._known[0].due > REST * sum(took[1:])
    assert behind.answer(3, (2,), lambda: "too soon", 0.0) == "slow"


@pytest.mark.parametrize(
    ("all_took", "rest"),
    [(1.0, REST), (8.0, OLDEST_SECONDS), (100.0, 100.0 * LEAST_REST)],
    ids=["little", "much", "very much"],
)
def test_an_answer_gets_no_older_than_some_minutes_unless_reading_it_takes_a_good_part_of_them(
    all_took: float, rest: float
) -> None:
    behind = Behind()
    assert behind.answer("long", (1,), lambda: "long", LONG) == "long"
    behind._known["long"].work.result(LONG)  # an answer is there a moment before what it took is put down
    behind._known["long"].took = all_took
    assert behind.answer("short", (1,), lambda: "short", LONG) == "short"
    behind._known["short"].work.result(LONG)
    assert behind._known["short"].due - monotonic() == pytest.approx(rest, rel=0.05, abs=LONG)


def test_who_has_something_else_to_show_waits_until_all_that_was_worked_out_has_rested() -> None:
    behind = Behind()
    assert behind.answer("first", (1,), lambda: "first", LONG, patient=True) == "first", "nobody has asked before"
    behind._rested = monotonic() + 1000
    assert behind.answer("another", (1,), lambda: "another", LONG, patient=True) is None
    assert "another" not in behind._known
    assert behind.answer("first", (1,), lambda: "first", LONG, patient=True) == "first", "what is known costs nothing"
    assert behind.answer("another", (1,), lambda: "another", LONG) == "another", "nobody has to be patient"
    assert behind._rested > monotonic() + 1000 - LONG
    behind._rested = 0.0
    assert behind.answer("a third", (1,), lambda: "a third", LONG, patient=True) == "a third"
