from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard.services.alerting import AlertCard
from dashboard.services.keys import QueueKey
from dashboard.services.overview import Fact, Verdict, drained, headline, queue_cards

NOW = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)
KEY = {"broker": "nats", "queue": "orders", "subscriber": None}
UNKNOWN_HEALTH = dict.fromkeys(
    [
        "depth",
        "in_flight",
        "in_flight_limit",
        "oldest_age_seconds",
        "quiet_oldest_age_seconds",
        "noisy_tenants",
        "mode",
        "mode_since",
        "drain_state",
        "drain_eta_seconds",
        "coverage",
        "staleness_seconds",
        "dead_letter_for",
        "status",
    ]
)


def health(**values: Any) -> dict[str, Any]:
    row = {**KEY, **UNKNOWN_HEALTH, "as_of": NOW, "mode": "backlogged", "mode_since": NOW - timedelta(minutes=4)}
    return {**row, "drain_state": "growing", "noisy_tenants": 0, "in_flight": 40, **values}


def totals(**values: Any) -> dict[str, Any]:
    row = {**KEY, "tenants": 8, "backlog": 1240, "in_flight": 100, "ready": 1140}
    return {**row, "arrival_rate": 48.0, "completion_rate": 40.0, **values}


def noisy(**values: Any) -> dict[str, Any]:
    row = {**KEY, "tenant": "acme-7", "backlog": 900, "in_flight": 61, "share": 0.7}
    return {**row, "noisy_since": NOW - timedelta(minutes=5), **values}


def alert(severity: str = "critical", *, firing: bool = True, queue: QueueKey | None = None) -> AlertCard:
    state = "firing" if firing else "pending"
    return AlertCard("Rule", severity, firing, state, "", "", "", "", queue or QueueKey("nats", "orders"))


def one(row: dict[str, Any], total: dict[str, Any] | None, *loud: dict[str, Any], alerts: tuple[AlertCard, ...] = ()):
    (card,) = queue_cards([row], [total] if total else [], loud, alerts, NOW)
    return card


def test_the_sentence_says_who_since_when_how_much_and_that_it_will_not_drain() -> None:
    card = one(health(noisy_tenants=1), totals(), noisy())
    assert card.sentence == (
        "orders: tenant acme-7 holds 61 % of in flight since 03:02; backlog 1,240, growing by 8/s; will not drain"
    )
    assert card.predicate.startswith("Tenant acme-7 holds")


def test_a_draining_queue_says_in_how_long_and_by_when() -> None:
    row = health(drain_state="draining", drain_eta_seconds=42.0)
    card = one(row, totals(arrival_rate=10.0))
    assert card.sentence == "orders: backlog 1,240; at the rates of the last seconds drained in 42 s, by 03:07:42 UTC"
    assert card.verdict is Verdict.WATCH


def test_a_stalled_queue_will_not_drain() -> None:
    card = one(health(drain_state="stalled"), totals(completion_rate=0.0))
    assert "stalled: nothing leaves; will not drain" in card.sentence
    assert card.verdict is Verdict.ACT


def test_messages_that_pass_through_a_fast_queue_are_no_trouble() -> None:
    card = one(health(mode="fast"), totals(backlog=12, arrival_rate=40.5))
    assert card.sentence == "orders: 12 messages on the way, within the target"
    assert card.verdict is Verdict.FINE


def test_a_fast_queue_that_takes_more_than_it_gives_says_so_before_it_is_late() -> None:
    assert "growing by 8/s" in one(health(mode="fast"), totals()).sentence


def test_tenants_that_an_earlier_version_of_the_analysis_did_not_count_are_not_told() -> None:
    facts = {fact.label: fact for fact in one(health(), totals(tenants=None, ready=None)).facts}
    assert (facts["Backlog"].value, facts["Backlog"].note) == ("1,240", "")


def test_several_noisy_tenants_are_counted_beyond_the_second() -> None:
    loud = [noisy(tenant=name, in_flight=size) for name, size in (("a", 20), ("b", 40), ("c", 10), ("d", 5))]
    said = one(health(noisy_tenants=4), totals(), *loud).sentence
    assert "tenant b holds 40 % of in flight, a holds 20 % of in flight and 2 more are noisy" in said


