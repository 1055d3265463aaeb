"""The controller against views that change, with its real state, journal and board."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from alerts.control import build
from alerts.control.actuators.limits_api import LimitsApi
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.models import AlertState
from lake.clock import ZERO
from lake.errors import SojournError
from lake.select import without_values
from tests.control.conftest import World

Start = Callable[..., Any]


def test_only_the_tenant_that_the_alert_names_is_limited_to_its_fair_share(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    assert loop.served() == {"t0": 10.0}
    (row,) = loop.journal()
    assert (row["decision"], row["outcome"], row["tenant"], row["before"], row["after"]) == (
        "throttle", "applied", "t0", None, 10.0,
    )  # fmt: skip
    assert row["valid_until"] == loop.world.now + timedelta(seconds=15)
    inputs = dict(row["inputs"])
    assert (inputs["active_tenants"], inputs["completion_rate"], inputs["arrival_rate"]) == ("8", "80", "120")
    assert "its share of 80/s" in row["reason"]


def test_without_an_alert_nothing_is_asked_and_nothing_is_done(start: Start) -> None:
    loop = start()
    loop.run(5)
    assert (loop.world.queries, loop.served(), loop.journal()) == (0, {}, [])


def test_a_pending_alert_is_no_reason_to_act(start: Start) -> None:
    loop = start()
    evaluation = loop.world.evaluation("t0")
    pending = replace(evaluation, alerts=(replace(evaluation.alerts[0], state=AlertState.PENDING),))
    loop.control.controller.step(loop.world.now, [pending], loop.world.query)
    assert (loop.served(), loop.journal()) == ({}, [])


def test_a_policy_that_is_early_limits_at_the_second_look_at_harm_while_the_alert_pends(start: Start) -> None:
    loop = start(early=True)
    alert = replace(loop.world.evaluation("t0").alerts[0], state=AlertState.PENDING, fired_at=None)
    loop.step(alerts=(alert,))
    assert loop.served() == {}, "seen once"
    loop.world.advance(1)
    loop.step(alerts=(alert,))
    assert loop.served() == {"t0": 10.0}
    loop.world.calm()
    loop.run(120)
    assert loop.served() == {}, "an alert that never fired is gone like others"


def test_what_looks_at_a_flood_ask_was_asked_before_where_a_policy_is_early(start: Start) -> None:
    """The first look after a start took a second: history was read, and each statement understood, for it alone."""
    asked: set[str] = set()

    def query(sql: str) -> pa.Table:
        asked.add(without_values(sql)[0])
        return loop.world.query(sql)

    loop = start()
    loop.control.controller.rehearsal.step(loop.world.now, query, ZERO)
    assert not asked, "nobody is in a hurry"
    loop = start(early=True)
    loop.control.controller.rehearsal.step(loop.world.now, query, ZERO)
    rehearsed, controller = asked.copy(), loop.control.controller
    asked.clear()
    pending = replace(loop.world.evaluation("t0").alerts[0], state=AlertState.PENDING, fired_at=None)
    for _ in range(2):
        controller.step(loop.world.now, [replace(loop.world.evaluation("t0"), alerts=(pending,))], query)
        loop.world.advance(0.75)
    assert loop.served() == {"t0": 10.0}
    assert asked and asked <= rehearsed
    asked.clear()
    loop.world.advance(18)
    controller.rehearsal.step(loop.world.now, query, ZERO)
    assert not asked, "there was a look a moment ago"
    loop.world.advance(2)
    controller.rehearsal.step(loop.world.now, query, ZERO)
    assert any("FROM partials" in sql for sql in asked), "what came since is read"


def test_in_a_hurry_data_are_looked_at_again_once_they_are_newer(start: Start) -> None:
    """Each look takes its time: at what the one before it had seen, it only delays the next, and forgets harm where a
    count that is newer than its age makes a wait seem to end."""
    asked: list[str] = []

    def query(sql: str) -> pa.Table:
        asked.append(sql)
        return loop.world.query(sql)

    def looks(seconds: float, newer: float) -> int:
        loop.world.advance(seconds)
        loop.world.lag += timedelta(seconds=seconds - newer)
        asked.clear()
        pending = replace(loop.world.evaluation("t0").alerts[0], state=AlertState.PENDING, fired_at=None)
        loop.control.controller.step(loop.world.now, [replace(loop.world.evaluation("t0"), alerts=(pending,))], query)
        return sum("FROM partials" in sql for sql in asked)

    loop = start(early=True)
    assert looks(1, newer=1) == 1, "one question of history for all the times that rates are told by"
    assert looks(0.3, newer=0) == 0 and looks(0.3, newer=0.6) == 1 and looks(0.1, newer=0.1) == 0
    assert looks(0.9, newer=0) == 1, "but once a second anyhow"


def test_the_whole_life_of_a_limit_throttle_renew_relax_release(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    loop.world.noisy_rate = 10
    for _ in range(20):
        loop.world.backlog -= 20
        loop.run(1, "t0")
    assert set(loop.trace) == {10.0}
    loop.world.calm(noisy_rate=100)  # it would send more, and uses all that it may
    loop.run(12)
    assert loop.served()["t0"] > 20
    loop.world.calm(noisy_rate=10)
    loop.run(6)
    assert loop.served() == {}
    decisions = loop.decisions()
    assert decisions[0] == "throttle" and decisions[-1] == "release"
    assert {"hold", "relax"} <= set(decisions)
    assert len({row["action_id"] for row in loop.journal()}) == 1
    assert len({row["idempotency_key"] for row in loop.journal()}) == len(decisions)


def test_a_limit_of_a_dry_run_is_journaled_and_never_served(start: Start) -> None:
    loop = start(dry_run=True)
    loop.throttle("t0")
    loop.run(10, "t0")
    assert set(loop.trace) == {None}
    rows = loop.journal()
    assert rows[0]["decision"] == "throttle" and rows[0]["after"] == 10.0
    assert {row["outcome"] for row in rows} == {"dry_run"}
    assert all(row["dry_run"] for row in rows)


def test_dry_run_is_the_default(start: Start) -> None:
    assert PolicySettings(name="p").mode == "dry_run"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"lag": timedelta(minutes=1)}, "stale_data"),
        ({"staleness": 60.0}, "stale_sample"),
        ({"coverage": 0.4}, "low_coverage"),
        ({"coverage": None}, "no_coverage"),
    ],
)
def test_untrusted_data_is_refused_once_with_its_reason_and_the_lease_runs_out(
    start: Start, change: dict[str, Any], code: str
) -> None:
    loop = start()
    loop.throttle("t0")
    for name, value in change.items():
        setattr(loop.world, name, value)
    loop.run(20, "t0")
    assert loop.served() == {}
    rows = loop.journal()
    assert [row["decision"] for row in rows][:3] == ["throttle", "skip", "expire"]
    assert dict(rows[1]["inputs"])["code"] == code
    assert rows[1]["outcome"] == "refused" and rows[1]["reason"]
    assert sum(row["decision"] == "skip" for row in rows) == 1


@pytest.mark.parametrize("trouble", [{"ok": False, "error": "boom"}, {"stale": True}])
@pytest.mark.parametrize("named", [("t0",), ()])
def test_a_rule_that_failed_or_is_stale_neither_acts_nor_relaxes(
    start: Start, trouble: dict[str, Any], named: tuple[str, ...]
) -> None:
    loop = start()
    loop.throttle("t0")
    loop.world.calm()
    loop.world.advance(6)
    loop.step(*named, **trouble)
    assert loop.served() == {"t0": 10.0}
    assert loop.decisions() == ["throttle", "skip"]
    loop.world.advance(10)
    loop.step(*named, **trouble)
    assert loop.served() == {}


def test_metrics_that_cannot_be_read_leave_all_as_it_is(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    loop = start()
    loop.throttle("t0")
    loop.world.fails = SojournError("no lake")
    loop.run(10, "t0")
    assert loop.served() == {"t0": 10.0}
    loop.run(10, "t0")
    assert loop.served() == {}
    assert "no lake" in caplog.text


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({"broker": "nats", "queue": "orders"}, "no_tenant"),
        ({"broker": "nats", "queue": "orders", "tenant": "unknown"}, "unknown_tenant"),
    ],
)
def test_an_alert_that_names_no_tenant_is_refused_once(start: Start, labels: dict[str, str], code: str) -> None:
    loop = start()
    for _ in range(3):
        loop.world.advance(1)
        loop.throttle(alerts=(loop.world.alert(labels),))
    (row,) = loop.journal()
    assert (row["decision"], dict(row["inputs"])["code"]) == ("skip", code)


def test_a_policy_that_is_not_declared_is_refused_by_name(start: Start) -> None:
    loop = start()
    loop.throttle("t0", actions=("no-such",))
    (row,) = loop.journal()
    assert row["policy"] == "no-such" and "no-such" in row["reason"]


def test_no_more_than_max_limits_tenants_are_limited(start: Start) -> None:
    loop = start(max_limits=2, rate=1.0)
    loop.world.usual_rate = 1.0  # each of them has risen
    for _ in range(3):
        loop.world.advance(1)
        loop.step("t0", "t1", "t2", "t3")
    assert len(loop.served()) == 2
    assert loop.decisions().count("throttle") == 2
    assert loop.decisions().count("skip") == 1


def test_limits_survive_a_restart_with_their_leases(start: Start) -> None:
    first = start()
    first.throttle("t0")
    until = first.control.board.snapshot.limits[0].valid_until
    first.control.close()
    second = start()
    assert second.served() == {"t0": 10.0}
    assert second.control.board.snapshot.limits[0].valid_until == until
    assert second.control.board.snapshot.version > first.control.board.snapshot.version
    second.world.advance(16)
    second.step()
    assert second.served() == {}


def test_after_a_restart_a_rule_not_yet_evaluated_is_no_alert_gone(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    loop.control.close()
    loop = start()
    loop.world.calm()
    loop.world.advance(6)
    loop.control.controller.step(loop.world.now, [], loop.world.query)
    assert loop.served() == {"t0": 10.0}


def test_a_policy_put_on_trial_lifts_what_it_had_in_force(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    loop.control.close()
    loop = start(dry_run=True)
    assert loop.served() == {}


def test_the_operators_revoke_lifts_a_limit_and_keeps_the_policy_off_over_a_restart(start: Start) -> None:
    loop = start(revoke_seconds=30)
    loop.throttle("t0")
    action_id = loop.journal()[0]["action_id"]
    loop.world.advance(1)
    assert loop.control.controller.revoke(action_id, loop.world.now)
    assert not loop.control.controller.revoke(action_id, loop.world.now)
    assert loop.served() == {}
    loop.run(5, "t0")
    assert loop.served() == {}
    assert loop.decisions() == ["throttle", "revoke"]
    loop.control.close()
    loop = start(revoke_seconds=30)
    loop.run(20, "t0")
    assert loop.served() == {}
    loop.run(6, "t0")
    assert loop.served() == {"t0": 10.0}


def test_the_kill_switch_lifts_all_and_outlives_a_restart(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    loop.world.advance(1)
    loop.control.controller.pause(loop.world.now)
    assert loop.served() == {}
    loop.control.close()
    loop = start()
    loop.run(3, "t0")
    assert loop.served() == {}
    assert loop.decisions() == ["throttle", "revoke"]
    loop.control.controller.resume()
    loop.run(2, "t0")
    assert loop.served() == {"t0": 10.0}


def test_the_kill_switch_is_a_file_that_works_by_hand(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    (loop.control.state.path.parent / "paused").touch()
    loop.run(1, "t0")
    assert loop.served() == {}


def test_a_limit_that_producers_ignore_is_journaled_as_without_effect_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    loop = start()
    loop.throttle("t0")
    with caplog.at_level(logging.INFO):
        loop.run(20, "t0")  # arrivals stay at 120/s
    without = [row for row in loop.journal() if "no effect" in row["reason"]]
    assert [(row["decision"], row["outcome"]) for row in without] == [("hold", "failed")]
    assert loop.served() == {"t0": 10.0}


def test_an_operator_who_revokes_while_metrics_are_read_wins(start: Start) -> None:
    loop = start()
    loop.throttle("t0")
    action_id = loop.journal()[0]["action_id"]
    loop.world.advance(8)

    def query(sql: str) -> Any:
        loop.control.controller.revoke(action_id, loop.world.now)  # once; then it is not in force
        return loop.world.query(sql)

    loop.control.controller.step(loop.world.now, [loop.world.evaluation("t0")], query)
    assert loop.served() == {}
    assert loop.decisions() == ["throttle", "revoke"]


def test_an_actuator_that_fails_is_journaled_as_failed_and_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = start()
    enforce = LimitsApi.enforce

    def failing(self: LimitsApi, active_limits: Any) -> None:
        raise SojournError("unreachable")

    monkeypatch.setattr(LimitsApi, "enforce", failing)
    loop.throttle("t0")
    (row,) = loop.journal()
    assert row["outcome"] == "failed" and "unreachable" in row["reason"]
    assert loop.control.controller.active_limits == {}
    monkeypatch.setattr(LimitsApi, "enforce", enforce)
    loop.run(2, "t0")
    assert loop.served() == {"t0": 10.0}


def test_names_with_quotes_and_backslashes_are_data(start: Start) -> None:
    loop = start()
    loop.throttle("t0", "'; DROP TABLE partials --", "back\\slash'")
    assert loop.served() == {"t0": 10.0}


def test_rules_of_one_name_in_two_groups_are_two_rules(start: Start) -> None:
    loop = start()
    loop.throttle("t0", group="tenants")
    loop.world.calm()
    for _ in range(10):
        loop.world.advance(1)
        steps = [loop.world.evaluation("t0", group="tenants"), loop.world.evaluation(group="others")]
        loop.control.controller.step(loop.world.now, steps, loop.world.query)
        codes = {dict(row["inputs"])["code"] for row in loop.journal()}
    assert "calm" not in codes, "the alert is not gone because another rule of its name has none"
    assert {dict(row["inputs"])["group"] for row in loop.journal()} == {"tenants"}


def test_two_policies_serve_the_stricter_limit_and_the_journal_says_which_and_why(start: Start, tmp_path: Any) -> None:
    settings = ControlSettings(
        policies=tuple(
            PolicySettings(name=f"p{rate}", law="rate_limit", rate=rate, dry_run=False, max_step=1.0, target_seconds=10)
            for rate in (50, 20)
        )
    )
    control = build(settings, tmp_path / "lake", tmp_path / "other")
    world = start().world
    for _ in range(2):
        control.controller.step(world.now, [world.evaluation("t0", actions=("p50", "p20"))], world.query)
        world.advance(1)
    assert [limit.rate for limit in control.board.snapshot.limits] == [20]
    reasons = {row.policy: row.reason for row in control.controller.recent(10)}
    assert all("; p20's 20/s counts now: it is stricter than p50's 50/s" in reason for reason in reasons.values())
    (action,) = {row.action_id for row in control.controller.recent(10) if row.policy == "p20"}
    assert control.controller.revoke(action, world.now)
    assert control.board.snapshot.limits == ()  # not the other policy's either
    control.close()


def test_the_limit_that_is_left_counts_from_then_on_and_the_journal_says_so(tmp_path: Any) -> None:
    common: dict[str, Any] = {"kind": "rate_limit", "dry_run": False, "max_step": 1.0, "target_seconds": 10}
    settings = ControlSettings(
        policies=(
            PolicySettings(name="lax", rate=50, lease_seconds=600, **common),
            PolicySettings(name="strict", rate=20, lease_seconds=15, **common),
        )
    )
    control, world = build(settings, tmp_path / "lake", tmp_path / "state"), World()
    for _ in range(2):
        control.controller.step(world.now, [world.evaluation("t0", actions=("lax", "strict"))], world.query)
        world.advance(1)
    world.advance(20)
    control.controller.step(world.now, [], world.query)
    assert [limit.rate for limit in control.board.snapshot.limits] == [50]
    expired = next(row for row in control.controller.recent(10) if row.decision == "expire")
    assert expired.reason.endswith("nobody renewed it; lax's 50/s counts now")
    control.close()
