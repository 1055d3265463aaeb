"""What many look at is drawn once; what differs in anything is drawn anew."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta, timezone
from threading import Barrier, Event

import pytest

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import spark
from dashboard.services.series import Curve, Span
from dashboard.services.trends import Trend
from dashboard.shared import Once, shared
from dashboard.theme import CALM
from tests.support.waiting import PATIENCE

SPAN, CURVE = Span(0, 60, 10), Curve("one", (1.0, None, 2.0, 3.0, 2.0, 1.0, 0.0))


def test_the_same_arguments_are_drawn_once_whether_they_are_lists_or_sets_of_their_own() -> None:
    drawn: list[object] = []

    @shared(2)
    def draw(*told: object, named: object = None) -> int:
        drawn.append((told, named))
        return len(drawn)

    assert draw([1, [2, 3]], {"a"}, named=[4]) == draw([1, [2, 3]], {"a"}, named=[4]) == 1
    assert draw([1, [2, 4]], {"a"}, named=[4]) == 2 and draw([1, [2, 3]], {"a"}, named=[5]) == 3
    assert draw([1, [2, 3]], {"a"}, named=[4]) == 4, "no more than two are kept"


def test_a_picture_is_drawn_once_for_all_and_anew_for_another_zone_or_value() -> None:
    def picture(span: Span, curve: Curve) -> object:
        return figures.lines(span, [(Line("one", CALM[0]), curve)], "s", [])

    first = picture(SPAN, CURVE)
    assert picture(Span(0, 60, 10), Curve("one", CURVE.values)) is first
    elsewhere = replace(SPAN, zone=timezone(timedelta(hours=9)))
    assert (
        picture(elsewhere, CURVE) is not first and picture(SPAN, Curve("one", (*CURVE.values[:-1], 9.0))) is not first
    )


def test_a_line_in_a_table_follows_its_values() -> None:
    low, high = (spark.backlog(Trend(backlog=Curve("backlog", (0.0, top)))) for top in (1.0, 2000.0))
    assert low != high and "2,000" in high and spark.backlog(Trend(backlog=Curve("backlog", (0.0, 1.0)))) is low


def test_what_was_made_of_a_reading_is_made_once_however_many_ask_at_one_time() -> None:
    made, everybody, asked = Once(2), Barrier(8), Counter[str]()

    def make() -> int:
        asked["made"] += 1
        everybody.wait(PATIENCE)  # the seven others have asked by now
        return 5

    def ask(number: int) -> int:
        if number:
            everybody.wait(PATIENCE)
        return made.of("overview", make)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(ask, range(8))] == [5] * 8 and asked["made"] == 1
    assert made.of("tenants", lambda: 6) == 6 and made.of("queue", lambda: 7) == 7
    assert made.of("overview", lambda: 8) == 8, "no more than two are kept"


@pytest.mark.parametrize("stopped", [False, True])
def test_who_fails_or_is_stopped_while_it_is_made_leaves_nothing_behind(stopped: bool) -> None:
    made, begun, go = Once(2), Event(), Event()

    def fail() -> int:
        begun.set()
        assert go.wait(PATIENCE)
        raise (KeyboardInterrupt if stopped else ValueError)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(made.of, "overview", fail)
        assert begun.wait(PATIENCE)
        second = pool.submit(made.of, "overview", lambda: 5)
        go.set()
        assert isinstance(first.exception(PATIENCE), KeyboardInterrupt if stopped else ValueError)
        if stopped:
            assert second.result(PATIENCE) == 5, "that another was stopped is no answer"
    assert made.of("overview", lambda: 5) == 5