def test_a_queue_known_by_its_depth_alone_is_unknown_not_zero() -> None:
    card = one(health(mode=None, mode_since=None, drain_state=None, noisy_tenants=None, depth=12), None)
    assert card.verdict is Verdict.UNKNOWN
    assert "no message events are seen" in card.sentence and "the broker counts 12 messages" in card.sentence
    shown = {fact.label: fact.value for fact in card.facts}
    assert shown["Backlog"] == shown["In → out"] == shown["Oldest message"] == shown["Drained"] == "unknown"


SAMPLED = {"noisy_tenants": None, "quiet_oldest_age_seconds": None}


def test_a_queue_known_by_samples_tells_its_age_and_whether_it_drains_and_not_whose_messages_wait() -> None:
    row = health(**SAMPLED, depth=1244, oldest_age_seconds=48.0)
    card = one(row, None)
    assert card.sentence == (
        "orders: no message events are seen, so noisy tenants are unknown; "
        "the broker counts 1,244 messages, growing, the oldest 48 s old"
    )
    assert card.facts[0] == Fact("Oldest message", "48 s", "whose it is, is unknown")
    assert card.cells[:4] == ("backlogged", "unknown", "48 s", "1,244 ready") and card.verdict is Verdict.ACT
    stalled = one({**row, "drain_state": "stalled"}, None).sentence
    assert stalled.endswith("the broker counts 1,244 messages, nothing leaves, the oldest 48 s old")
    paused = one({**row, "drain_state": "stalled", "status": "PAUSED"}, None)
    assert paused.sentence.startswith("orders: paused; no message events are seen") and paused.verdict is Verdict.WATCH
    draining = one({**row, "drain_state": "draining", "drain_eta_seconds": 42.0, "oldest_age_seconds": None}, None)
    assert draining.sentence.endswith(
        "so noisy tenants and ages are unknown; the broker counts 1,244 messages, drained in 42 s"
    )


def test_what_is_at_work_for_long_with_nobody_behind_it_is_watched_and_needs_nobody_at_once() -> None:
    sampled = one(health(**SAMPLED, depth=0, in_flight=67, oldest_age_seconds=316.0), None)
    assert sampled.verdict is Verdict.WATCH and sampled.cells[3] == "0 ready"
    assert sampled.sentence.endswith(
        "by the broker's own count none waits and 67 are in flight, growing, the oldest 5 min 16 s old"
    )
    assert one(health(oldest_age_seconds=316.0), totals(ready=0, in_flight=40, backlog=40)).verdict is Verdict.WATCH
    assert one(health(oldest_age_seconds=316.0), totals(ready=None)).verdict is Verdict.ACT  # nobody knows


def test_of_a_queue_known_by_samples_in_which_nothing_waits_no_tenant_waits_either() -> None:
    card = one(health(**SAMPLED, mode="fast", depth=0, in_flight=0, drain_state="idle"), None)
    assert card.facts[0] == Fact("Oldest message", "none waiting", "") and card.cells[1:3] == ("none waiting",) * 2


def test_an_empty_dead_letter_queue_is_fine() -> None:
    row = health(mode=None, mode_since=None, drain_state=None, noisy_tenants=None, depth=0, in_flight=0)
    assert one(row, None).verdict is Verdict.FINE


DEAD = {"queue": "orders.dead", "mode": None, "mode_since": None, "drain_state": None, "noisy_tenants": None}


def test_a_dead_letter_queue_says_whose_letters_it_holds_and_asks_for_a_look() -> None:
    card = one(health(**DEAD, depth=94, in_flight=0, dead_letter_for="orders,refunds"), None)
    assert card.sentence == "orders.dead: holds 94 dead letters of orders and refunds until somebody brings them back"
    assert card.verdict is Verdict.WATCH and card.mode == "a dead-letter queue" and "Dead letters" in card.unknown
    assert (
        "holds 1 dead letter of orders until" in one(health(**DEAD, depth=1, dead_letter_for="orders"), None).sentence
    )


