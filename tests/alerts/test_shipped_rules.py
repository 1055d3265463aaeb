"""Every shipped rule over every situation that a queue goes through: who is woken, and for what."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import yaml

from alerts.answer import Identities
from alerts.evaluate import Freshness, RuleMemory, evaluate
from alerts.memory import Memory
from alerts.rules.expression import bound
from alerts.rules.loader import BUILTIN, load_rules, rule_files
from lake.definitions import Definitions
from tests.alerts.situation import CALM, INSTANTS, TROUBLE, Row, Situation, table
from tests.alerts.situations import situations

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = [
    rule["alert"]
    for path in rule_files([BUILTIN])
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
#: By rule and broker: what was firing at any time, with its severity.
Fired = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def fired() -> Fired:
    """All situations side by side, each a broker of its own, under all rules and at every instant."""
    told, memory, rules = list(situations(START)), Memory(), load_rules((), builtin=True)
    assert [rule.name for rule in rules] == NAMES
    remembered = {rule.key: RuleMemory() for rule in rules}
    identities = {rule.key: Identities() for rule in rules}
    found: Fired = {}
    for at in INSTANTS:
        now = START + timedelta(seconds=at)
        seen: dict[str, list[Row]] = defaultdict(list)
        for situation in told:
            for view, rows in situation.rows(at).items():
                seen[view] += rows
        memory.put({name: table(name, seen[name]) for rule in rules for name in rule.tables})
        for rule in rules:
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
@pytest.mark.parametrize("rule", NAMES)
def test_nobody_is_woken_where_nothing_is_wrong(fired: Fired, rule: str, situation: str) -> None:
    assert fired.get((rule, situation)) != "critical"


@pytest.mark.parametrize("situation", TROUBLE)
def test_trouble_fires_what_it_is(fired: Fired, situation: str) -> None:
    _, expected = TROUBLE[situation]
    found = {rule: severity for (rule, broker), severity in fired.items() if broker == situation}
    assert found.keys() >= expected
    assert {rule for rule, severity in found.items() if severity == "critical"} <= expected, (
        "and wakes for nothing else"
    )


#: What every shipped rule has to be right in → the situations that try all of them there.
EIGHT = {
    "idle": ("an_application_that_reports_for_itself_falls_idle", "a_sampled_queue_is_idle"),
    "one message": ("one_message_comes_and_goes",),
    "long job": (
        "a_single_job_takes_31_seconds",
        "a_job_takes_half_an_hour_while_others_wait",
        "a_sampled_job_takes_half_an_hour_while_others_wait",
    ),
    "just started": ("everything_has_just_started", "a_tap_starts_beside_a_queue_that_was_full"),
    "half-instrumented": (
        "producers_report_and_consumers_do_not",
        "producers_report_and_consumers_do_not_of_a_sampled_queue",
    ),
    "decommissioned queue": (
        "a_queue_that_is_no_longer_used_holds_a_few",
        "a_group_that_was_given_up_is_overtaken_by_retention",
    ),
    "poison message": ("a_poison_message_is_tried_again_and_again",),
}


@pytest.mark.parametrize("kind", EIGHT)
def test_every_rule_is_tried_in_each_kind_of_situation(fired: Fired, kind: str) -> None:
    assert set(EIGHT[kind]) <= CALM.keys()
    woken = {rule for (rule, broker), severity in fired.items() if broker in EIGHT[kind] and severity == "critical"}
    assert woken == set()


def test_of_a_stale_broker_it_is_told_that_it_is_stale_and_nothing_of_its_queues(fired: Fired) -> None:
    found = {rule for rule, broker in fired if broker == "the_collector_of_a_broker_dies"}
    assert found == {"StaleData"}


@pytest.mark.parametrize(
    "situation",
    [
        "a_worker_that_no_list_has_takes_each_job_as_it_comes",
        "a_client_that_polls_is_no_consumer_to_its_broker_and_takes_every_message",
    ],
)
def test_of_consumers_that_nobody_lists_and_that_consume_nothing_is_told(fired: Fired, situation: str) -> None:
    assert {rule for rule, broker in fired if broker == situation} == set()


#: What must be told of queues that are only sampled → the situations that show it.
SAMPLED_ALONE = {
    "stalled": ("consumers_of_a_sampled_queue_take_nothing", "the_depth_of_a_queue_does_not_move"),
    "nobody consumes": ("nobody_consumes_five_hundred_tasks", "nobody_consumes_what_keeps_coming"),
    "STOP": ("a_group_of_a_sampled_topic_stops",),
    "STALL": ("a_group_of_a_sampled_topic_holds_its_membership_and_hangs",),
    "REWIND": ("a_group_is_rewound",),
    "LOST": ("retention_overtakes_a_group_that_reads", "retention_overtakes_a_group_that_goes_on_at_once"),
    "retention margin going": ("retention_is_about_to_overtake_a_group",),
    "retention margin gone": ("retention_is_at_what_is_unread_and_no_age_is_known",),
    "a transaction hangs": ("a_transaction_hangs_before_a_group_that_reads_committed_records",),
    "at its limit with nothing completing": ("a_sampled_queue_is_at_its_limit_and_nothing_completes",),
    "leaked slots": ("slots_of_a_sampled_queue_leak",),
}


@pytest.mark.parametrize("trouble", SAMPLED_ALONE)
def test_what_samples_alone_tell_needs_no_event(trouble: str) -> None:
    for name in SAMPLED_ALONE[trouble]:
        story, _ = TROUBLE[name]  # which fires what it is: see above
        situation = Situation(name, [], [], START)
        story(situation)
        assert situation.samples and not situation.events
