"""What an observation says of who waits, where the metrics tell ages by whole seconds and short work never in hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.control.active_limit import Target
from alerts.control.observe import Usually, observe
from alerts.laws import throttle
from alerts.laws.limits import Alert
from alerts.laws.observation import AGE_RESOLUTION
from tests.control.conftest import World
from tests.control.test_laws import CALM, IN_FORCE, NOISY, TERMS


@given(wait=st.floats(0, 100), target=st.floats(0.1, 60), late=st.floats(0, AGE_RESOLUTION), rate=st.floats(1, 1e4))
def test_an_age_that_is_told_too_long_makes_nobody_suffer_in_a_queue_served_in_order(
    wait: float, target: float, late: float, rate: float
) -> None:
    backlog = wait * rate
    seen = replace(NOISY, quiet_age_seconds=wait + late, backlog=backlog, ready=backlog, finish_rate=rate)
    seen = replace(seen, completion_rate=rate)
    if wait < 0.999 * target:
        assert seen.quiet_wait < target
    elif wait > 1.001 * target:
        assert seen.quiet_wait > target


def test_where_others_are_served_first_the_age_alone_is_believed_a_second_later() -> None:
    overtaken = replace(NOISY, quiet_age_seconds=3.9, backlog=10, ready=10, completion_rate=80, finish_rate=80)
    assert overtaken.quiet_wait < 3.0
    assert replace(overtaken, quiet_age_seconds=4.1).quiet_wait > 3.0


def test_what_was_worked_on_does_not_wait_though_nobody_saw_it_in_hand() -> None:
    seen = replace(CALM, backlog=14.0, ready=14.0, arrival_rate=10.0)
    target = replace(TERMS, target_seconds=0.5)
    assert throttle.decide(target, seen, IN_FORCE, Alert.ACTIVE, 103.0).code == "cooldown"
    seen = replace(seen, in_hand=11.5)  # of twelve workers: what seems to wait is in work
    assert seen.waiting == 2.5
    assert throttle.decide(target, seen, IN_FORCE, Alert.ACTIVE, 103.0).code == "idle"


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({"ready": None}, 5.0),
        ({"ready": 3.0}, 3.0),
        ({"ready": 3.0, "in_hand": 1.0}, 3.0),
        ({"ready": 3.0, "in_hand": 40.0}, 0.0),
    ],
)
def test_what_waits_is_no_more_than_any_of_them_says(changes: dict[str, float], waits: float) -> None:
    assert replace(CALM, **changes).waiting == waits


def test_nobody_knows_how_long_it_takes_where_nothing_is_finished() -> None:
    stopped = replace(NOISY, completion_rate=0.0, finish_rate=0.0)
    assert stopped.expected_wait == math.inf
    assert replace(stopped, backlog=0.0).expected_wait == 0.0


def test_one_that_is_large_is_entitled_to_as_much_as_one_that_floods_may_keep() -> None:
    """120/s; quiet tenants send 20, one as always 40, a flood 120: of the 100 that the quiet leave each may have 50."""
    seen = replace(NOISY, completion_rate=120.0, finish_rate=120.0, active_tenants=6, arrival_rate=40.0)
    seen = replace(seen, others_rate=140.0, rivals=(120.0,))
    assert seen.max_min_share == 50.0
    assert replace(seen, others_rate=140.0, rivals=()).max_min_share == 20.0
    flood = replace(seen, arrival_rate=120.0, others_rate=60.0, rivals=(40.0,))
    assert flood.max_min_share == 60.0


@pytest.mark.parametrize("law", ["aimd", "inverse_backlog"])
def test_no_law_lowers_a_limit_for_what_an_age_is_told_too_long_by(law: str) -> None:
    seen = replace(CALM, quiet_age_seconds=1.2, arrival_rate=9.0)
    verdict = throttle.decide(replace(TERMS, law=law, target_seconds=0.5), seen, IN_FORCE, Alert.ACTIVE, 106.0)
    assert verdict.limit is not None and verdict.limit.rate >= IN_FORCE.rate


def test_a_minute_is_read_once_in_ten_seconds_and_for_whom_nobody_has_looked_at() -> None:
    """At each look it would be the most that a look reads, for what changes as slowly as a minute does."""
    world, remembered = World(), Usually()
    asked: list[bool] = []

    def query(sql: str) -> pa.Table:
        if "FROM partials" in sql:
            asked.append("AS since" in sql)
        return world.query(sql)

    for second in range(25):
        targets = [Target("nats", "orders", name) for name in ("t0", "t1")[: 1 + (second >= 15)]]
        seen = observe(query, targets, world.now, 5, usual_seconds=60, remembered=remembered)
        assert seen == observe(world.query, targets, world.now, 5, usual_seconds=60), "nothing changes in this world"
        assert len(seen) == len(targets)
        world.advance(1)
    assert [second for second, whole in enumerate(asked) if whole] == [0, 10, 15]