def test_old_dead_letters_do_not_rank_before_tenants_that_wait() -> None:
    dead = health(**DEAD, depth=94, in_flight=0, dead_letter_for="orders", oldest_age_seconds=9000.0)
    late = health(drain_state="draining", quiet_oldest_age_seconds=11.0, oldest_age_seconds=11.0)
    cards = queue_cards([dead, late], [totals()], [], [], NOW)
    assert [card.name for card in cards] == ["orders", "orders.dead"]
    assert headline(cards, [], rules_ran=True) == "Watch orders and orders.dead"


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (alert("critical"), Verdict.ACT),
        (alert("error"), Verdict.ACT),
        (alert("warning"), Verdict.WATCH),
        (alert("info"), Verdict.WATCH),
        (alert("critical", firing=False), Verdict.FINE),
        (alert("critical", queue=QueueKey("nats", "emails")), Verdict.FINE),
    ],
)
def test_only_an_alert_that_fires_on_the_queue_makes_it_worse(card: AlertCard, expected: Verdict) -> None:
    calm = health(mode="fast", drain_state="draining")
    assert one(calm, totals(backlog=3, arrival_rate=40.0), alerts=(card,)).verdict is expected


def test_the_worst_queue_comes_first_then_the_one_whose_quiet_tenants_wait_longest() -> None:
    rows = [
        health(queue="calm", mode="fast", drain_state="idle"),
        health(queue="late", quiet_oldest_age_seconds=90.0),
        health(queue="later", quiet_oldest_age_seconds=300.0),
        health(queue="draining", drain_state="draining"),
    ]
    cards = queue_cards(rows, [], [], [], NOW)
    assert [card.name for card in cards] == ["later", "late", "draining", "calm"]


def test_the_harm_to_quiet_tenants_ranks_before_what_a_noisy_one_does_to_itself() -> None:
    rows = [
        health(queue="selfish", noisy_tenants=1, oldest_age_seconds=900.0, quiet_oldest_age_seconds=None),
        health(queue="harmed", noisy_tenants=1, oldest_age_seconds=60.0, quiet_oldest_age_seconds=60.0),
        health(queue="sampled", noisy_tenants=None, oldest_age_seconds=90.0),
    ]
    assert [card.name for card in queue_cards(rows, [], [], [], NOW)] == ["sampled", "harmed", "selfish"]


def test_a_warning_never_makes_a_queue_that_is_behind_look_better() -> None:
    assert one(health(), totals(), alerts=(alert("warning"),)).verdict is Verdict.ACT


def test_what_is_unknown_says_why_and_how_it_becomes_known() -> None:
    card = one(health(mode=None, mode_since=None, drain_state=None, noisy_tenants=None, depth=12), None)
    assert "no message event of this queue is seen" in card.unknown and "receiver" in card.unknown
    assert "earlier events" in one(health(), totals(backlog=None)).unknown


def test_low_coverage_is_said() -> None:
    card = one(health(depth=2000, coverage=0.6, staleness_seconds=42.0), totals())
    assert card.facts[-1].note == "events cover only 60 %, read 42 s before"


def test_the_headline_never_says_all_is_well_where_no_rule_has_run() -> None:
    card = one(health(mode="fast", drain_state="idle"), totals(backlog=0))
    assert headline([card], [], rules_ran=True) == "All queues keep up"
    assert headline([card], [], rules_ran=False) == "All queues keep up, but no alert rule has run"


def test_the_headline_names_the_queues_that_need_somebody() -> None:
    cards = queue_cards([health(queue=name) for name in "abcd"], [], [], [], NOW)
    assert headline(cards[:1], [], rules_ran=True) == "a needs you"
    assert headline(cards[:3], [], rules_ran=True) == "a, b and c need you"
    assert headline(cards, [], rules_ran=True) == "a, b and 2 more need you"


def test_an_unknown_drain_state_stays_unknown() -> None:
    assert drained(health(drain_state=None)) == "unknown"
    assert drained(health(drain_state="idle")) == "empty"


def test_a_queue_that_needs_somebody_while_its_ages_are_within_the_target_says_still() -> None:
    assert one(health(mode="fast"), totals(), alerts=(alert(),)).mode.startswith("still within its target since 03:0")
    assert one(health(mode="fast"), totals()).mode.startswith("within its target")
    assert one(health(), totals(), alerts=(alert(),)).mode.startswith("beyond its target")
