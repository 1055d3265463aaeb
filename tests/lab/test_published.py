"""Published tables, with tolerances; and the plots of the lab's pages."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws import admission, publishing
from alerts.laws.aimd import PRIORITIES
from alerts.laws.bounds import Bounds
from alerts.laws.partitions import admits
from lab.breakwater import LAWS, spike
from lab.document import published
from lab.plot import bars, curves
from lab.published import CAPACITIES, WANTED, partitioned, priorities
from lab.stats import NOTHING, Estimate, estimate
from lab.sums import Sum, sums, table
from tests.support.deep import examples


@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_live_traffic_hardly_notices_what_batch_traffic_does(seed: int) -> None:
    calm, flood = partitioned(seed)
    assert calm["live"].part > 0.95 and flood["live"].part > 0.93
    assert flood["live"].part > calm["live"].part - 0.05
    assert flood["batch"].served == pytest.approx(5000, rel=0.12), "what live traffic leaves of 100/s"


def test_without_guarantees_both_lose() -> None:
    _, flood = partitioned(0, live_share=0.0)
    assert flood["live"].part < 0.8


@given(st.integers(1, 100), st.integers(0, 200), st.integers(0, 200), st.floats(0, 1))
def test_a_partition_is_admitted_within_its_part_and_wherever_there_is_room(
    limit: int, others: int, own: int, share: float
) -> None:
    assert admits(limit, others + own, own, share) == (others + own < limit or own < max(1, math.ceil(limit * share)))
    if own < math.floor(limit * share):
        assert admits(limit, others + own, own, share)


@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_the_first_priority_stays_while_the_third_yields(seed: int) -> None:
    first, second, third = priorities(seed)
    slow = [one.mean(120, 200) for one in (first, second, third)]
    assert slow[0] > 0.8 * WANTED and slow[0] > 1.4 * slow[1] and slow[1] > 1.4 * slow[2]
    assert sum(slow) == pytest.approx(min(CAPACITIES), rel=0.15), "what the broker takes is used"
    assert all(one.mean(250, 300) > 0.75 * WANTED for one in (first, second, third)), "afterwards they come back"


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1), st.booleans()), max_size=200),
    st.sampled_from(sorted(PRIORITIES)),
)
def test_a_throttle_keeps_its_bounds_and_says_why(ended: list[tuple[float, float, bool]], priority: str) -> None:
    terms = publishing.Terms(priority, Bounds(2.0, 50.0, 1.0))
    state, statistics, now = publishing.State(50.0), publishing.Statistics(terms.window_seconds), 0.0
    for wait, seconds, failed in ended:
        now += wait
        statistics.add(now, seconds, failed=failed)
        before = state
        state, reason = publishing.step(terms, state, statistics, now)
        assert reason and 2.0 <= state.rate <= 50.0
        if state != before:
            count, middle, errors = statistics.seen(now)
            assert count >= terms.least and now - before.changed_at >= terms.window_seconds
            assert (state.rate > before.rate) <= (middle <= terms.most_seconds and errors <= terms.most_errors)


def test_breakwaters_spike_is_ranked_as_published() -> None:
    first, second, third = (spike(law, 1) for law in LAWS)
    assert [one.law for one in (first, second, third)] == ["Breakwater", "DAGOR", "SEDA"]
    assert first.stable_after < 0.02 <= second.stable_after < 0.5 < third.stable_after
    assert first.goodput > 0.97 > second.goodput > 0.85 > third.goodput


@given(st.floats(1, 1e3), st.floats(0, 1e4), st.integers(1, 10_000))
def test_breakwaters_credits_fall_by_half_at_most_and_keep_their_bounds(
    credits: float, delay: float, clients: int
) -> None:
    found = admission.breakwater(credits, delay, 80.0, clients, 1e3)
    assert 1 <= found <= 1e3 and found >= min(credits, credits / 2)
    assert (found <= credits) if delay >= 80 else (found >= credits)


@given(st.floats(1, 1e4), st.floats(0, 1e4))
def test_seda_and_dagor_go_down_beyond_their_targets_alone(rate: float, p99: float) -> None:
    found = admission.seda(rate, p99, 80.0, 1e4)
    assert 1 <= found <= 1e4
    assert (found <= rate) == (p99 > 80 or p99 >= 40 or found == rate)
    assert admission.dagor(rate, 2e4, p99, 80.0) == pytest.approx(0.95 * rate if p99 > 80 else rate + 200)


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?", text.replace("twice", "2"))]


@pytest.mark.parametrize("one", sums(), ids=lambda one: one.what)
def test_what_a_formula_says_is_what_was_published(one: Sum) -> None:
    assert numbers(one.ours) == pytest.approx(numbers(one.published), rel=0.08) and numbers(one.ours)


def test_the_page_has_these_sums_as_they_are() -> None:
    assert table() in (Path(__file__).parents[2] / "docs/lab/published.md").read_text(encoding="utf-8")


def test_the_page_and_its_plots_are_well_formed() -> None:
    text, plot = published(2)
    assert "| 100/s |" in text and "| P3 |" in text and "(priorities.svg)" in text
    for drawn in (plot, bars([("<a>", Estimate(0.13, 0.11, 0.15)), ("none", NOTHING), ("b", estimate([43.0]))], "s")):
        root = ElementTree.fromstring(drawn)
        assert root.tag.endswith("svg") and len(root) > 4
        assert "script" not in drawn
    assert bars([("none", NOTHING)], "s") == ""
    assert "polyline" in curves([("a", [0, 1, 2])], "/s")
