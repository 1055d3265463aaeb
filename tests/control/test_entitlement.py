"""What tenants are entitled to, and when it binds: properties for every input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.entitlement import (
    Seen,
    State,
    Terms,
    entitlements,
    step,
)
from alerts.laws.habits import CLASS_WIDTH, FORGOTTEN, LEARNT_AFTER, LEARNT_LATE, Habits, Past

rates = st.floats(0, 1e4)
demands = st.dictionaries(st.text(max_size=3), rates, max_size=12)


@given(st.lists(st.floats(0.1, 1e4), min_size=40, max_size=200), st.floats(0.5, 0.99))
def test_the_past_knows_its_quantile_within_a_class(sent: list[float], q: float) -> None:
    past = Past()
    for rate in sent:
        past.add(rate)
    # The oldest weighs FORGOTTEN to the power of all: a part of the looks is off by less than half of what it lost.
    ranked, moved = sorted(sent), len(sent) * (1 - FORGOTTEN ** len(sent)) / 2 + 1
    low, high = math.ceil(q * len(sent) - moved) - 1, math.ceil(q * len(sent) + moved)
    assert ranked[max(0, low)] / 1.0001 <= past.quantile(q) <= ranked[min(len(sent) - 1, high)] * CLASS_WIDTH * 1.0001


def test_the_past_forgets_and_never_overflows() -> None:
    past = Past()
    for _ in range(100):
        past.add(1000.0)
    for _ in range(100_000):
        past.add(10.0)
    assert past.quantile(0.99) <= 10 * CLASS_WIDTH


def unknown(tenant: str) -> float:
    return 0.0


def test_a_flood_does_not_become_its_own_entitlement() -> None:
    habits = Habits()
    for _ in range(LEARNT_AFTER + LEARNT_LATE):
        habits.look({"a": 10.0}, congested=False)
    for _ in range(LEARNT_LATE):
        habits.look({"a": 1000.0}, congested=False)  # until the queue shows it
    habits.look({"a": 1000.0}, congested=True)
    for _ in range(LEARNT_LATE):
        habits.look({"a": 10.0}, congested=False)
    assert habits.usual("a") <= 10 * CLASS_WIDTH and habits.usual("stranger") == 0


looks = st.builds(Seen, st.floats(0, 1e5), st.floats(0, 1e4), demands)


@given(st.lists(looks, min_size=1, max_size=30), st.floats(0.1, 5))
def test_whatever_comes_the_bit_ends_when_nothing_waits_and_nobody_is_held_back(seen: list[Seen], every: float) -> None:
    terms, state, now = Terms(), State(), 0.0
    for one in seen:
        before = state
        state, reason = step(terms, one, state, now, {})
        assert reason
        if state.congested and not before.congested:
            assert state.capacity > 0 and one.waiting > terms.enter_seconds * state.capacity
        now += every
    for _ in range(math.ceil(terms.calm_seconds / every) + 2):
        state, _ = step(terms, Seen(0, 1, {}), state, now, {})
        now += every
    assert not state.congested


def test_it_binds_nobody_where_nobody_is_protected_by_it() -> None:
    alike = {f"t{n}": 20.0 for n in range(6)}
    for arrivals in ({"lone": 200.0}, alike, {"a": 60.0, "b": 80.0}, dict.fromkeys(alike, 10.0)):
        state, reason = step(Terms(), Seen(500, 100, arrivals), State(100), 0, {})
        assert not state.congested and "nobody" in reason
    state, _ = step(Terms(), Seen(500, 100, alike | {"small": 2.0}), State(100), 0, {})
    assert state.held == alike.keys(), "one that is far below the others' part is protected from all of them"
    for now in range(1, 13):
        state, reason = step(Terms(), Seen(500, 100, alike), state, now, {})
    assert not state.congested, "it is gone"


def test_a_flood_that_is_held_back_keeps_the_bit_and_is_let_go_once_it_ends() -> None:
    terms, state = Terms(calm_seconds=10), State(100)
    state, _ = step(terms, Seen(100, 100, {"flood": 200.0, "quiet": 5.0}), state, 0, {})
    assert state.congested
    for now in range(1, 100):
        state, reason = step(terms, Seen(0, 100, {"flood": 50.0, "quiet": 5.0}), state, now, {"flood": 50.0})
        assert state.congested and "1 tenants send all that they may" in reason
    for now in range(100, 111):
        state, _ = step(terms, Seen(0, 100, {"flood": 10.0, "quiet": 5.0}), state, now, {"flood": 50.0})
    assert not state.congested


def test_consumers_that_stand_still_are_nobodys_noise() -> None:
    """A tenant of 8 seconds of work a second beside two of 1, consumers that can 11 and stop for half a minute."""
    sends = {"large": 8.0, "small": 1.0, "other": 1.0}
    free, bound = State(11.0), State(11.0, congested_since=0.0, asked={"large": 8.0})
    for state in (free, bound):
        for number in range(60):
            state, reason = step(
                Terms(), Seen(5.0 * (number + 1), 0.0, sends), state, number / 2, {"large": 9.0}, sends
            )
            assert not state.congested and "stand still" in reason
        assert state.capacity == 11.0, "what they can is what they could"
        for number in range(60, 120):  # they are back, and a look now and then shows more of it than its share
            seen = Seen(300.0, 11.0, sends | {"large": 10.5 if number % 10 == 0 else 8.0})
            state, _ = step(Terms(), seen, state, number / 2, {}, sends)
            assert not state.congested, "what waits came before"
        flood = sends | {"large": 30.0}
        state, _ = step(Terms(), Seen(300.0, 11.0, flood), state, 60.0, {}, flood)
        assert state.congested, "somebody who floods it by then is held"


def test_nobody_is_held_to_a_part_of_what_consumers_can_before_that_is_known() -> None:
    state = State()
    for number in range(1, 4):  # rates of the last two seconds, of which there was one half, one, one and a half
        seen = Seen(2.0, 2.5 * number, {"large": 2.0 * number, "small": 0.3 * number})
        state, reason = step(Terms(), seen, state, number / 2, {})
        assert not state.congested and "not known yet" in reason
    assert state.capacity == 7.5, "what was finished most"


@given(looks, st.floats(0.1, 1e4))
def test_nobody_is_held_below_an_equal_part_nor_below_its_own_past(seen: Seen, capacity: float) -> None:
    terms, habits = Terms(), Habits()
    for _ in range(LEARNT_AFTER + LEARNT_LATE):
        habits.look(seen.arrivals, congested=False)
    found, stranger = entitlements(terms, seen, State(capacity), habits.usual)
    for name, rate in found.items():
        assert rate >= seen.arrivals[name] / 1.0001
        assert rate >= terms.least_part * capacity / len(found) * (1 - 1e-6)
    assert stranger >= min(1.0, terms.least_part * capacity / (len(found) + 1))


def test_shares_grow_beyond_the_throughput_seen_while_little_waits_and_shrink_while_much_does() -> None:
    seen, state = Seen(0, 100, {"flood": 30.0, "quiet": 70.0}), State(100, congested_since=0)
    assert entitlements(Terms(), seen, state, unknown)[0]["flood"] == pytest.approx(110 / 2)
    behind, part = replace(seen, waiting=70), Terms().part(0.7)
    assert part < 1
    held = replace(state, asked={"flood": 100.0})
    found, _ = entitlements(Terms(), behind, held, unknown)
    assert found["flood"] == pytest.approx(part * 100 / 2)
    assert found["quiet"] == pytest.approx(100 - 30), "what waits is not drained at the cost of who keeps to its share"
    small = Seen(0, 100, {"flood": 90.0, "quiet": 20.0})
    assert entitlements(Terms(), small, state, unknown)[0]["flood"] == pytest.approx(90)


def test_terms_that_make_no_sense_are_refused() -> None:
    for changes in (
        {"exit_seconds": 1.0},
        {"enter_seconds": 0, "exit_seconds": 0},
        {"least_part": 0},
        {"drain_seconds": 0},
        {"probing": 0.5},
    ):
        with pytest.raises(ValueError, match="must be"):
            Terms(**changes)


def test_servers_that_idle_for_shares_get_back_to_what_they_showed() -> None:
    """20/s came, then 240/s: that only 20/s was finished until then says little of what can be."""
    state, now = State(20), 0.0
    for finished in (64, 110, 118, 125):  # the flood waits, and is drained with less than what consumers can
        now += 1
        state, _ = step(Terms(), Seen(240, finished, {"t0": 240, "q": 1}), state, now, {})
    assert state.congested and state.capacity < 80
    state, _ = step(Terms(), Seen(0, 70, {"t0": 67, "q": 1}), state, now + 1, {"t0": 67})
    assert state.capacity == pytest.approx(85, rel=0.02), "not the 70/s that came and was finished"
    assert state.congested
    calm, _ = step(Terms(), Seen(0, 70, {"t0": 70}), State(80), now, {})
    assert calm.capacity < 80, "while nothing binds it is what it was"


def test_shares_soon_grow_to_what_servers_that_were_added_can_do() -> None:
    """They grew by a tenth of the throughput in as long as that takes to be seen: a third of it in four seconds."""
    terms, state = Terms(), State(120.0, congested_since=0.0, asked={"flood": 100.0})
    idles = Seen(0.0, 120.0, {"flood": 50.0, "quiet": 70.0})
    told, rates = {"flood": 50.0}, []
    for look in range(8):
        seen = replace(idles, arrivals={"flood": told["flood"], "quiet": 70.0})
        state, _ = step(terms, seen, state, look / 2, told)
        told, _ = entitlements(terms, seen, state, unknown)
        rates.append(told["flood"])
    assert rates[:3] == pytest.approx([66.0] * 3, rel=0.02), "no sooner than what they send is seen"
    assert rates[4] > 150 and max(rates) <= 2 * 1.1 * 120 - 70, "and to no more than twice what was seen"
    waits = replace(idles, waiting=10.0)
    state, _ = step(terms, waits, state, 4.0, told)
    assert entitlements(terms, waits, state, unknown)[0]["flood"] == pytest.approx(66, rel=0.05), (
        "until something waits"
    )


def test_consumers_that_finish_more_than_they_could_by_more_than_chance_have_been_helped() -> None:
    flood = {"flood": 50.0, "quiet": 70.0}
    state = State(120.0, congested_since=0.0, asked={"flood": 100.0})
    for finished, deviation, reach in ((125.0, 5.0, 120.0), (180.0, 30.0, 120.0), (180.0, 5.0, 360.0)):
        seen = Seen(0.0, finished, flood, deviation)
        found, _ = step(Terms(), seen, state, 10.0, {"flood": 50.0})
        assert found.reach == pytest.approx(max(reach, found.capacity)), finished
    shared, _ = entitlements(Terms(), seen, found, unknown)
    assert shared["flood"] > 240, "what was added is not known yet"
    early, _ = step(Terms(), seen, replace(state, congested_since=9.0), 10.0, {"flood": 50.0})
    assert early.reach < 200, "what they could is not known yet"
    waits, _ = step(Terms(), replace(seen, waiting=50.0), state, 10.0, {"flood": 50.0})
    assert waits.reach == 0.0, "nobody idles"
    after, _ = step(Terms(), Seen(0.0, 180.0, flood, 5.0), found, 10.5, {"flood": 110.0})
    assert after.held == {"flood"}, "what it may send since does not show yet in what it sent"


def test_where_all_are_held_those_are_let_go_who_keep_to_their_shares_and_the_flood_is_not() -> None:
    """While less was believed of consumers the quiet were beyond their shares, too; and nobody was left to protect."""
    sends = {f"quiet-{n}": 1.0 for n in range(7)} | {"flood": 6.0}
    state = State(12.0, congested_since=0.0, asked=sends)
    state, _ = step(Terms(), Seen(24.0, 12.0, sends), state, 10.0, sends)
    assert state.held == {"flood"} and state.calm_since is None


def test_what_who_is_held_asks_for_says_whether_others_are_protected_not_what_it_may_send() -> None:
    """Half is believed of what consumers can: all who send are held, and all send alike."""
    sends = dict.fromkeys([f"quiet-{n}" for n in range(7)], 0.9) | {"flood": 1.0}
    waits = Seen(12.0, 6.0, sends)
    for flood, calm_since in ((14.0, None), (1.5, 10.0)):
        state = State(6.0, congested_since=0.0, asked=sends | {"flood": flood})
        state, _ = step(Terms(), waits, state, 10.0, sends)
        assert state.held == set(sends) and state.calm_since == calm_since


def test_servers_idle_for_nobody_who_does_not_send_all_that_it_may() -> None:
    state, seen = (
        State(120.0, congested_since=0.0, asked={"flood": 100.0}),
        Seen(0.0, 100.0, {"flood": 30.0, "quiet": 70.0}),
    )
    for may, grows in ((30.0, True), (50.0, False)):
        found = state
        for look in range(8):
            found, _ = step(Terms(), seen, found, look / 2, {"flood": may})
        assert found.held == {"flood"} and (found.reach > 0) == grows


def test_who_sends_more_in_one_look_by_chance_floods_nobody() -> None:
    sends = {f"t{n}": 12.0 for n in range(8)} | {"small": 5.0}
    lucky = sends | {"t0": 24.0}
    chance = dict.fromkeys(lucky, 14.0)
    for deviations, congested in (({}, True), (chance, False)):
        seen = Seen(60.0, 100.0, lucky, 5.0, deviations)
        state, _ = step(Terms(), seen, State(100.0), 10.0, {}, sends)
        assert state.congested == congested
