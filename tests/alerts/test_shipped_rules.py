"""Every shipped rule over every situation that a queue goes through: who is woken, and for what."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from alerts.evaluate import Freshness, Identities, RuleMemory, evaluate
from alerts.memory import Memory
from alerts.rules.expression import bound
from alerts.rules.loader import load_rules
from alerts.rules.model import Rule
from lake.definitions import Definitions
from tests.alerts.situations import CALM, INSTANTS, TROUBLE, Row, situations, table

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = load_rules((), builtin=True)
#: By rule and broker: what was firing at any time, with its severity.
Fired = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def fired() -> Fired:
    """All situations side by side, each a broker of its own, under all rules and at every instant."""
    told, memory = list(situations(START)), Memory()
    remembered = {rule.key: RuleMemory() for rule in RULES}
    identities = {rule.key: Identities() for rule in RULES}
    found: Fired = {}
    for at in INSTANTS:
        now = START + timedelta(seconds=at)
        seen: dict[str, list[Row]] = defaultdict(list)
        for situation in told:
            for view, rows in situation.rows(at).items():
                seen[view] += rows
        memory.put({name: table(name, seen[name]) for rule in RULES for name in rule.tables})
        for rule in RULES:
            sql = bound(rule.expr, now, Definitions())

            def query(_: str, sql: str = sql) -> pa.Table:
                return memory.query(sql)

            known = remembered[rule.key], query, Freshness(now, now, False), now, identities[rule.key]
            outcome = evaluate(rule, *known)
            assert outcome.evaluation.error is None, f"{rule.name}: {outcome.evaluation.error}"
            remembered[rule.key] = outcome.memory
            for alert in outcome.evaluation.alerts:
                if alert.state.is_firing and "broker" in alert.labels:
                    found[rule.name, alert.labels["broker"]] = alert.labels["severity"]
    memory.close()
    return found


@pytest.mark.parametrize("situation", CALM)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_nobody_is_woken_where_nothing_is_wrong(fired: Fired, rule: Rule, situation: str) -> None:
    assert fired.get((rule.name, situation)) != "critical"


@pytest.mark.parametrize("situation", TROUBLE)
def test_trouble_fires_what_it_is(fired: Fired, situation: str) -> None:
    _, expected = TROUBLE[situation]
    found = {rule: severity for (rule, broker), severity in fired.items() if broker == situation}
    assert found.keys() >= expected
    assert {rule for rule, severity in found.items() if severity == "critical"} <= expected, (
        "and wakes for nothing else"
    )
