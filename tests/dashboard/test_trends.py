"""The last hour in small pictures: what each minute is called, and that nothing unknown is drawn."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard.pages import spark
from dashboard.services.keys import QueueKey
from dashboard.services.series import Curve
from dashboard.services.trends import Minute, Recent, Trend, last_hour, level, trends
from lake.histogram import bucket_index

AS_OF = datetime(2026, 3, 1, 3, 6, 58, tzinfo=UTC)
SPAN = last_hour(AS_OF)
KEY = QueueKey("nats", "orders")
ROW = {"broker": "nats", "queue": "orders", "subscriber": None}


def tail(minute: int, p99: float, attempts: int = 10) -> dict[str, Any]:
    """The p99 of the ``minute``-th minute before the end."""
    return {**ROW, "at": SPAN.end - 60 * minute, "index": bucket_index(p99), "attempts": attempts}


def trend(**rows: list[dict[str, Any]]) -> Trend:
    recent = Recent(**{"tails": [], "backlogs": [], "rates": [], "states": [], **rows})
    return trends(SPAN, recent, {KEY: AS_OF}, 30.0)[KEY]


def test_the_hour_ends_with_the_newest_data_and_has_sixty_minutes() -> None:
    assert SPAN.end - SPAN.start == 3600 and SPAN.end == int(datetime(2026, 3, 1, 3, 7, tzinfo=UTC).timestamp())
    assert len(trend(tails=[tail(0, 1.0)]).strip) == 60


@pytest.mark.parametrize(
    ("p99", "expected"), [(0.0, 0), (15.0, 0), (15.1, 1), (30.0, 1), (30.1, 2), (120.0, 2), (120.1, 3), (9e9, 3)]
)
def test_a_minute_is_judged_by_its_distance_from_the_target(p99: float, expected: int) -> None:
    assert level(p99, 30.0) == expected


def test_each_minute_says_its_value_and_a_minute_without_attempts_says_so() -> None:
    strip = trend(tails=[tail(0, 60.0, attempts=412), tail(2, 0.04, attempts=1)]).strip
    assert strip[-1].words.startswith("03:06 UTC: p99 1 min") and "of 412 first attempts" in strip[-1].words
    assert strip[-1].level == 2 and strip[-3].level == 0 and "of 1 first attempt," in strip[-3].words
    assert strip[-2].level is None and strip[-2].words == "03:05 UTC: no first attempt was seen"


def test_a_strip_is_told_to_those_who_cannot_see_it() -> None:
    said = trend(tails=[tail(0, 10.0), tail(1, 60.0), tail(2, 0.04)]).said
    assert "beyond the target of 30 s in 1 of 3 minutes" in said and "at 03:05 UTC" in said


def test_levels_and_rates_are_drawn_from_when_on_they_are_known() -> None:
    begun = SPAN.end - 600
    found = trend(
        backlogs=[{**ROW, "at": begun, "backlog": 12}, {**ROW, "at": SPAN.end, "backlog": -2}],
        rates=[{**ROW, "at": begun, "arrival_rate": 4.0, "completion_rate": 3.0}],
    )
    assert found.backlog is not None and found.arrivals is not None
    assert found.backlog.values[-12:] == (None, *[12.0] * 10, 10.0)
    assert found.arrivals.values[-12] is None and found.arrivals.last == 4.0


def test_what_a_broker_that_fell_silent_had_last_is_not_drawn_on() -> None:
    recent = Recent([tail(30, 1.0)], [{**ROW, "at": SPAN.end - 1800, "backlog": 7}], [], [])
    found = trends(SPAN, recent, {KEY: AS_OF - timedelta(minutes=30)}, 30.0)[KEY]
    assert found.backlog is not None and found.backlog.last is None and 7.0 in found.backlog.values


def test_a_queue_that_is_only_sampled_has_its_depth_and_no_strip() -> None:
    found = trend(states=[{**ROW, "at": SPAN.start, "depth": 40}, {**ROW, "at": SPAN.end - 60, "depth": 12}])
    assert found.strip == () and found.backlog is None
    assert found.depth is not None and found.depth.values[0] == 40 and found.depth.last == 12
    assert "40 at first, at most 40, 12 at last" in spark.card(found)


def test_a_queue_of_which_nothing_is_known_draws_nothing() -> None:
    assert spark.backlog(trend()) == spark.flow(trend()) == "" and "<img" not in spark.card(trend())


def test_the_minutes_of_one_row_of_many_are_one_picture_that_tells_them_by_height_and_by_colour() -> None:
    levels = (0, 0, 1, 2, 3, None)
    picture = spark.hour(Trend(tuple(Minute(level, "") for level in levels), "late in 2 of 5 minutes"))
    assert picture.count("<") == 1 and 'alt="late in 2 of 5 minutes"' in picture
    drawn = [re.findall(r"M\d+ 22v-(\d+)", path) for path in picture.split("%3Cpath")[1:5]]
    assert [len(heights) for heights in drawn] == [2, 1, 1, 1] and all(len(set(heights)) == 1 for heights in drawn)
    assert [int(heights[0]) for heights in drawn] == sorted({int(heights[0]) for heights in drawn})
    assert len({re.search(r"stroke='([^']+)'( opacity)?", path)[0] for path in picture.split("%3Cpath")[1:5]}) == 4  # type: ignore[index]


def test_a_line_breaks_where_nothing_is_known_and_is_an_image_with_words() -> None:
    picture = spark.backlog(Trend(backlog=Curve("backlog", (1.0, 2.0, None, None, 3.0, 4.0))))
    assert picture.count("stroke='%234c8fbd'") == 2  # a line each
    assert 'alt="backlog, last hour: 1 at first, at most 4, 4 at last"' in picture
