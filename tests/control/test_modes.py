"""Dry run, approval, acting: what is put in force when, by whom, and what a limit that is not would have done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

import sojourn
from alerts.control.actuators.limits_api import LimitsApi
from alerts.control.intervals import check_policies
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.laws.shadow import MOST_BETWEEN, Shadow, look
from alerts.rules.model import Rule
from alerts.run import _rules
from alerts.settings import AlertSettings
from lake.errors import SojournError, UserError
from sojourn.cli.main import app
from tests.control.test_loop import sent, until

Start = Callable[..., Any]
Serve = Callable[..., Any]

APPROVE: dict[str, Any] = {"dry_run": None, "mode": "approve"}


@pytest.fixture
def propose(start: Start) -> Callable[..., Any]:
    """A loop whose policy proposes, at the wall clock, with a proposal."""

    def make(**changes: Any) -> Any:
        loop = start(**APPROVE | {"lease_seconds": 600} | changes)
        loop.world.now = datetime.now(UTC)
        loop.throttle("t0")
        return loop

    return make


def active(loop: Any) -> dict[str, Any]:
    (found,) = loop.control.controller.active_limits.values()
    return {"id": found.action_id, "in_force": not found.dry_run, "shadow": found.shadow}


def test_a_proposal_is_journaled_and_limits_nobody_until_it_is_approved(propose: Callable[..., Any]) -> None:
    loop = propose()
    (row,) = loop.journal()
    assert (row["decision"], row["outcome"], row["dry_run"], row["after"]) == ("throttle", "proposed", True, 10.0)
    loop.run(20, "t0")
    assert loop.served() == {}
    assert loop.control.controller.approve(row["action_id"], loop.world.now)
    assert loop.served() == {"t0": 10.0}
    loop.run(3, "t0")
    told = loop.journal()[-1]
    assert (told["decision"], told["outcome"], told["dry_run"]) == ("approve", "applied", False)
    assert (told["before"], told["after"]) == (None, 10.0)
    assert float(dict(told["inputs"])["shadow_delayed"]) > 1000, "what waiting for an operator cost is told"
    loop.world.calm(noisy_rate=2)
    loop.run(8)
    assert loop.served() == {} and loop.decisions()[-1] == "release", "what is approved is released by itself"


@pytest.mark.parametrize("mode", ["dry_run", "approve"])
def test_of_what_nobody_is_held_to_it_is_not_said_that_it_is_ignored(start: Start, mode: str) -> None:
    loop = start(dry_run=None, mode=mode)
    loop.throttle("t0")
    loop.run(20, "t0")
    reasons = [row["reason"] for row in loop.journal() if row["decision"] == "hold"]
    assert reasons and not [one for one in reasons if "obeyed" in one or "no effect" in one]
    assert all("nobody is held to it: quiet tenants wait 11 s; sends 120/s" in one for one in reasons)


def test_what_is_approved_goes_on_by_itself_and_survives_a_restart(propose: Callable[..., Any], start: Start) -> None:
    loop = propose(max_step=0.5)
    assert loop.control.controller.approve(active(loop)["id"], loop.world.now)
    first = loop.served()["t0"]
    loop.run(7, "t0")
    assert loop.served()["t0"] < first
    loop.control.close()
    again = start(**APPROVE | {"lease_seconds": 600, "max_step": 0.5})
    assert again.served() == {"t0": loop.trace[-1]}
    assert active(again)["in_force"]


def test_nothing_else_is_approved(propose: Callable[..., Any], start: Start) -> None:
    loop = propose()
    controller, now = loop.control.controller, loop.world.now
    assert not controller.approve("no such action", now)
    assert controller.approve(active(loop)["id"], now)
    assert not controller.approve(active(loop)["id"], now), "twice"
    loop.control.close()
    dry = start(lease_seconds=600, dry_run=True)
    dry.throttle("t0")
    (there,) = dry.control.controller.active_limits.values()
    assert not dry.control.controller.approve(there.action_id, dry.world.now), "a dry run stays one"


def test_while_paused_nothing_is_approved(propose: Callable[..., Any]) -> None:
    loop = propose()
    (found,) = loop.control.controller.active_limits.values()
    loop.control.controller._flag.touch()  # by hand
    with pytest.raises(SojournError, match="paused"):
        loop.control.controller.approve(found.action_id, loop.world.now)
    assert loop.served() == {}


def test_an_approval_that_the_actuator_refuses_puts_nothing_in_force(
    propose: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = propose()
    enforce = LimitsApi.enforce

    def refuse(self: LimitsApi, active_limits: Any) -> Any:
        if active_limits:
            raise SojournError("the board is full")
        return enforce(self, active_limits)

    monkeypatch.setattr(LimitsApi, "enforce", refuse)
    with pytest.raises(SojournError, match="board is full"):
        loop.control.controller.approve(active(loop)["id"], loop.world.now)
    monkeypatch.undo()
    assert not active(loop)["in_force"] and loop.served() == {}
    loop.run(1, "t0")
    assert sorted(row["outcome"] for row in loop.journal()) == ["failed", "proposed"]


def test_a_policy_that_came_to_act_by_itself_revokes_what_was_only_proposed(
    propose: Callable[..., Any], start: Start
) -> None:
    loop = propose()
    loop.control.close()
    acting = start(lease_seconds=600)
    assert not acting.control.controller.active_limits
    acting.throttle("t0")
    assert acting.served() == {"t0": 10.0}


def test_what_was_tried_dry_is_no_proposal_once_the_policy_proposes(start: Start) -> None:
    dry = start(dry_run=True)
    dry.throttle("t0")
    dry.control.close()
    proposing = start(**APPROVE)
    assert not proposing.control.controller.active_limits
    proposing.throttle("t0")
    (found,) = proposing.control.controller.active_limits.values()
    assert found.proposed and proposing.control.controller.approve(found.action_id, proposing.world.now)


@pytest.mark.parametrize(("mode", "outcome"), [("dry_run", "dry_run"), ("approve", "proposed")])
def test_what_a_limit_would_have_done_is_told_at_its_end(start: Start, mode: str, outcome: str) -> None:
    loop = start(dry_run=None, mode=mode)
    loop.throttle("t0")
    loop.run(10, "t0")
    shadow = active(loop)["shadow"]
    assert shadow.arrived == pytest.approx(10 * 120) and shadow.held == pytest.approx(10 * 110)
    assert shadow.longest == pytest.approx(110), "at 10/s what is held by then is gone so late"
    assert shadow.quiet_age == 12.0
    loop.world.calm(noisy_rate=2)
    loop.run(8)
    last = loop.journal()[-1]
    assert (last["decision"], last["outcome"]) == ("release", outcome)
    assert "it would have held back" in last["reason"] and "quiet tenants waited up to 12 s" in last["reason"]
    assert float(dict(last["inputs"])["shadow_delayed"]) > 1000


def test_a_shadow_outlives_a_restart_from_its_last_change_on(start: Start) -> None:
    loop = start(dry_run=True)
    loop.throttle("t0")
    loop.run(9, "t0")  # renewed meanwhile
    loop.control.close()
    again = start(dry_run=True)
    assert active(again)["shadow"].arrived > 500


def test_a_first_limit_waits_for_the_second_signal_and_says_so(start: Start) -> None:
    loop = start(confirm=("QueueSlow",))
    loop.throttle("t0")
    loop.run(3, "t0")
    assert loop.served() == {}
    (row,) = loop.journal()
    assert (row["decision"], row["tenant"]) == ("skip", "t0") and "none of QueueSlow fires" in row["reason"]

    def both(labels: dict[str, str], **changes: Any) -> None:
        world = loop.world
        world.advance(1)
        second = world.evaluation(rule="QueueSlow", actions=(), alerts=(world.alert(labels, "QueueSlow"),), **changes)
        loop.control.controller.step(world.now, [world.evaluation("t0"), second], world.query)

    for labels in ({"queue": "bills"}, {"queue": "orders", "tenant": "t5"}):  # of something else
        for _ in range(2):
            both({"broker": "nats"} | labels)
    for _ in range(2):
        both({"broker": "nats", "queue": "orders"}, stale=True)
    assert loop.served() == {}
    for _ in range(2):
        both({"broker": "nats", "queue": "orders"})
    assert loop.served() == {"t0": 10.0}
    both({"broker": "nats", "queue": "bills"})
    assert loop.served() == {"t0": 10.0}, "it is asked for the first limit alone"


def test_a_second_signal_that_no_rule_gives_is_refused_at_check_time() -> None:
    settings = AlertSettings(control=ControlSettings(policies=(PolicySettings(name="p", confirm=("QueueSlow",)),)))
    check_policies([Rule("queues", "QueueSlow", "SELECT 1")], settings)
    with pytest.raises(UserError, match="second signal of 'QueueSlow'"):
        check_policies([Rule("queues", "Other", "SELECT 1")], settings)


@pytest.mark.parametrize(
    ("given", "mode"), [({}, "dry_run"), ({"dry_run": True}, "dry_run"), ({"dry_run": False}, "auto")]
)
def test_dry_run_is_read_as_a_mode(given: dict[str, Any], mode: str) -> None:
    assert PolicySettings.model_validate({"name": "p"} | given).mode == mode


@pytest.mark.parametrize("given", [{"dry_run": False, "mode": "auto"}, {"dry_run": "perhaps"}, {"mode": "maybe"}])
def test_a_mode_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PolicySettings.model_validate({"name": "p"} | given)


def test_operators_see_proposals_approve_and_revoke_them_by_command_and_a_producer_feels_it(
    propose: Callable[..., Any], serve: Serve
) -> None:
    loop = propose()
    with serve(loop.control) as url, sojourn.Limits(url, broker="nats") as limits:
        until(lambda: limits.counters()["updates"] == 1)
        (there,) = httpx.get(f"{url}/v1/actions").json()["standing"]
        assert (there["state"], there["tenant"], there["rate"]) == ("proposed", "t0", 10.0)
        assert sent(limits, "t0", 1000) == 1000
        command = ["actions", "approve", there["action_id"], "--url", url]
        assert CliRunner().invoke(app, command).exit_code == 0
        until(limits.in_force)
        assert sent(limits, "t0", 1000) < 1000
        assert httpx.get(f"{url}/v1/actions").json()["standing"][0]["state"] == "in_force"
        again = CliRunner().invoke(app, command)
        assert again.exit_code != 0 and "waits for approval" in f"{again.output}{again.exception}"
        assert CliRunner().invoke(app, ["actions", "pause", "--url", url]).exit_code == 0
        until(lambda: not limits.in_force())
        refused = httpx.post(f"{url}/v1/actions/{there['action_id']}/approve")
        assert (refused.status_code, refused.json()["error"]) == (409, "actions are paused – resume them first")
        loop.control.wake()


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 9)), max_size=40), st.floats(1, 200))
def test_a_shadow_counts_what_a_queue_served_at_the_limit_would_hold(
    looks: list[tuple[float, float]], limit: float
) -> None:
    shadow, now, held, arrived = Shadow(0.0, 0.0), 0.0, 0.0, 0.0
    for rate, gap in looks:
        now += gap
        shadow = look(shadow, rate, limit, 0.0, now)
        held, arrived = max(0.0, held + (rate - limit) * gap), arrived + rate * gap
        assert shadow.held == pytest.approx(held, abs=1e-6 * (1 + arrived))
        assert 0 <= shadow.held <= shadow.delayed + 1e-6 and shadow.delayed <= shadow.arrived + 1e-6
    assert shadow.arrived == pytest.approx(arrived)


def test_what_came_while_nobody_looked_is_not_counted() -> None:
    before = Shadow(0.0, 0.0)
    assert look(before, 100.0, 10.0, 0.0, MOST_BETWEEN + 1).arrived == 0


def test_who_fills_a_queue_is_asked_for_only_where_a_policy_is_early() -> None:
    def asked(**changes: Any) -> set[str]:
        policies = (PolicySettings(name="throttle-noisy", **changes),)
        return {rule.name for rule in _rules(AlertSettings(control=ControlSettings(policies=policies)))}

    assert asked(early=True) - asked() == {"TenantFillsQueue"}
