"""What many look at is drawn once; what differs in anything is drawn anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import spark
from dashboard.services.series import Curve, Span
from dashboard.services.trends import Trend
from dashboard.shared import shared
from dashboard.theme import CALM

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
