from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from alerts.answer import Identities
from alerts.evaluate import Freshness, Outcome, RuleMemory, evaluate
from alerts.models import AlertState
from alerts.rules.model import NoData, Rule
from lake.errors import UserError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FRESH = Freshness(NOW, NOW, stale=False)
STALE = Freshness(NOW - timedelta(hours=1), NOW - timedelta(hours=1), stale=True)
RULE = Rule("g", "Behind", "…", labels={"severity": "page"}, tables=frozenset({"queue_health_now"}))


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


def run(
    rows: pa.Table | Exception,
    *,
    rule: Rule = RULE,
    memory: RuleMemory | None = None,
    freshness: Freshness = FRESH,
    now: datetime = NOW,
) -> Outcome:
    def query(_: str) -> pa.Table:
        if isinstance(rows, Exception):
            raise rows
        return rows

    return evaluate(rule, memory or RuleMemory(), query, freshness, now, Identities())


ONE = table(queue=["orders"], value=[3])
NONE = table(queue=pa.array([], pa.string()), value=pa.array([], pa.int64()))


def test_text_columns_are_labels_the_value_is_not_and_other_columns_feed_annotations() -> None:
    rule = replace(RULE, annotations={"summary": "{{ row.depth }} of {{ labels.queue }}, {{ value }}"})
    rows = table(queue=["orders"], subscriber=pa.array([None], pa.string()), depth=[7], value=[2.5])
    (alert,) = run(rows, rule=rule).evaluation.alerts
    assert alert.labels == {"queue": "orders", "severity": "page", "alertname": "Behind"}
    assert (alert.value, alert.annotations["summary"]) == (2.5, "7 of orders, 2.5")


def test_a_new_value_is_the_same_alert() -> None:
    first = run(ONE)
    second = run(table(queue=["orders"], value=[4]), memory=first.memory)
    assert second.memory.alerts.keys() == first.memory.alerts.keys()
    assert second.transitions == ()


@pytest.mark.parametrize(
    "broken",
    [
        UserError("the lake is away"),
        RuntimeError("of the engine below"),
        MemoryError(),
        RecursionError("too deep"),
        table(queue=["a"], value=[b"binary"]),
        table(queue=["a"], value=pa.array([1], pa.timestamp("us"))),
        table(queue=["a"], value=pa.array([1], pa.duration("us"))),
        table(queue=["a"], value=[1], at=pa.array([2**63 - 1], pa.timestamp("us", "UTC"))),
        table(queue=["a"], value=[1], day=pa.array([2**31 - 1], pa.date32())),
        table(queue=["a"], value=[1], nested=pa.array([{"day": 2**31 - 1}], pa.struct([("day", pa.date32())]))),
        table(queue=["a", "a"], value=[1, 2]),
        table(queue=["a"], value=["many"]),
        table(queue=["a"]),
    ],
    ids=[
        *("query fails", "anything fails", "no memory", "recursion", "value is binary", "value is an instant"),
        *("value is a duration", "infinite instant", "infinite day", "infinite day inside", "same labels twice"),
        *("value is text", "no value"),
    ],
)
def test_an_evaluation_that_fails_changes_nothing_and_says_why(broken: pa.Table | Exception) -> None:
    before = run(ONE)
    after = run(broken, memory=before.memory)
    assert (after.evaluation.ok, after.transitions) == (False, ())
    assert after.evaluation.error
    assert after.evaluation.alerts == before.evaluation.alerts


def test_no_rows_resolve_but_no_data_keep() -> None:
    before = run(ONE)
    assert [t.to_state for t in run(NONE, memory=before.memory).transitions] == [AlertState.INACTIVE]
    kept = run(NONE, memory=before.memory, freshness=STALE)
    assert (kept.evaluation.stale, kept.transitions) == (True, ())
    assert kept.evaluation.alerts == before.evaluation.alerts


def test_no_data_ok_resolves_on_stale_data() -> None:
    rule = replace(RULE, no_data=NoData.OK)
    before = run(ONE, rule=rule)
    assert [t.to_state for t in run(ONE, rule=rule, memory=before.memory, freshness=STALE).transitions] == [
        AlertState.INACTIVE
    ]


