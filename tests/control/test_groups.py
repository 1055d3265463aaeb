"""Tenants that count as one: who is of which group, and how a policy limits a group as one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from alerts.aside import rule_worker
from alerts.control.active_limit import Target
from alerts.control.groups import Groups
from alerts.control.observe import observe
from alerts.control.settings import ControlSettings, GroupSettings
from alerts.rules.expression import bound, schema_of
from alerts.rules.loader import load_rules
from alerts.run import _rules
from alerts.settings import AlertSettings
from alerts.views_cache import ViewCache
from lake.definitions import Definitions
from tests.control.conftest import START

Start = Callable[..., Any]
ORDERS = {"broker": "nats", "queue": "orders"}


def rows(**rates: float) -> Callable[[str], pa.Table]:
    """A query whose answer is that these tenants of the queue send so much."""
    told = [ORDERS | {"tenant": name.replace("_", "-"), "rate": rate} for name, rate in rates.items()]
    return lambda _: pa.Table.from_pylist(told)


def named(groups: Groups, query: Callable[[str], pa.Table], seconds: float) -> dict[str, str]:
    table = groups.table(query, START + timedelta(seconds=seconds))
    return {row["tenant"]: row["tenant_group"] for row in table.to_pylist()}


def test_declared_groups_are_told_by_their_pattern_whether_or_not_they_send() -> None:
    groups = Groups([GroupSettings(**ORDERS, names=("acme-*", "acme-eu-*"), together=False)])
    found = named(groups, rows(acme_1=3.0, acme_eu_2=0.0, other=5.0), 0)
    assert found == {"acme-1": "acme-*", "acme-eu-2": "acme-eu-*"}
    assert groups.members[Target("nats", "orders", "acme-*")] == {"acme-1"}


def test_names_that_begin_together_are_a_group_until_they_are_silent() -> None:
    groups = Groups([GroupSettings(**ORDERS)])
    usual = {f"t{number}": 5.0 for number in range(20)}
    for second in range(20):
        assert named(groups, rows(**usual), second) == {}
    bots = {f"bot_{number}": 2.0 for number in range(12)}
    found = named(groups, rows(**usual, **bots), 20)
    assert found.keys() == {name.replace("_", "-") for name in bots} and len(set(found.values())) == 1
    assert next(iter(found.values())).startswith("bot-")
    assert named(groups, rows(**usual, **dict.fromkeys(bots, 0.0)), 60) == {}
    assert groups.members == {}


def test_other_queues_have_no_groups() -> None:
    groups = Groups([GroupSettings(broker="nats", queue="bills", names=("t*",))])
    assert named(groups, rows(t1=3.0), 0) == {}
    assert Groups(()).table(lambda _: pytest.fail("asked for nothing"), START).num_rows == 0


def group_of(loop: Any, name: str, *members: str) -> Target:
    target = Target("nats", "orders", name)
    loop.control.groups.members = MappingProxyType({target: frozenset(members)})
    return target


def test_those_who_began_together_are_limited_as_one_by_equal_parts(start: Start) -> None:
    loop = start(groups=[GroupSettings(**ORDERS)])
    group_of(loop, "t… (began together)", "t0", "t1", "t2")
    loop.throttle("t… (began together)", rule="NoisyGroup")
    # 80/s are finished; five others ask for 10/s each: 30/s are left for the three, less what drains the backlog.
    assert loop.served() == pytest.approx(dict.fromkeys(("t0", "t1", "t2"), (30 - 534 / 60) / 3))
    (row,) = loop.journal()
    assert (row["tenant"], row["after"], row["outcome"]) == ("t… (began together)", pytest.approx(21.1), "applied")
    assert dict(row["inputs"])["members"] == "3"
    group_of(loop, "t… (began together)", "t0", "t1", "t2", "t3")
    loop.run(1, "t… (began together)")
    assert loop.served() == pytest.approx(dict.fromkeys(("t0", "t1", "t2", "t3"), 21.1 / 4)), (
        "who joins is limited, too"
    )
    loop.control.controller.revoke(row["action_id"], loop.world.now)
    assert loop.served() == {}


def test_a_declared_group_shares_one_limit(start: Start) -> None:
    loop = start(groups=[GroupSettings(**ORDERS, names=("t*",))])
    group_of(loop, "t*", "t0", "t1", "t2")
    loop.throttle("t*", rule="NoisyGroup")
    assert loop.served() == pytest.approx({"t*": 21.1})


def test_a_dry_run_names_the_group_and_limits_nobody(start: Start) -> None:
    loop = start(groups=[GroupSettings(**ORDERS)], dry_run=True)
    group_of(loop, "bots", "t0", "t1")
    loop.throttle("bots", rule="NoisyGroup")
    assert loop.served() == {} and loop.journal()[-1]["tenant"] == "bots"


def test_a_group_that_is_gone_is_limited_no_more(start: Start) -> None:
    loop = start(groups=[GroupSettings(**ORDERS)])
    group_of(loop, "bots", "t0", "t1")
    loop.throttle("bots", rule="NoisyGroup")
    assert loop.served().keys() == {"t0", "t1"}
    loop.control.groups.members = MappingProxyType({})
    loop.run(1, "bots")
    assert loop.served().keys() <= {"bots"}, "its members are free at once"
    loop.world.calm()
    for _ in range(20):
        loop.world.advance(1)
        loop.step(rule="NoisyGroup")
    assert loop.served() == {}


def test_shares_are_of_consumers_time_not_of_messages(start: Start) -> None:
    loop = start()
    loop.world.work = {"t0": 0.8}  # eight times as long as the others' messages
    loop.throttle("t0")
    (row,) = loop.journal()
    assert row["decision"] == "throttle" and 0 < row["after"] < 5.0, "10/s where a message costs what others' do"


@pytest.mark.parametrize("given", [{"names": ("*",)}, {"names": ("a*b",)}, {"together": False}])
def test_groups_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GroupSettings(**ORDERS | given)


def test_a_queues_groups_stand_once_and_the_rule_is_asked_only_where_there_are_any() -> None:
    twice = [ORDERS | {"names": ["a-*"]}] * 2
    with pytest.raises(ValidationError, match="two of groups"):
        ControlSettings.model_validate({"groups": twice})
    assert "NoisyGroup" in {rule.name for rule in load_rules((), builtin=True)}
    assert "NoisyGroup" not in {rule.name for rule in _rules(AlertSettings())}
    settings = AlertSettings(control=ControlSettings.model_validate({"groups": twice[:1]}))
    assert "NoisyGroup" in {rule.name for rule in _rules(settings)}


def test_the_rule_names_a_declared_group_over_views_as_the_alert_process_holds_them() -> None:
    views = ViewCache(lambda _: pytest.fail("nothing is read"), rule_worker(), lambda _: pytest.fail("no history"))
    told = [(f"bot-{number}", 20, 5.0) for number in range(10)] + [("quiet", 10, 1.0), ("it's", 5, 1.0)]
    waiting = [
        ORDERS | {"tenant": name, "backlog": backlog, "ready": backlog - 1, "in_flight": 1, "arrival_rate": rate}
        for name, backlog, rate in told
    ]
    views.put("tenant_backlog_now", pa.Table.from_pylist(waiting, schema=schema_of("tenant_backlog_now")))
    groups = Groups([GroupSettings(**ORDERS, names=("bot-*",))])
    views.put("tenant_groups", groups.table(views.query, START))
    (rule,) = [rule for rule in load_rules((), builtin=True) if rule.name == "NoisyGroup"]
    (row,) = views.query(bound(rule.expr, START, Definitions())).to_pylist()
    assert (row["tenant"], row["members"], row["backlog"]) == ("bot-*", 10, 200.0)
    assert row["value"] == pytest.approx(200 / 215)
    views.close()


def test_beside_a_group_who_is_called_noisy_can_suffer_and_who_is_limited_cannot() -> None:
    """So many names that everybody with a tenth of the work is noisy: quiet were none, and nobody suffered."""
    group = Target("nats", "orders", "bots")
    targets = [group, *(Target("nats", "orders", name) for name in ("t1", "t2"))]
    of = {**ORDERS, "subscriber": None, "as_of": START, "backlog": 30, "ready": 20, "completion_rate": 10.0}
    of |= {"arrival_rate": 10.0, "active_tenants": 1, "quiet_age": None, "quiet_ready": None}
    ages = {"bot-1": 9.0, "bot-2": 9.0, "t1": 4.0, "t2": 6.0}
    tenants = [of | {"target": name, "oldest_age": old} for name, old in ages.items()]
    health = [{**ORDERS, "depth": 120, "coverage": 1.0, "staleness_seconds": 0.0, "mode": "backlogged"}]
    flows = [
        {**ORDERS, "subscriber": None, "target": name, "enqueued": 50.0, "finished": 50.0, "work": 5.0} for name in ages
    ]

    def query(sql: str) -> pa.Table:
        rows = flows if "FROM partials" in sql else health if "queue_health_now" in sql else tenants
        return pa.Table.from_pylist(rows)

    members = {group: frozenset({"bot-1", "bot-2"})}
    seen = observe(query, targets, START, 5, members=members)
    assert (seen[group].quiet_age_seconds, seen[group].quiet_ready, seen[group].quiet_rate) == (6.0, 40.0, 20.0)
    assert seen[targets[1]].quiet_age_seconds == 0.0, "beside a tenant only those who are not named are quiet"
    held = observe(query, targets, START, 5, members=members, held={targets[2]})
    assert (held[group].quiet_age_seconds, held[group].quiet_ready) == (4.0, 20.0)
