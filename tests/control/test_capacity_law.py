"""How many consumers a queue needs: by Little's law, within the interval promised, and not where more help nobody."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws import concurrency
from alerts.laws.capacity import Level, Seen, State, Terms, required, step, stopped_rising

rates, times = st.floats(0, 1e5), st.floats(1e-4, 1e3)
looks = st.builds(Seen, rates, rates, st.floats(0, 1e7), times, st.integers(0, 1000), st.booleans())


def test_published_numbers() -> None:
    def needed(seen: Seen, drain_seconds: float = 300) -> float:
        return (required(Terms(drain_seconds=drain_seconds), seen) or (0, 0, 0))[1]

    assert needed(Seen(100, 100, 0, 0.1)) == pytest.approx(10) == concurrency.littles_law(100, 0.1)
    assert needed(Seen(100, 100, 0, 10)) == pytest.approx(1000), "a dependency slows to 10 s"
    assert needed(Seen(2, 2, 7200, 1.0), 3600) == pytest.approx(4), "an hour's outage: twice the capacity for an hour"


@given(looks, st.floats(0, 1e4), st.floats(1, 10))
def test_more_work_never_needs_fewer(seen: Seen, more: float, longer: float) -> None:
    terms = Terms()
    low, value, high = required(terms, seen) or (0, 0, 0)
    assert 0 <= low <= value <= high
    for other in (
        Seen(seen.arrival_rate + more, seen.finish_rate, seen.backlog, seen.service_seconds),
        Seen(seen.arrival_rate, seen.finish_rate, seen.backlog + more, seen.service_seconds),
        Seen(seen.arrival_rate, seen.finish_rate, seen.backlog, (seen.service_seconds or 0) * longer),
    ):
        assert (required(terms, other) or (0, 0, 0))[1] >= value
    assert (required(Terms(drain_seconds=300 * longer), seen) or (0, 0, 0))[1] <= value


@given(st.lists(looks, max_size=30), st.integers(0, 5), st.integers(5, 50))
def test_advice_is_within_its_bounds_whatever_is_seen_and_says_why(seens: list[Seen], fewest: int, most: int) -> None:
    terms, state = Terms(fewest=fewest, partitions=most), State()
    for number, seen in enumerate(seens):
        state, advice = step(terms, seen, state, 30.0 * number)
        assert advice.reason and advice.consumers is not None and fewest <= advice.consumers <= most
        assert [level.consumers for level in state.levels] == sorted({level.consumers for level in state.levels})
        if seen.consumers and fewest <= seen.consumers <= most and stopped_rising(terms, state.levels) is None:
            assert advice.consumers >= min(most, math.ceil((advice.required or 0) - 1e-6))


def test_the_interval_covers_as_often_as_it_promises() -> None:
    """20/s, half a second each, looked at through windows of a minute: ten are in work at once."""
    chance, covered, runs = random.Random(1), 0, 300
    for _ in range(runs):
        arrived, clock = 0, chance.expovariate(20)
        while clock < 60:
            arrived, clock = arrived + 1, clock + chance.expovariate(20)
        service = sum(chance.expovariate(2) for _ in range(arrived)) / arrived
        low, _, high = required(Terms(), Seen(arrived / 60, arrived / 60, 0, service)) or (0, 0, 0)
        covered += low <= 10 <= high
    assert covered / runs == pytest.approx(0.9, abs=0.05)


def test_nothing_to_do_needs_nobody_and_what_is_not_known_is_not_guessed() -> None:
    assert step(Terms(fewest=0), Seen(0, 0, 0, None), State(), 0)[1].consumers == 0
    _, advice = step(Terms(), Seen(5, 0, 100, None, 3), State(), 0)
    assert advice.consumers is None and advice.required is None and "not known" in advice.reason


def test_no_more_consumers_than_partitions() -> None:
    _, advice = step(Terms(partitions=12), Seen(1000, 100, 0, 1.0, 4), State(), 0)
    assert advice.consumers == 12 and advice.required == pytest.approx(1000) and "12 partitions" in advice.reason


def test_a_few_messages_less_send_nobody_home() -> None:
    assert step(Terms(), Seen(9.6, 9.6, 0, 1.0, 11), State(), 0)[1].consumers == 11, "within the interval"
    assert step(Terms(), Seen(5.0, 5.0, 0, 1.0, 11), State(), 0)[1].consumers == 5
    assert step(Terms(), Seen(11.4, 11, 0, 1.0, 11), State(), 0)[1].consumers == 12, "but more work calls at once"


def scaled(throughput_of: dict[int, float], *, seconds: int, arrivals: float = 300.0) -> list[tuple[int, str]]:
    """Follow the advice for ``seconds``: what it was each 5 s. Each consumer takes one message at once."""
    terms, state, chance = Terms(partitions=64), State(), random.Random(3)
    there, backlog, told = 1, 0.0, []
    for now in range(0, seconds, 5):
        best = max(number for number in throughput_of if number <= there)
        throughput = min(throughput_of[best], arrivals + backlog / 5)
        finished = max(0.0, chance.gauss(throughput, math.sqrt(throughput / 60)))
        backlog = max(0.0, backlog + 5 * (arrivals - throughput))
        state, advice = step(
            terms, Seen(arrivals, finished, backlog, there / throughput, there, backlog > 0), state, float(now)
        )
        told.append((advice.consumers or there, advice.reason))
        if now % 120 == 0 and advice.consumers is not None:  # a scaler doubles at most
            there = min(advice.consumers, 2 * there)
    return told


def test_it_stops_where_throughput_stops_rising_and_says_why() -> None:
    """Whatever is shared by the consumers is the limit at 100/s: eight use it up, and sixteen wait for it."""
    told = scaled({1: 12.5, 2: 25, 4: 50, 8: 100}, seconds=1500)
    assert max(number for number, _ in told[-100:]) <= 16
    assert "throughput stopped rising: 8 consumers finished" in told[-1][1]


def test_it_goes_on_where_each_consumer_brings_its_part() -> None:
    told = scaled({number: 12.5 * number for number in range(1, 65)}, seconds=1500)
    assert not any("stopped rising" in reason for _, reason in told)
    assert max(number for number, _ in told) > 24


def test_what_was_measured_long_ago_refuses_nothing() -> None:
    flat = (Level(4, 6000, 60, 0.0), Level(8, 6060, 60, 100.0))
    seen = Seen(300, 100, 1000, 0.08, 8, waiting=True)
    assert step(Terms(), seen, State(flat), 200.0)[1].consumers == 8
    assert (step(Terms(), seen, State(flat), 1900.0)[1].consumers or 0) > 8, "it may be tried again"


def test_who_has_fewer_may_have_as_many_as_helped() -> None:
    flat = (Level(4, 6000, 60, 0.0), Level(8, 6060, 60, 100.0))
    assert step(Terms(), Seen(300, 50, 1000, 0.08, 2, True), State(flat), 200.0)[1].consumers == 4


def test_throughput_is_measured_only_while_messages_wait() -> None:
    state = State()
    for now in range(0, 600, 5):
        state, _ = step(Terms(), Seen(50, 50, 0, 0.08, 1 + now // 100, waiting=False), state, float(now))
    assert state.levels == ()


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1, 1e4)), min_size=2, max_size=8))
def test_what_scales_in_proportion_is_never_refused(levels: list[tuple[int, float]]) -> None:
    each = levels[0][1]
    found = [Level(number, each * number * 60, 60, 0) for number in sorted({number for number, _ in levels})]
    assert stopped_rising(Terms(), found) is None


@pytest.mark.parametrize(
    "wrong", [{"drain_seconds": 0}, {"per_consumer": 0}, {"fewest": 5, "partitions": 4}, {"least_gain": 1}]
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|at least"):
        Terms(**wrong)  # type: ignore[arg-type]
