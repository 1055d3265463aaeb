"""Limits that rise lest servers idle: as fast as that takes, and no further than the queue can take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from alerts.laws.bounds import Bounds
from alerts.laws.limits import Alert, Kind
from alerts.laws.throttle import decide
from tests.control.test_laws import CALM, IN_FORCE, NOISY, TERMS


def test_a_limit_leaves_no_server_idle_while_the_tenant_is_held_back() -> None:
    idle = replace(CALM, arrival_rate=10.0, ready=3.0, data_age_seconds=1.0)
    current, rates = IN_FORCE, []
    for second in range(101, 113):  # within the cooldown of five seconds, too
        verdict = decide(TERMS, replace(idle, arrival_rate=current.rate), current, Alert.ACTIVE, float(second))
        assert verdict.limit is not None
        current = verdict.limit
        rates.append(current.rate)
    by_each = [10, 12.4, 17.2, 25.8, 38.7, 58.05]
    assert rates[1::2] == pytest.approx([*by_each[1:], 87.075]), "3 % of 80/s, then twice as much, by half at most"
    assert rates[::2] == pytest.approx(by_each), "each two seconds, of data that are a second old"
    assert verdict.code == "idle" and "servers may idle" in verdict.reason
    assert decide(TERMS, idle, IN_FORCE, Alert.GONE, 102.0).code == "idle"


def test_a_limit_that_held_back_while_a_backlog_drained_goes_back_to_its_share_at_once() -> None:
    terms = replace(TERMS, bounds=Bounds(1, 1000, 0.9))
    drained = replace(CALM, arrival_rate=20.0, ready=30.0, recent_seconds=5.0)
    current = replace(IN_FORCE, rate=20, base=36)
    verdict = decide(terms, drained, current, Alert.ACTIVE, 102.0)
    assert verdict.limit is not None and verdict.limit.rate == pytest.approx(36, abs=1), "3 % of 80/s would be 22.4/s"
    further = replace(verdict.limit, changed_at=102.0)
    sends = replace(drained, arrival_rate=36.0, backlog=30.0)
    assert decide(terms, sends, further, Alert.ACTIVE, 106.0).code == "cooldown", "it is there, and something waits"
    assert decide(terms, replace(sends, ready=2.0), further, Alert.ACTIVE, 104.0).code == "idle", "nothing waits"


def test_a_limit_rises_only_as_far_as_nothing_queues() -> None:
    """A rise of a tenth of the throughput piled up half a second's wait before it was seen, each time."""
    idle = replace(CALM, arrival_rate=10.0, ready=3.0, recent_seconds=5.0)
    first = decide(TERMS, idle, IN_FORCE, Alert.ACTIVE, 102.0).limit
    assert first is not None and first.rate == pytest.approx(10 + 0.03 * 80)
    for ready in (6.0, 20.0, 75.0):  # what chance brings in half a second; next to nothing is 80
        waits = replace(idle, arrival_rate=12.4, ready=ready, backlog=ready)
        assert decide(TERMS, waits, first, Alert.ACTIVE, 104.0).code == "cooldown", "what there is has something to do"
    later = decide(TERMS, replace(idle, arrival_rate=12.4), first, Alert.ACTIVE, 107.0)
    assert later.limit is not None and later.limit.rate == pytest.approx(12.4 + 0.03 * 80), "by as little, in its time"


def test_a_limit_that_has_not_come_to_anything_yet_is_not_risen_from_for_ever() -> None:
    """What the tenant sends is judged by what it might before for as long as counts are of before."""
    risen = replace(IN_FORCE, rate=30, rose_from=10, base=10)
    sends = replace(CALM, arrival_rate=10.0, ready=3.0, recent_seconds=5.0)
    assert decide(TERMS, sends, risen, Alert.ACTIVE, 104.0).code == "idle"
    assert decide(TERMS, sends, risen, Alert.ACTIVE, 107.0).code == "unused"


def test_a_rise_that_was_too_much_is_taken_back_before_anybody_suffers_from_it() -> None:
    """Within the cooldown, in which the excess would have become harm."""
    idle = replace(CALM, arrival_rate=10.0, ready=3.0, recent_seconds=5.0)
    risen = decide(TERMS, idle, replace(IN_FORCE, base=8), Alert.ACTIVE, 102.0).limit
    assert risen is not None and (risen.rate, risen.rose_from, risen.base) == (pytest.approx(12.4), 10, 10)
    risen = replace(risen, rate=15)
    behind = replace(idle, arrival_rate=15.0, backlog=160.0, ready=150.0, quiet_age_seconds=2.0)
    assert decide(TERMS, behind, risen, Alert.ACTIVE, 102.9).code == "cooldown", "too soon to be seen"
    old = replace(behind, data_age_seconds=0.8)
    assert decide(TERMS, old, risen, Alert.ACTIVE, 103.5).code == "cooldown", "by data that lag"
    assert decide(TERMS, behind, risen, Alert.ACTIVE, 103.0).code == "overshot"
    by_chance = replace(behind, backlog=90.0, ready=88.0)
    assert decide(TERMS, by_chance, risen, Alert.ACTIVE, 104.0).code == "cooldown", "80 is next to nothing, 9 chance"
    for alert in (Alert.ACTIVE, Alert.GONE):
        verdict = decide(TERMS, behind, risen, alert, 104.0)
        assert (verdict.kind, verdict.code) == (Kind.THROTTLE, "overshot") and verdict.limit is not None
        assert verdict.limit.rate == 10, "an equal share at the least, though 28/s less would drain what waits"
        again = decide(TERMS, behind, verdict.limit, alert, 106.0)
        assert again.code != "overshot", "nor is it taken back further"
    assert "150 messages wait since it rose" in verdict.reason

    ignored = replace(risen, obeyed=False, valid_until=1000)
    assert decide(TERMS, replace(behind, arrival_rate=40.0), ignored, Alert.ACTIVE, 104.0).code == "cooldown"


