"""Who is to blame for a queue that is late: never who sends less than before, nor everybody at once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.blame import rose_abruptly, sends_as_always
from alerts.laws.observation import Observation

rates = st.floats(0, 1e5)


@given(rates, rates, rates, rates, st.floats(0, 10))
def test_the_more_it_sends_the_less_it_is_acquitted(
    sends: float, usual: float, others: float, others_usual: float, more: float
) -> None:
    throughput = usual + others_usual
    if sends_as_always(sends + more, usual, others, others_usual, throughput):
        assert sends_as_always(sends, usual, others, others_usual, throughput)


@given(rates, rates, rates, rates, rates)
def test_where_the_others_did_not_rise_nobody_is_acquitted(
    sends: float, usual: float, others_usual: float, fell: float, throughput: float
) -> None:
    assert not sends_as_always(sends, usual, max(0.0, others_usual - fell), others_usual, throughput)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=2, max_size=20), st.floats(0, 1e5))
def test_whoever_rose_by_more_than_all_others_together_is_never_acquitted(
    tenants: list[tuple[float, float]], throughput: float
) -> None:
    rises = [sends - usual for usual, sends in tenants]
    culprit = max(range(len(tenants)), key=rises.__getitem__)
    others = [one for number, one in enumerate(tenants) if number != culprit]
    if rises[culprit] >= sum(sends - usual for usual, sends in others):
        usual, sends = tenants[culprit]
        asked, before = sum(sends for _, sends in others), sum(usual for usual, _ in others)
        assert not sends_as_always(sends, usual, asked, before, throughput) or rises[culprit] < asked - before


LATELY = Observation(
    data_age_seconds=0.3, sample_age_seconds=0.3, depth=60, coverage=1.0, backlog=60, quiet_age_seconds=1.0, calm=False,
    completion_rate=80.0, active_tenants=8, arrival_rate=70.0, others_rate=70.0, finish_rate=95.0, recent_seconds=2,
)  # fmt: skip


@given(st.floats(0, 200), st.floats(1, 60))
def test_what_a_tenant_sends_as_usual_is_no_abrupt_rise(usual: float, seconds: float) -> None:
    same = replace(LATELY, arrival_rate=usual + min(0.25 * usual, 4 * (usual / seconds) ** 0.5), recent_seconds=seconds)
    assert not rose_abruptly(same, usual)


@given(st.floats(0, 500), st.floats(0, 100), st.floats(0, 100))
def test_the_more_it_rose_the_surer_it_is(sends: float, usual: float, more: float) -> None:
    if rose_abruptly(replace(LATELY, arrival_rate=sends), usual):
        assert rose_abruptly(replace(LATELY, arrival_rate=sends), max(0.0, usual - more))


def test_a_rise_is_abrupt_where_a_tenant_sent_little_and_is_beyond_its_share() -> None:
    """Of 95/s the others leave 25/s; counts over two seconds vary by 10/s."""
    assert rose_abruptly(LATELY, 2.0)
    assert not rose_abruptly(LATELY, None), "what is usual is not known"
    assert not rose_abruptly(LATELY, 50.0), "20/s more are four times what 50/s vary by"
    assert not rose_abruptly(replace(LATELY, arrival_rate=44.0), 2.0), "beyond its share by no more than chance"