def test_no_data_alert_keeps_what_fires_and_honours_for_on_the_wall_clock() -> None:
    rule = replace(RULE, no_data=NoData.ALERT, hold=timedelta(seconds=30))
    memory = run(ONE, rule=rule, memory=run(ONE, rule=rule).memory).memory
    later = run(NONE, rule=rule, memory=memory, freshness=STALE, now=NOW + timedelta(seconds=60))
    assert {dict(a.labels).get("no_data"): a.state for a in later.evaluation.alerts} == {
        None: AlertState.PENDING,
        "true": AlertState.PENDING,
    }
    last = run(NONE, rule=rule, memory=later.memory, freshness=STALE, now=NOW + timedelta(seconds=90))
    assert [(t.alert.labels.get("no_data"), t.to_state) for t in last.transitions] == [("true", AlertState.FIRING)]
    back = run(ONE, rule=rule, memory=last.memory, now=NOW + timedelta(seconds=91))
    assert [(t.alert.labels.get("no_data"), t.to_state) for t in back.transitions if t.from_state.is_firing] == [
        ("true", AlertState.INACTIVE)
    ]


def test_for_counts_data_time_not_the_wall_clock() -> None:
    rule = replace(RULE, hold=timedelta(seconds=10))
    memory = run(ONE, rule=rule).memory
    still = run(ONE, rule=rule, memory=memory, now=NOW + timedelta(seconds=50))
    assert [a.state for a in still.evaluation.alerts] == [AlertState.PENDING]
    moved = Freshness(NOW + timedelta(seconds=10), NOW + timedelta(seconds=10), stale=False)
    fired = run(ONE, rule=rule, memory=still.memory, freshness=moved, now=NOW + timedelta(seconds=51))
    assert [a.state for a in fired.evaluation.alerts] == [AlertState.FIRING]


def test_late_data_do_not_turn_evaluation_time_back() -> None:
    memory = run(ONE).memory
    earlier = Freshness(NOW - timedelta(seconds=5), NOW - timedelta(seconds=5), stale=False)
    assert run(ONE, memory=memory, freshness=earlier).memory.evaluated_to == NOW


def test_a_restart_restores_firing_and_its_downtime_does_not_count() -> None:
    rule = replace(RULE, hold=timedelta(seconds=10))
    memory = replace(run(ONE, rule=rule).memory, interrupted=True)
    hour_later = NOW + timedelta(hours=1)
    back = run(ONE, rule=rule, memory=memory, freshness=Freshness(hour_later, hour_later, False), now=hour_later)
    assert [a.state for a in back.evaluation.alerts] == [AlertState.PENDING]
    ten = hour_later + timedelta(seconds=10)
    fired = run(ONE, rule=rule, memory=back.memory, freshness=Freshness(ten, ten, False), now=ten)
    assert [a.state for a in fired.evaluation.alerts] == [AlertState.FIRING]


PARTIAL = replace(FRESH, complete=False)


def test_while_history_is_incomplete_what_fires_stays_and_what_matches_fires() -> None:
    memory = run(ONE).memory
    both = run(table(queue=["mails"], value=[4]), memory=memory, freshness=PARTIAL)
    assert [t.to_state for t in both.transitions] == [AlertState.FIRING]
    assert len(both.memory.alerts) == 2
    assert [t.to_state for t in run(NONE, memory=both.memory).transitions] == [AlertState.INACTIVE] * 2


def test_incomplete_history_keeps_no_alert_that_does_not_rest_on_levels_and_none_that_is_pending() -> None:
    ages = replace(RULE, tables=frozenset({"attempt_age"}))
    assert run(NONE, rule=ages, memory=run(ONE, rule=ages).memory, freshness=PARTIAL).memory.alerts == {}
    waits = replace(RULE, hold=timedelta(seconds=10))
    assert run(NONE, rule=waits, memory=run(ONE, rule=waits).memory, freshness=PARTIAL).memory.alerts == {}


def test_rules_about_staleness_itself_are_evaluated_on_stale_data() -> None:
    rule = replace(RULE, tables=frozenset({"data_freshness"}))
    outcome = run(table(broker=["nats"], value=[99.0]), rule=rule, freshness=STALE)
    assert not outcome.evaluation.stale
    assert [a.state for a in outcome.evaluation.alerts] == [AlertState.FIRING]
