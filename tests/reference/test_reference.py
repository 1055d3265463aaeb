"""The judge judged: small logs whose rows a person can count, and the contract's sums against single messages."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.reference.generate import START, Row, logs
from tests.reference.lives import ENDINGS, nearest_rank
from tests.reference.reference import Reference


def happens(event_type: str, at: float, message: str = "m", attempt: int | None = None, **more: Any) -> Row:
    """An event ``at`` seconds after the start; the message was enqueued at the start unless ``since`` says when."""
    since = more.pop("since", 0.0)
    return {
        "event_type": event_type,
        "broker": "nats",
        "queue": "orders",
        "message_id": message,
        "attempt": attempt,
        "enqueued_at": None if since is None else START + timedelta(seconds=since),
        "occurred_at": START + timedelta(seconds=at),
        **more,
    }


def history(rows: list[Row], column: str) -> dict[float, Any]:
    """The column by ``as_of``, in seconds since the start."""
    return {(row["as_of"] - START).total_seconds(): row[column] for row in rows}


RETRIED = [
    happens("enqueued", 0),
    happens("received", 1, attempt=1),
    happens("failed", 2, attempt=1, processing_seconds=1.0),
    happens("received", 5, attempt=2),
    happens("completed", 7.5, attempt=2, processing_seconds=2.5),
]


def test_a_failed_message_stays_in_the_backlog_and_is_not_in_flight_until_its_retry() -> None:
    rows = Reference(RETRIED, []).tenant_backlog()
    assert history(rows, "backlog") == {1: 1, 2: 1, 3: 1, 6: 1, 7.5: 0}
    assert history(rows, "in_flight") == {1: 0, 2: 1, 3: 0, 6: 1, 7.5: 0}
    assert history(rows, "ready") == {1: 1, 2: 0, 3: 1, 6: 0, 7.5: 0}
    assert history(rows, "oldest_age_seconds") == {1: 1.0, 2: 2.0, 3: 3.0, 6: 6.0, 7.5: None}
    assert history(rows, "drain_state") == {1: "stalled", 2: "stalled", 3: "stalled", 6: "stalled", 7.5: "idle"}
    assert history(rows, "arrival_rate") == pytest.approx({1: 1, 2: 1 / 2, 3: 1 / 3, 6: 1 / 6, 7.5: 1 / 8})


def test_ages_of_first_attempts_retries_and_completions_stand_apart() -> None:
    rows = Reference([*RETRIED, *RETRIED], []).attempt_age()
    assert {row["kind"]: (row["count"], row["mean_seconds"]) for row in rows} == {
        "first_attempt": (1, 1.0),
        "first_subscriber_first_attempt": (1, 1.0),
        "retry": (1, 5.0),
        "completion": (1, 7.5),
    }


def test_littles_law_is_start_rate_times_mean_processing() -> None:
    newest = Reference(RETRIED, []).concurrency(now=True)[0]
    assert newest["start_rate"] == 2 / 8
    assert newest["mean_processing_seconds"] == 1.75
    assert newest["littles_law"] == 0.4375


def test_a_lost_consumer_shows_by_the_next_attempt() -> None:
    events = [happens("enqueued", 0), happens("received", 1, attempt=1), happens("received", 9, attempt=2)]
    rows = Reference([*events, happens("completed", 12, attempt=2)], []).tenant_backlog()
    assert history(rows, "in_flight") == {1: 0, 2: 1, 10: 1, 12: 0}


def test_arrivals_of_nobody_by_name_count_for_each_subscriber_and_first_receipts_once() -> None:
    events = [
        happens("enqueued", 0),
        happens("received", 3, attempt=1, subscriber="audit"),
        happens("received", 2, attempt=1, subscriber="billing"),
        happens("completed", 4, attempt=1, subscriber="audit"),
    ]
    reference = Reference(events, [])
    assert {row["subscriber"]: row["backlog"] for row in reference.tenant_backlog(now=True)} == {
        "audit": 0,
        "billing": 1,
    }
    [first] = [row for row in reference.attempt_age() if row["kind"] == "first_subscriber_first_attempt"]
    assert (first["subscriber"], first["count"], first["max_seconds"]) == (None, 1, 2.0)


def test_an_ending_of_unknown_age_takes_the_oldest() -> None:
    events = [happens("enqueued", at, f"m{at}", since=at) for at in range(3)]
    ended = happens("expired", 3, "m2", since=None)
    assert Reference([*events, ended], []).tenant_backlog(now=True)[0]["oldest_age_seconds"] == 2.0


def test_a_negative_age_is_skewed_and_counts_as_zero() -> None:
    [row, _] = Reference([happens("received", 1, attempt=1, since=4.0)], []).attempt_age()
    assert (row["skewed"], row["max_seconds"], row["histogram"]) == (1, 0.0, {-2048: 1})


def flood(count: int) -> list[Row]:
    """One tenant with ``count`` messages in flight while another waits."""
    greedy = [
        happens(kind, at, f"g{n}", number, tenant="greedy", since=0.0)
        for n in range(count)
        for kind, at, number in (("enqueued", 0.0, None), ("received", 2.0, 1))
    ]
    return [*greedy, happens("enqueued", 1, "w", tenant="patient", since=1.0)]


@pytest.mark.parametrize(("count", "noisy"), [(29, False), (30, True)])
def test_a_tenant_is_noisy_from_thirty_in_flight_while_others_wait(count: int, noisy: bool) -> None:
    rows = Reference(flood(count), []).tenant_backlog(now=True)
    assert {row["tenant"]: row["noisy"] for row in rows} == {"greedy": noisy, "patient": False}


def test_a_noisy_tenant_is_quiet_again_when_its_backlog_is_gone() -> None:
    events = flood(30) + [happens("completed", 4, f"g{n}", 1, tenant="greedy") for n in range(30)]
    rows = [row for row in Reference(events, []).tenant_backlog() if row["tenant"] == "greedy"]
    assert history(rows, "noisy") == {1: False, 3: True, 4: False}


def test_the_mode_changes_with_the_age_of_the_oldest_message() -> None:
    events = [happens("enqueued", 0), happens("enqueued", 40, "n", since=40.0), happens("completed", 50, attempt=1)]
    rows = Reference(events, []).queue_health()
    assert history(rows, "mode") == {1: "fast", 41: "backlogged", 50: "fast"}
    assert [(row["mode_since"] - START).total_seconds() for row in rows] == [1, 41, 50]


def test_quantiles_are_by_nearest_rank() -> None:
    assert [nearest_rank([3.0, 1.0, 2.0], Fraction(q, 100)) for q in (1, 33, 34, 67, 100)] == [1.0, 1.0, 2.0, 3.0, 3.0]


_IN_A_LIFE = ("enqueued", "received", "failed", "delayed", *ENDINGS)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs())
def test_the_sums_of_the_definitions_count_single_messages(log: tuple[list[Row], list[Row]]) -> None:
    """Where every arrival was seen, backlog and in flight are the messages that a person would count."""
    reference = Reference(*log)
    for key in reference.keys:
        events = sorted(
            reference.by_key[key], key=lambda event: (event.at, event.attempt or 0, _IN_A_LIFE.index(event.type))
        )
        arrived = {event.message for event in events if event.type == "enqueued"}
        if any(event.message not in arrived or event.type == "delayed" for event in events):
            continue
        for second in reference.key_instants(key):
            past = [event for event in events if event.second <= second]
            newest = {event.message: event.type for event in past}
            state = reference._state(key, second)
            assert state["backlog"] == sum(event_type not in ENDINGS for event_type in newest.values())
            assert state["in_flight"] == sum(event_type == "received" for event_type in newest.values())
            assert state["ready"] == sum(event_type in ("enqueued", "failed") for event_type in newest.values())
