"""What a page shows beside its rule's words: who waits, which messages wait longest, what is being done about it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from alerts.control.active_limit import ActiveLimit, Key, RuleKey, Target
from alerts.engine import Snapshot
from alerts.evidence import exemplars as module
from alerts.evidence import newest
from alerts.evidence.exemplars import Exemplars, Reading
from alerts.evidence.facts import Facts
from alerts.evidence.pages import Pages
from alerts.laws.drain import drain_interval
from alerts.laws.limits import Limit
from alerts.models import AlertInstance, AlertState, RuleEvaluation, fingerprint
from alerts.notify.notifiers.base import Notification
from alerts.notify.notifiers.text import lines
from alerts.notify.payload import alertmanager, encoded
from alerts.notify.plan import Decision, Notice, Reason
from lake.clock import ZERO
from lake.store import Lake

NOW = datetime.now(UTC).replace(microsecond=0)
QUEUE = "nats", "orders"
LABELS = {"alertname": "Deep", "broker": "nats", "queue": "orders", "severity": "critical"}


def event(id: str, kind: str, ago: float, enqueued: float | None = None, **more: Any) -> dict[str, Any]:
    at = NOW - timedelta(seconds=ago)
    return {
        "event_id": f"{id}-{kind}-{ago}",
        "event_type": kind,
        "broker": "nats",
        "queue": "orders",
        "tenant": "acme",
        "message_id": id,
        "occurred_at": at,
        "enqueued_at": None if enqueued is None else NOW - timedelta(seconds=enqueued),
        "clock": "broker",
        "source": "t",
        "ingested_at": NOW,
        "ingest_date": NOW.date(),
        **more,
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.create()
    return lake


@contextmanager
def reading(lake: Lake) -> Iterator[Reading]:
    one = Exemplars(lake.root)
    try:
        yield one.reading({QUEUE, ("nats", "none")}).result()
    finally:
        one.close()


def test_what_waits_longest_is_what_nobody_took_and_what_was_taken_late(lake: Lake) -> None:
    events = [
        event("old", "enqueued", 90, trace_id="4bf9"),
        event("taken", "enqueued", 80),
        event("taken", "received", 10, 80, attempt=1, trace_id="77aa"),
        event("again", "received", 5, 95, attempt=2),
        event("young", "enqueued", 3, tenant="umbrella"),
        event("done", "enqueued", 99),
        event("done", "completed", 98),
        event("newest", "enqueued", 0),
        event("elsewhere", "enqueued", 99, queue="mails"),
    ]
    for one in events:  # a file each
        lake.append("message_events", pa.Table.from_pylist([one]))
    with reading(lake) as found:
        told = [(one.message_id, one.seconds, one.waits, one.trace_id) for one in found.of(LABELS)]
        assert told == [
            ("old", 90.0, True, "4bf9"),
            ("taken", 70.0, False, "77aa"),
            ("young", 3.0, True, None),
            ("newest", 0.0, True, None),
        ]
        assert [one.message_id for one in found.of({**LABELS, "tenant": "umbrella"})] == ["young"]
        assert found.of({**LABELS, "queue": "none"}) == ()
        assert found.why_not({**LABELS, "queue": "none"}) == "none waits in the events that were read"
        assert found.since is None


def test_no_more_is_read_than_the_limits_allow_and_that_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        lake.append("message_events", pa.Table.from_pylist([event(f"m{number}", "enqueued", 60 - number)]))
    lake.append("message_events", pa.Table.from_pylist([event("ancient", "enqueued", 7200)]))
    monkeypatch.setattr(newest, "MOST_ROWS", 3)
    with reading(lake) as found:
        assert [one.message_id for one in found.of(LABELS)] == ["m3", "m4", "m5"]
        assert found.since == NOW - timedelta(seconds=58)
    monkeypatch.setattr(newest, "MOST_ROWS", 100)
    with reading(lake) as found:
        assert [one.message_id for one in found.of(LABELS)] == ["m0", "m1", "m2", "m3", "m4"], "at most five"
        assert found.since == NOW - timedelta(seconds=7200), "what is long over is not read"


def test_what_was_read_before_is_not_read_again_until_it_is_let_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read_file = newest.read_file
    monkeypatch.setattr(
        newest, "read_file", lambda path, columns: (opened.append(path.name), read_file(path, columns))[1]
    )
    events = newest.NewestEvents(lake.root)
    for number in range(3):
        lake.append("message_events", pa.Table.from_pylist([event(f"m{number}", "enqueued", 60 - number)]))
        found = events.read(NOW)
        assert found is not None and found.rows is not None and found.rows.num_rows == number + 1
    assert len(opened) == len(set(opened)) == 3
    events.forget()
    events.read(NOW)
    assert len(opened) == 6
    monkeypatch.setattr(newest, "MOST_ROWS", 1)
    events.read(NOW)
    events.read(NOW)
    assert len(opened) == 6, "the newest is held, the others are let go"


def test_a_lake_without_events_says_so(lake: Lake) -> None:
    with reading(lake) as found:
        assert found.why_not(LABELS) == "there are no events"


@pytest.mark.parametrize(
    ("backlog", "leave", "arrive", "expected"),
    [
        (0, 10, 0, (0.0, 0.0, 0.0)),
        (100, 10, 0, (9.37, 10.0, 10.72)),
        (600, 20, 10, (53.75, 60.0, 67.9)),
        (100, 1, 0.9, (254.6, 1000.0, float("inf"))),
        (100, 5, 10, (float("inf"),) * 3),
    ],
)
def test_the_interval_of_a_drain_is_what_poisson_counts_allow(
    backlog: float, leave: float, arrive: float, expected: tuple[float, float, float]
) -> None:
    assert drain_interval(backlog, leave, arrive, 60) == pytest.approx(expected, rel=0.02)


TENANTS = [
    {"tenant": "acme", "backlog": 500, "arrival_rate": 5.0, "completion_rate": 12.0, "noisy": True, "age": 63.0},
    {"tenant": "umbrella", "backlog": 100, "arrival_rate": 5.0, "completion_rate": 8.0, "noisy": False, "age": 2.0},
    {"tenant": "idle", "backlog": 0, "arrival_rate": 0.0, "completion_rate": 0.0, "noisy": False, "age": None},
]


def facts(active_limits: tuple[ActiveLimit, ...] = (), paused: bool = False, **changed: Any) -> Facts:
    rows = [
        {"broker": "nats", "queue": "orders", "subscriber": None, **row, "oldest_age_seconds": row["age"], **changed}
        for row in TENANTS
    ]
    table = pa.Table.from_pylist(rows)
    return Facts({"tenant_backlog_now": table}.get, lambda: active_limits, lambda: paused, lambda: 60)


def active_limit(dry_run: bool = False, queue: str = "orders") -> ActiveLimit:
    limit = Limit(
        rate=12.5,
        base=50.0,
        valid_until=datetime(2026, 1, 1, 8, 31, tzinfo=UTC).timestamp(),
        changed_at=0.0,
        arrival_before=50.0,
    )
    target = Target("nats", queue, "acme")
    return ActiveLimit(Key("throttle-noisy", target), "a", RuleKey("g", "r"), "limits_api", dry_run, 1.0, limit, "why")


def test_a_page_says_who_waits_until_when_and_what_is_being_done() -> None:
    assert facts((active_limit(), active_limit(queue="mails"))).of(LABELS, ZERO) == {
        "who": "acme: 500 (83%), oldest 1m 3s, noisy; umbrella: 100 (17%), oldest 2s",
        "drain": "in 1m at this rate (53s to 1m 8s)",
        "being_done": "acme is limited to 12.5/s by throttle-noisy, until 08:31:00 UTC unless renewed",
    }
    assert facts((active_limit(dry_run=True),)).of(LABELS, ZERO)["being_done"] == (
        "acme would be limited to 12.5/s by throttle-noisy (dry run)"
    )
    assert facts((replace(active_limit(dry_run=True), proposed=True),)).of(LABELS, ZERO)["being_done"] == (
        "acme would be limited to 12.5/s by throttle-noisy (proposed: sojourn actions approve a)"
    )
    assert facts().of(LABELS, ZERO)["being_done"] == "nothing: no action is in force"
    assert facts(paused=True).of(LABELS, ZERO)["being_done"] == "nothing: actions are paused by an operator"
    one = facts((active_limit(),)).of({**LABELS, "tenant": "umbrella"}, ZERO)
    assert (one["who"], one["being_done"]) == ("umbrella: 100, oldest 2s", "nothing: no action is in force")


def test_what_is_unknown_is_left_out_and_what_does_not_drain_says_so() -> None:
    assert "drain" not in facts(backlog=None).of(LABELS, ZERO)
    assert facts(completion_rate=1.0).of(LABELS, ZERO)["drain"] == "not draining: 10/s arrive, 3/s leave"
    assert facts().of({"alertname": "StaleData", "broker": "nats"}, ZERO) == {}
    assert set(facts().of({**LABELS, "queue": "sampled"}, ZERO)) == {"being_done"}


def instance(value: float) -> AlertInstance:
    notes = {"summary": f"{value:g} wait"}
    state = AlertState.FIRING
    return AlertInstance(
        "Deep", "g", LABELS, notes, value, state, NOW, NOW, fingerprint(LABELS), inputs={"threshold": 30.0}
    )


def body_of(alert: AlertInstance, over: datetime | None = None) -> str:
    firing, resolved = ((Notice(alert),), ()) if over is None else ((), (Notice(alert, over),))
    decision = Decision("pager", "k", {}, True, Reason.FIRST, firing, resolved)
    return encoded(alertmanager(decision, "http://sojourn"))


LINKS = {
    "queue_url": "https://sojourn.example/queue?queue={broker}%2F{queue}",
    "alert_url": "https://sojourn.example/alert/{fingerprint}",
    "trace_url": "https://tempo.example/trace/{trace_id}",
}


@pytest.fixture
def pages(lake: Lake) -> Iterator[Callable[[AlertInstance], Pages]]:
    one = Exemplars(lake.root)

    def make(current: AlertInstance) -> Pages:
        evaluation = RuleEvaluation("Deep", "g", (), NOW, NOW, True, False, None, (current,))
        return Pages(lambda: Snapshot(NOW, evaluations=(evaluation,)), facts(), one, LINKS)

    yield make
    one.close()


async def test_each_attempt_tells_what_is_the_case_then_with_its_evidence(
    lake: Lake, pages: Callable[[AlertInstance], Pages], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.evidence.pages.PATIENCE", 60)
    lake.append("message_events", pa.Table.from_pylist([event("01HX", "enqueued", 63, trace_id="4bf9")]))
    lake.append("message_events", pa.Table.from_pylist([event("other", "completed", 0, queue="mails")]))
    body = body_of(instance(40.0))
    told = json.loads(await pages(instance(63.0)).refreshed(body))
    (alert,) = told["alerts"]
    notes = alert["annotations"]
    assert (notes["summary"], notes["value"], notes["threshold"]) == ("63 wait", "63", "30")
    assert notes["exemplars"] == "01HX (waits 1m 3s, trace 4bf9)"
    assert notes["who"].startswith("acme: 500")
    assert notes["trace_url"] == "https://tempo.example/trace/4bf9"
    assert notes["alert_url"] == f"https://sojourn.example/alert/{alert['fingerprint']}"
    assert told["commonAnnotations"] == notes
    before = json.loads(body)
    same = ("labels", "status", "startsAt", "endsAt", "fingerprint", "generatorURL")
    assert [alert[name] for name in same] == [before["alerts"][0][name] for name in same]
    people = lines(Notification("msg", "k", encoded(told), NOW))
    for line in (
        "  who waits: acme: 500 (83%), oldest 1m 3s, noisy; umbrella: 100 (17%), oldest 2s",
        "  being done: nothing: no action is in force",
        "  waited longest: 01HX (waits 1m 3s, trace 4bf9)",
        "  https://tempo.example/trace/4bf9",
    ):
        assert line in people
    assert any("value 63 (threshold 30), " in line for line in people)


async def test_events_that_take_too_long_hold_back_no_page(
    pages: Callable[[AlertInstance], Pages], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.evidence.pages.PATIENCE", 0.01)
    monkeypatch.setattr(Exemplars, "reading", lambda *_: Future())
    (alert,) = json.loads(await pages(instance(63.0)).refreshed(body_of(instance(63.0))))["alerts"]
    assert alert["annotations"]["exemplars_unknown"] == "the events were not read in time"
    assert "trace_url" not in alert["annotations"]


def test_events_are_read_ahead_of_an_alert_that_is_about_to_fire(lake: Lake) -> None:
    alert = replace(instance(63.0), state=AlertState.PENDING, fired_at=None)
    evaluation = RuleEvaluation("Deep", "g", (), NOW, NOW, True, False, None, (alert,), alert.active_since)
    holds = {("g", "Deep"): timedelta(seconds=60)}
    one = Exemplars(lake.root)
    asked = []
    one.reading = asked.append  # type: ignore[method-assign,assignment]
    one.expect([evaluation], holds, NOW + timedelta(seconds=50))
    assert asked == []
    one.expect([evaluation], holds, NOW + timedelta(seconds=56))
    assert asked == [{QUEUE}]
    firing = replace(evaluation, alerts=(instance(63.0),), pending_since=None)
    one.expect([firing], holds, NOW + timedelta(seconds=70))
    assert asked == [{QUEUE}]
    one.close()


def test_one_reading_serves_who_asks_of_its_queues_and_those_who_ask_meanwhile_share_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append("message_events", pa.Table.from_pylist([event("01HX", "enqueued", 63)]))
    lake.append("message_events", pa.Table.from_pylist([event("02HX", "enqueued", 33, queue="mails")]))
    begun, go_on = threading.Event(), threading.Event()
    read, looked_for = module.read, []

    def slow(*given: Any) -> Reading:
        looked_for.append(given[-1])
        begun.set()
        assert go_on.wait(60)
        return read(*given)

    monkeypatch.setattr(module, "read", slow)
    mails, other = (QUEUE[0], "mails"), (QUEUE[0], "other")
    one = Exemplars(lake.root)
    first = one.reading({QUEUE})
    assert begun.wait(60)
    assert one.reading({QUEUE}) is first, "it is under way"
    second = one.reading({mails})
    assert one.reading({other, QUEUE}) is second, "it has not begun"
    go_on.set()
    assert [len(second.result(60).of({**LABELS, "queue": queue})) for queue in (QUEUE[1], "mails", "other")] == [
        1,
        1,
        0,
    ]
    assert not first.result().tells_of({mails})
    assert one.reading({mails, QUEUE}) is second
    assert looked_for == [{QUEUE}, {QUEUE, mails, other}]
    monkeypatch.setattr(module, "MOST_QUEUES", 3)
    many = one.reading({QUEUE, mails, other, (QUEUE[0], "one more")}).result(60)
    assert looked_for[-1] is None and many.tells_of({("b", "any")})
    one.close()


async def test_what_is_over_is_told_as_it_was_written(pages: Callable[[AlertInstance], Pages]) -> None:
    body = body_of(instance(63.0), over=NOW)
    assert await pages(instance(99.0)).refreshed(body) == body


async def test_alerts_of_other_programs_are_told_as_they_were_sent(pages: Callable[[AlertInstance], Pages]) -> None:
    theirs = {**LABELS, "alertname": "Theirs"}
    alert = replace(instance(63.0), labels=theirs, fingerprint=fingerprint(theirs))
    told = json.loads(await pages(instance(63.0)).refreshed(body_of(alert)))
    assert told["alerts"][0]["annotations"].keys() == {"summary", "value", "threshold"}


def test_what_is_followed_commit_by_commit_is_what_a_first_look_finds(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "MOST_NEW", 3)
    monkeypatch.setattr(newest, "MOST_ROWS", 12)
    followed, numbers = newest.NewestEvents(lake.root), iter(range(100))

    def looked(events: newest.NewestEvents) -> tuple[list[str], datetime | None, datetime | None]:
        found = events.read(NOW)
        assert found is not None
        assert found.rows is not None
        return sorted(found.rows["message_id"].to_pylist()), found.since, found.newest

    for commits, then in ((1, None), (2, None), (5, None), (1, "compact"), (2, None), (3, "forget"), (1, None)):
        for _ in range(commits):
            number = next(numbers)
            rows = [event(f"m{number}-{part}", "enqueued", 60 - number + part) for part in range(2)]
            lake.append("message_events", pa.Table.from_pylist(rows))
        if then == "compact":
            lake.compact("message_events")
        if then == "forget":
            followed.forget()
        assert looked(followed) == looked(newest.NewestEvents(lake.root))
