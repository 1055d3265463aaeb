"""Who is to blame for a queue that is late: never who sends less than before, nor everybody at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.blame import sends_as_always

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
