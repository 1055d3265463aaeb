"""The engine over a real lake: what it commits, what it tells, and what survives."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from alerts.aside import rule_worker
from alerts.engine import Engine
from alerts.freshness import FreshnessProbe
from alerts.models import AlertState, RuleEvaluation
from alerts.overruns import FIRST_REST, LONGEST_REST, Overruns
from alerts.rules.expression import checked
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from alerts.store import Exporter, Outbox, States, connect
from alerts.views_cache import ViewCache
from lake.definitions import Definitions
from lake.errors import UserError
from lake.store import Lake
from lake.worker.worker import Overrun, Worker
from tests.alerts.helpers import GoldLake
from tests.support.finishing import FinishingReader, finish

SETTINGS = AlertSettings.model_validate({"receivers": [{"name": "pager", "url": "https://example.org/"}]})


def rule(name: str, expr: str) -> Rule:
    return Rule("g", name, expr, tables=checked(expr))


DEAD = Rule(
    "g",
    "Dead",
    "SELECT broker, queue, tenant, SUM(dead_lettered) - SUM(sidelined) AS value FROM partials"
    " GROUP BY broker, queue, tenant HAVING SUM(dead_lettered) > SUM(sidelined)",
    tables=frozenset({"partials"}),
)


@dataclass
class World:
    """An engine over a lake, which can be stopped and started again."""

    gold: GoldLake
    rules: list[Rule]
    published: int = 0
    worker: Worker = field(default_factory=rule_worker)
    settings: AlertSettings = SETTINGS

    def __post_init__(self) -> None:
        self.reader = FinishingReader(self.gold.root)
        self.start()

    def start(self) -> None:
        self.db = connect(self.gold.lake.state_path("alerts.sqlite"))
        probe = FreshnessProbe(Lake(self.gold.root), timedelta(seconds=60))
        query = self.reader.query
        self.engine = Engine(
            self.rules,
            self.settings,
            States(self.db),
            probe,
            query,
            ViewCache(query, self.worker, query),
            Definitions,
            self.publish,
            "http://sojourn",
        )

    def publish(self) -> None:
        self.published += 1

    def round(self, now: datetime | None = None) -> dict[str, list[AlertState]]:
        self.engine.round(now or datetime.now(UTC), new_data=True, everything=True)
        return {e.rule: [alert.state for alert in e.alerts] for e in self.engine.snapshot.evaluations}

    def messages(self) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT status FROM outbox ORDER BY sequence")]


def test_a_round_commits_states_history_and_what_is_to_be_told_together(gold: GoldLake) -> None:
    world = World(gold, [DEAD])
    at = gold.partial(dead_lettered=2)
    assert world.round() == {"Dead": [AlertState.FIRING]}
    (message,) = Outbox(world.db).due(datetime.now(UTC), "pager")
    assert (message.receiver, message.status, message.data_as_of) == ("pager", "firing", at)
    assert world.published == 1
    assert world.db.execute("SELECT to_state, value FROM transitions").fetchall() == [("firing", 2.0)]
    assert world.db.execute("SELECT reason FROM decisions").fetchall() == [("first notification of this group",)]
    world.round()
    assert world.messages() == ["firing"]
    gold.partial(sidelined=2)
    world.round(datetime.now(UTC) + timedelta(seconds=2))
    assert world.messages() == ["firing", "resolved"]


def test_a_failed_commit_leaves_neither_state_nor_message(gold: GoldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(gold, [DEAD])
    gold.partial(dead_lettered=1)

    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr("alerts.store.outbox.OutboxMessage.row", broken)
    with pytest.raises(sqlite3.OperationalError):
        world.round()
    assert world.messages() == []
    assert world.db.execute("SELECT COUNT(*) FROM alerts").fetchone() == (0,)
    monkeypatch.undo()
    world.start()  # as its supervisor would
    assert world.round() == {"Dead": [AlertState.FIRING]}
    assert world.messages() == ["firing"]


def test_a_restart_restores_firing_and_tells_nobody_again(gold: GoldLake) -> None:
    world = World(gold, [DEAD])
    gold.partial(dead_lettered=1)
    world.round()
    fired_at = world.engine.snapshot.evaluations[0].alerts[0].fired_at
    world.start()
    assert world.round() == {"Dead": [AlertState.FIRING]}
    assert world.engine.snapshot.evaluations[0].alerts[0].fired_at == fired_at
    assert world.messages() == ["firing"]


def test_one_broken_rule_leaves_the_others_alone_and_is_told_of(gold: GoldLake) -> None:
    twice = rule("Twice", "SELECT queue, SUM(dead_lettered) AS value FROM partials GROUP BY queue, tenant")
    failing = rule("RuleFailing", "SELECT rule, failing_seconds AS value FROM rule_health WHERE NOT ok")
    world = World(gold, [twice, DEAD, failing])
    gold.partial(dead_lettered=1, tenant="a")
    gold.partial(dead_lettered=1, tenant="b")
    assert world.round() == {"Twice": [], "Dead": [AlertState.FIRING] * 2, "RuleFailing": [AlertState.FIRING]}
    (twice_now,) = [e for e in world.engine.snapshot.evaluations if e.rule == "Twice"]
    assert (twice_now.ok, "same labels" in (twice_now.error or "")) == (False, True)


def test_no_rule_stops_the_engine_whatever_its_query_raises_or_returns(
    gold: GoldLake, caplog: pytest.LogCaptureFixture
) -> None:
    binary = rule("Binary", "SELECT queue, CAST(queue AS BINARY) AS value FROM partials")
    far = rule("Far", "SELECT queue, 1 AS value, CAST('infinity' AS TIMESTAMP) AS at FROM partials")
    failing = rule("RuleFailing", "SELECT rule, failing_seconds AS value FROM rule_health WHERE NOT ok")
    world = World(gold, [binary, far, DEAD, failing])
    gold.partial(dead_lettered=1)
    for _ in range(3):
        states = world.round()
        assert (states["Binary"], states["Far"], states["Dead"]) == ([], [], [AlertState.FIRING])
        assert states["RuleFailing"] == [AlertState.FIRING] * 2
    said = [record.getMessage() for record in caplog.records if "of group g:" in record.getMessage()]
    assert len(said) == 2, "each is said once"


def test_data_that_stops_resolves_nothing(gold: GoldLake) -> None:
    stale = rule("StaleData", "SELECT broker, age_seconds AS value FROM data_freshness WHERE stale")
    world = World(gold, [DEAD, stale])
    gold.partial(dead_lettered=1, at=datetime.now(UTC) - timedelta(seconds=30))
    assert world.round() == {"Dead": [AlertState.FIRING], "StaleData": []}
    gold.partial(sidelined=1, at=datetime.now(UTC) - timedelta(seconds=30))
    later = datetime.now(UTC) + timedelta(seconds=61)
    assert world.round(later) == {"Dead": [AlertState.FIRING], "StaleData": [AlertState.FIRING]}
    assert [e.stale for e in world.engine.snapshot.evaluations if e.rule == "Dead"] == [True]


def test_idle_queues_are_not_stale_as_long_as_they_are_sampled(gold: GoldLake) -> None:
    world = World(gold, [DEAD])
    gold.partial(dead_lettered=1, at=datetime.now(UTC) - timedelta(minutes=10))
    now = datetime.now(UTC)
    stamps = {"broker": "nats", "queue": "orders", "source": "t", "ingested_at": now, "ingest_date": now.date()}
    gold.lake.append("queue_samples", pa.Table.from_pylist([{**stamps, "sampled_at": now}]))
    assert world.round() == {"Dead": [AlertState.FIRING]}
    event = {"event_id": "e", "event_type": "enqueued", "message_id": "m", "occurred_at": now, "clock": "broker"}
    gold.lake.append("message_events", pa.Table.from_pylist([{**stamps, **event}]))
    world.round()
    assert world.engine.snapshot.freshness.stale, "an event that gold lacks means that analytics is behind"


def test_a_broker_that_is_only_sampled_is_fresh_while_others_have_events(gold: GoldLake) -> None:
    stale = rule("StaleData", "SELECT broker, COALESCE(age_seconds, -1) AS value FROM data_freshness WHERE stale")
    world = World(gold, [stale])
    gold.partial(dead_lettered=1)
    now = datetime.now(UTC)
    sample = {"broker": "redis", "queue": "orders", "source": "t", "ingested_at": now, "ingest_date": now.date()}
    gold.lake.append("queue_samples", pa.Table.from_pylist([{**sample, "sampled_at": now}]))
    assert world.round() == {"StaleData": []}
    gold.partial(dead_lettered=1, at=now + timedelta(seconds=61))
    assert world.round(now + timedelta(seconds=61)) == {"StaleData": [AlertState.FIRING]}, "its sampler is silent"


def test_a_broker_that_is_read_every_two_minutes_is_stale_after_three_readings(gold: GoldLake) -> None:
    stale = rule("StaleData", "SELECT broker, age_seconds AS value FROM data_freshness WHERE stale")
    world = World(gold, [stale])
    now = datetime.now(UTC)
    sample = {"broker": "sqs", "queue": "orders", "source": "t", "ingested_at": now, "ingest_date": now.date()}
    told = {"sampled_at": now, "depth": 5, "sample_interval_seconds": 120.0}
    gold.lake.append("queue_samples", pa.Table.from_pylist([{**sample, **told}]))
    finish(gold.root)
    assert world.round(now + timedelta(seconds=119)) == {"StaleData": []}
    assert not world.engine.snapshot.freshness.stale
    assert world.round(now + timedelta(seconds=361)) == {"StaleData": [AlertState.FIRING]}


def test_rules_that_are_gone_resolve_their_alerts(gold: GoldLake) -> None:
    world = World(gold, [DEAD])
    gold.partial(dead_lettered=1)
    world.round()
    world.rules = []
    world.start()
    world.round(datetime.now(UTC) + timedelta(seconds=2))
    assert world.db.execute("SELECT to_state, reason FROM transitions ORDER BY id").fetchall()[1:] == [
        ("inactive", "the rule is no longer there")
    ]
    assert world.messages() == ["firing", "resolved"]


def test_history_is_copied_into_the_lake_exactly_once(gold: GoldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(gold, [DEAD])
    gold.partial(dead_lettered=1)
    world.round()

    def crash(*_: object) -> None:
        raise RuntimeError("killed after the commit to the lake, before the rows left the store")

    monkeypatch.setattr("alerts.store.export.transaction", crash)
    with pytest.raises(RuntimeError):
        Exporter(world.db, gold.lake).export()
    monkeypatch.undo()
    Exporter(world.db, gold.lake).export()
    gold.partial(sidelined=1)
    world.round()
    assert Exporter(world.db, gold.lake).export() == 1
    rows = world.reader.query("SELECT to_state, labels, reason FROM alert_transitions ORDER BY at").to_pylist()
    assert [row["to_state"] for row in rows] == ["firing", "inactive"]
    assert dict(rows[0]["labels"])["tenant"] == "acme"
    assert world.db.execute("SELECT COUNT(*) FROM transitions").fetchone() == (0,)


def test_policies_read_what_the_rules_saw(gold: GoldLake) -> None:
    some = rule("Any", "SELECT broker, queue, SUM(backlog) AS value FROM tenant_backlog_now GROUP BY broker, queue")
    world = World(gold, [some])
    gold.partial(enqueued=3)
    world.round()
    gold.partial(enqueued=4)
    assert world.engine.query("SELECT backlog FROM tenant_backlog_now").to_pylist() == [{"backlog": 3}]
    assert world.engine.query("SELECT COUNT(*) AS n FROM partials").to_pylist() == [{"n": 2}]
    with pytest.raises(UserError):
        world.engine.query("DROP TABLE partials")


#: Harmless over empty views, where it is tried out; gigabytes for each row of a real one.
BOMB = "SELECT queue, length(repeat(queue, 400000000)) AS value FROM queue_health_now"
FAR = "SELECT broker, queue, backlog + {number} AS value FROM tenant_backlog_now"


def test_a_rule_that_goes_beyond_its_limits_fails_alone_and_the_others_are_evaluated_in_its_round(
    gold: GoldLake,
) -> None:
    healthy = [rule(f"Healthy{number}", FAR.format(number=number)) for number in range(9)]
    failing = rule("RuleFailing", "SELECT rule, failing_seconds AS value FROM rule_health WHERE NOT ok")
    with Worker(None, timeout_seconds=120, memory_mb=300) as worker:
        world = World(gold, [*healthy[:4], rule("Bomb", BOMB), *healthy[4:], failing], worker=worker)
        gold.partial(enqueued=1)
        now = datetime.now(UTC)
        assert world.round(now) == {"Bomb": []} | {r.name: [AlertState.FIRING] for r in [*healthy, failing]}
        (said,) = (e.error for e in world.engine.snapshot.evaluations if not e.ok)
        assert said is not None
        assert "more than 300 MB" in said
        assert "tried again after" in said
        died = worker.pid
        world.round(now)
        assert worker.pid == died, "it rests"
        world.round(now + 4 * FIRST_REST)
        assert worker.pid != died, "it is tried again"
        assert [e.rule for e in world.engine.snapshot.evaluations if not e.ok] == ["Bomb"]


def test_a_rule_rests_longer_after_each_overrun_up_to_a_limit_and_is_forgiven_at_once() -> None:
    overruns, key, now = Overruns(), ("g", "r"), datetime(2026, 1, 1, tzinfo=UTC)
    rests = []
    for _ in range(40):
        overruns.check(key, now)
        overruns.note(key, Overrun("too long"), now)
        start = now
        while True:
            now += timedelta(seconds=5)
            try:
                overruns.check(key, now)
            except Overrun:
                continue
            break
        rests.append(now - start)
    assert rests[:3] == [FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST]
    assert rests[-1] == LONGEST_REST
    overruns.forgive(key)
    assert key not in overruns
    overruns.check(key, now)


def test_a_rule_with_a_long_for_is_looked_at_once_an_interval_until_something_matches(gold: GoldLake) -> None:
    held = (("Long", timedelta(seconds=10)), ("Short", timedelta(seconds=2)))
    long, short = (Rule("g", name, DEAD.expr, hold=hold, tables=DEAD.tables) for name, hold in held)
    world = World(gold, [long, short])
    start = gold.partial(enqueued=1)
    assert world.round(start) == {"Long": [], "Short": []}
    gold.partial(dead_lettered=1, at=start)
    seen = {}
    for at in (0.3, 1.0, 1.3, 2.6, 11.2):
        gold.partial(enqueued=1, at=start + timedelta(seconds=at))
        seen[at] = world.round(start + timedelta(seconds=at))
    assert [one["Short"] for one in seen.values()] == [[AlertState.PENDING]] * 3 + [[AlertState.FIRING]] * 2
    assert [one["Long"] for one in seen.values()] == [[], *[[AlertState.PENDING]] * 3, [AlertState.FIRING]]
    evaluated = {one.rule: one.evaluated_at for one in world.engine.snapshot.evaluations}
    assert evaluated["Long"] >= start + timedelta(seconds=11.2), "what matches is stepped each round"


def test_rules_that_can_wait_are_evaluated_behind_those_that_cannot(gold: GoldLake) -> None:
    """They read views of their own, and what fires at once must not be told later for it."""
    held = (("Long", timedelta(minutes=10)), ("Short", timedelta(0)))
    world = World(gold, [Rule("g", name, DEAD.expr, hold=hold, tables=DEAD.tables) for name, hold in held])
    start = gold.partial(enqueued=1)
    for second in range(3):
        world.round(start + timedelta(seconds=second))
    at = {one.rule: one.evaluated_at for one in world.engine.snapshot.evaluations}
    assert start + timedelta(seconds=2) <= at["Short"] < at["Long"]


def test_policies_that_are_early_act_on_the_newest_views_before_other_rules_are_evaluated(gold: GoldLake) -> None:
    """They waited for all of a round, and looked at views that it had left to the next for want of time."""
    others = "SELECT broker, queue, oldest_age_seconds AS value FROM queue_health_now"
    filling = "SELECT broker, queue, tenant, backlog AS value FROM tenant_backlog_now"
    asks = replace(rule("Fills", filling), actions=("throttle",))
    early = {"control": {"policies": [{"name": "throttle", "early": True}]}}
    world = World(gold, [rule("Health", others), asks], settings=AlertSettings.model_validate(early))
    acted: list[tuple[set[str], datetime]] = []

    def act(evaluations: Sequence[RuleEvaluation]) -> None:
        (row,) = world.engine.newest("SELECT as_of FROM queue_health_now").to_pylist()
        acted.append(({one.rule for one in evaluations if one.evaluated_at >= now}, row["as_of"]))

    for _ in range(2):
        newest, now = gold.partial(enqueued=1), datetime.now(UTC)
        world.engine.round(now, new_data=True, act=act)
        assert acted == [({"Fills"}, newest)]
        acted.clear()
    world.engine.round(now := datetime.now(UTC), new_data=True, everything=True, act=act)
    assert acted == [({"Fills", "Health"}, newest)], "where there is but one round, policies see all of it"
