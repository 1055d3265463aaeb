"""A fair order by group, then by tenant: declared groups, and those whose members begin together."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.client.grouped import GroupedOrder
from sojourn.client.groups import FORGET_SECONDS, LEARN_SECONDS, LEAST_MEMBERS, SILENT_SECONDS, Onsets, Patterns
from tests.client.following import follow

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["a", "b", "acme-1", "acme-2", *(f"n{n}" for n in range(12))])),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("done"), st.floats(0, 100, allow_nan=False)),
        st.tuples(st.just("wait"), st.floats(0.01, 100)),
    ),
    max_size=300,
)


@given(STEPS)
def test_nothing_is_lost_and_a_tenants_own_order_is_kept_whatever_groups_it_comes_into(
    steps: list[tuple[str, object]],
) -> None:
    clock = [0.0]
    order: GroupedOrder[int] = GroupedOrder(groups=["acme-*"], onsets=Onsets(), clock=lambda: clock[0])

    def wait(seconds: float) -> None:
        clock[0] += seconds

    follow(order, steps, wait)


def served(order: GroupedOrder[int], times: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for _ in range(times):
        tenant, _ = order.take()
        order.done(tenant, 1.0)
        seen[tenant] += 1
    return seen


def test_a_declared_group_has_one_share_which_its_members_share() -> None:
    order: GroupedOrder[int] = GroupedOrder({"bolt": 2.0}, groups=["acme-*"])
    for number in range(400):
        for tenant in (*(f"acme-{n}" for n in range(10)), "quiet", "bolt"):
            order.put(tenant, number)
    seen = served(order, 400)
    assert seen["quiet"] == pytest.approx(100, abs=3) and seen["bolt"] == pytest.approx(200, abs=3)
    assert all(seen[f"acme-{n}"] == pytest.approx(10, abs=2) for n in range(10))


def test_forty_names_that_begin_together_have_one_share() -> None:
    clock, chance = [0.0], random.Random(1)
    order: GroupedOrder[int] = GroupedOrder(onsets=Onsets(), clock=lambda: clock[0])
    while clock[0] < 2 * LEARN_SECONDS:
        clock[0] += 0.05
        for tenant in ("a", "b", "c"):
            order.put(tenant, 0)
    names = [f"k{n}" for n in range(40)]
    while clock[0] < 2 * LEARN_SECONDS + 10:
        clock[0] += 0.01
        order.put(chance.choice(names), 0)
    seen = served(order, 800)
    assert sum(seen[name] for name in names) == pytest.approx(200, rel=0.1)
    assert seen["a"] == pytest.approx(200, rel=0.1)


def test_who_begins_by_chance_or_at_the_start_is_in_no_group() -> None:
    onsets, now, chance = Onsets(), 0.0, random.Random(2)
    for number in range(50):
        onsets.came(f"first-{number}", now)
    for number in range(2000):  # one each second, by chance
        now += chance.expovariate(1.0)
        onsets.came(f"later-{number}", now)
    assert not any(onsets.of(f"first-{number}", now) for number in range(50))
    assert not any(onsets.of(f"later-{number}", now) for number in range(2000))


def test_a_group_ends_when_its_members_are_silent_and_names_its_members_beginning() -> None:
    onsets = Onsets()
    onsets.came("old", 0.0)
    for number in range(LEAST_MEMBERS + 1):
        onsets.came(f"acme-{number}", 2 * LEARN_SECONDS + number / 10)
    now = 2 * LEARN_SECONDS + 1
    assert (onsets.of("acme-0", now) or "").startswith("acme-…") and onsets.of("old", now) is None
    assert onsets.grows(now)
    assert onsets.of("acme-0", now + SILENT_SECONDS + 1) is None
    assert onsets.of("acme-1", now + SILENT_SECONDS + FORGET_SECONDS) is None


@pytest.mark.parametrize("pattern", ["*", "", "acme", "a*b", "a**"])
def test_a_pattern_is_a_beginning_and_a_star(pattern: str) -> None:
    with pytest.raises(ValueError, match="beginning"):
        Patterns([pattern])
    assert Patterns(["acme-*", "acme-eu-*"]).of("acme-eu-1") == "acme-eu-*"