def test_a_limit_does_not_rise_beyond_its_share_while_messages_wait() -> None:
    """Nobody suffers yet: more would only wait, and be what somebody suffers from."""
    waits = replace(CALM, arrival_rate=10.0, others_rate=70.0, backlog=95.0, ready=90.0, quiet_age_seconds=1.5)
    assert decide(TERMS, waits, IN_FORCE, Alert.ACTIVE, 106.0).kind is Kind.WAIT
    below = replace(IN_FORCE, rate=4, base=10)
    verdict = decide(TERMS, replace(waits, arrival_rate=4.0), below, Alert.ACTIVE, 106.0)
    assert verdict.kind is Kind.RELAX and verdict.limit is not None and verdict.limit.rate == 6
    beyond = replace(IN_FORCE, rate=20)
    growing = replace(waits, arrival_rate=20.0, backlog=200.0, ready=190.0)
    verdict = decide(TERMS, growing, beyond, Alert.ACTIVE, 106.0)
    assert verdict.kind is Kind.THROTTLE and verdict.limit is not None and verdict.limit.rate == 10


def test_a_limit_is_back_at_its_share_when_what_waits_is_gone() -> None:
    """Steps of a half take it from 10/s to 60/s in five; meanwhile consumers finish what it lacks of that."""
    drains = replace(
        CALM, arrival_rate=10.0, finish_rate=130.0, others_rate=70.0, backlog=600.0, quiet_age_seconds=11.5
    )
    current, waits, rates = replace(IN_FORCE, base=60), 600.0, []
    for second in range(101, 130):
        seen = replace(drains, arrival_rate=current.rate, backlog=waits + 10, ready=waits, quiet_age_seconds=waits / 50)
        found = decide(TERMS, seen, current, Alert.ACTIVE, float(second)).limit
        assert found is not None and found.rate <= found.base * 1.05, "its share is no overshoot"
        current, waits = found, max(0.0, waits - (130 - 70 - current.rate))
        rates.append((current.rate, round(waits)))
        if current.rate >= 0.95 * current.base:
            break
    begins = next(waits for rate, waits in rates if rate > 10)
    assert 300 < begins < 500 and rates[-1][1] < 150, rates
    assert rates[-1][1] > 0, "something was there to be done all the time"


def test_what_does_not_drain_lets_no_limit_rise() -> None:
    drains = replace(CALM, arrival_rate=10.0, finish_rate=130.0, others_rate=70.0, backlog=60.0, ready=50.0)
    drains = replace(drains, quiet_age_seconds=11.5)
    current = replace(IN_FORCE, base=60)
    verdict = decide(TERMS, drains, current, Alert.ACTIVE, 102.0)
    assert (verdict.kind, verdict.code) == (Kind.RELAX, "idle") and "will soon be gone" in verdict.reason
    for changes in ({"others_rate": 121.0}, {"finish_rate": 60.0}, {"ready": 700.0, "backlog": 710.0}):
        assert decide(TERMS, replace(drains, **changes), current, Alert.ACTIVE, 102.0).code == "cooldown", changes


def test_a_ceiling_below_the_share_does_not_let_go_of_a_tenant_while_somebody_suffers() -> None:
    terms = replace(TERMS, bounds=Bounds(1, 14, 0.5))
    drains = replace(CALM, arrival_rate=10.0, finish_rate=130.0, others_rate=70.0, backlog=60.0, ready=50.0)
    verdict = decide(terms, replace(drains, quiet_age_seconds=11.5), replace(IN_FORCE, base=60), Alert.ACTIVE, 102.0)
    assert verdict.limit is not None and verdict.limit.rate == 14


def test_a_share_is_not_the_most_that_chance_ever_showed() -> None:
    """Counts of five seconds vary by 6/s here: while servers are busy the share is their mean."""
    current, bases = replace(IN_FORCE, base=60.0, rate=30), []
    for second, chance in enumerate((9.0, -9.0) * 10):
        seen = replace(NOISY, arrival_rate=30.0, finish_rate=130 + chance, others_rate=70.0, ready=500.0)
        found = decide(replace(TERMS, cooldown_seconds=60), seen, current, Alert.ACTIVE, 100.5 + second).limit
        assert found is not None
        current = replace(found, valid_until=1000)
        bases.append(current.base)
    assert all(abs(base - 60) < 4 for base in bases), bases


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": None},  # nothing tells whether servers idle
        {"ready": 81.0, "backlog": 81.0},  # a second's work waits
        {"arrival_rate": 7.0},  # nothing is held back
        {"quiet_age_seconds": 11.5},  # somebody suffers
    ],
)
def test_a_limit_does_not_rise_where_no_server_idles_for_it(changes: dict[str, Any]) -> None:
    seen = replace(CALM, **{"arrival_rate": 10.0, "ready": 3.0} | changes)
    assert decide(TERMS, seen, IN_FORCE, Alert.ACTIVE, 103.0).code == "cooldown"


def test_a_rate_that_the_operator_set_is_kept_though_servers_idle() -> None:
    idle = replace(CALM, arrival_rate=10.0, ready=0.0)
    fixed = replace(TERMS, law="rate_limit", rate=10.0)
    assert decide(fixed, idle, IN_FORCE, Alert.ACTIVE, 103.0).code == "cooldown"
    assert decide(replace(fixed, law="aimd"), idle, IN_FORCE, Alert.ACTIVE, 103.0).code == "idle"
