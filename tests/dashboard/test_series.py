from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dashboard.figures import Line
from dashboard.pages.story import _begun, _Past
from dashboard.services.series import OTHER, RANGES, Curve, Span, last_values, levels, quantiles
from lake.histogram import bucket_index

SPAN = Span(start=1000, end=1040, step=10)


def test_a_span_ends_with_the_newest_data_in_whole_bins() -> None:
    span = Span.ending(datetime.fromtimestamp(1_000_003, UTC), "15 min")
    assert (span.end, span.step, span.end - span.start) == (1_000_005, 5, 900)


@pytest.mark.parametrize("name", RANGES)
def test_no_range_draws_more_than_a_screen_can_show(name: str) -> None:
    seconds, step = RANGES[name]
    assert seconds // step <= 400


def test_levels_add_up_changes_and_fill_the_gaps_between_them() -> None:
    rows = [{"at": 900, "tenant": "a", "backlog": 5}, {"at": 1011, "tenant": "a", "backlog": 3}]
    rows.append({"at": 1040, "tenant": "a", "backlog": -8})
    (curve,) = levels(SPAN, rows, "backlog", by="tenant")
    assert curve.values == (5, 5, 8, 8, 0)


def test_before_anything_is_known_a_level_is_unknown_not_zero() -> None:
    known_from = datetime.fromtimestamp(1020, UTC)
    (curve,) = levels(SPAN, [{"at": 1020, "n": 4}], "n", known_from=known_from)
    assert curve.values == (None, None, 4, 4, 4)


def test_the_largest_curve_comes_first_and_the_others_last() -> None:
    rows = [{"at": 1000, "tenant": name, "n": n} for name, n in ((None, 100), ("small", 1), ("large", 9))]
    assert [curve.name for curve in levels(SPAN, rows, "n", by="tenant")] == ["large", "small", OTHER]


def test_quantiles_merge_the_histograms_of_a_bin_and_leave_empty_bins_unknown() -> None:
    rows = [
        {"at": 1010, "who": "quiet", "index": bucket_index(1.0), "count": 98},
        {"at": 1009, "who": "quiet", "index": bucket_index(30.0), "count": 2},
        {"at": 1010, "who": "noisy", "index": bucket_index(60.0), "count": 1},
    ]
    noisy, quiet = quantiles(SPAN, rows, 0.99, by="who")
    assert quiet.values[1] == pytest.approx(30.0, rel=0.006)
    assert noisy.values[1] == pytest.approx(60.0, rel=0.006)
    assert quiet.values[2] is None


def test_a_limit_holds_until_the_next_reading() -> None:
    rows = [{"at": 990, "n": 10}, {"at": 1020, "n": None}, {"at": 1025, "n": 20}]
    curve = last_values(SPAN, rows, "n")
    assert curve is not None and curve.values == (10, 10, 10, 20, 20)
    assert last_values(SPAN, [{"at": 990, "n": None}], "n") is None


def test_the_overviews_picture_begins_with_what_is_known_and_keeps_a_third_of_its_range() -> None:
    span = Span(start=0, end=90, step=10)
    for unknown, begins in ((0, 0), (3, 30), (9, 60), (10, 60)):
        curve = Curve("a", (None,) * unknown + (1.0,) * (10 - unknown))
        ages = Curve("quiet", (None,) * 9 + (2.0,))
        found = _begun(_Past(span, True, (), (curve,), [(Line("p99", "#000"), ages)], (ages,), (ages,)))
        assert found.span == Span(start=begins, end=90, step=10)
        bins = len(found.span.seconds)
        assert found.curves[0].values == curve.values[-bins:] and len(found.ages[0][1].values) == bins
        assert found.p50 == found.p99 == (Curve("quiet", ages.values[-bins:]),)
