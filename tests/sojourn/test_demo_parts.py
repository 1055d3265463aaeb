"""The demo's own measuring, on data whose answers are known."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from standardwebhooks.webhooks import Webhook

from lake.errors import UserError
from lake.reader import Reader
from lake.store import Lake
from lake.tables import ACTIONS, ALERT_TRANSITIONS, DELIVERIES, MESSAGE_EVENTS, PARTIALS
from sojourn.demo import measure, receipt, scenario
from sojourn.demo.broker import StreamReading
from sojourn.demo.freshness import Freshness
from sojourn.demo.measure import FirstAttempt, Moments
from sojourn.demo.receipt import SurgeReceipt
from sojourn.demo.receiver import serve
from sojourn.demo.report import Report
from sojourn.supervise.probes import free_port
from tests.dashboard.scene import actions_of

SECRET = "whsec_" + "c29qb3VybiB0ZXN0IHNlY3JldCBvZiAzMiBieXRlcyE="


# --- the scenario


def test_only_the_surge_exceeds_the_capacity() -> None:
    plan = scenario.Scenario.lasting(165)
    calm, surge, after = (phase.begins + 10 for phase in plan.phases)

    def asked(elapsed: float) -> float:
        return sum(plan.rate(tenant, elapsed) for tenant in scenario.TENANTS)

    assert asked(calm) == asked(after) == 80 < scenario.CAPACITY
    assert asked(surge) == 190 > scenario.CAPACITY
    assert plan.rate(scenario.NOISY, surge) == 120
    assert plan.rate(scenario.NOISY, plan.phases[2].begins + 1) == 0
    assert asked(plan.traffic_seconds) == 0


def test_a_duration_that_shows_nothing_is_refused_with_the_least_that_does() -> None:
    with pytest.raises(UserError, match="give at least 90"):
        scenario.Scenario.lasting(89)
    assert [phase.name for phase in scenario.Scenario.lasting(90).phases] == ["calm", "surge", "calm again"]


# --- recovery


def _ages(*spells: tuple[int, int, float]) -> list[FirstAttempt]:
    """Ten first attempts a second, of the age given for each spell (from second, to second, age)."""
    return [
        FirstAttempt(second + tenth / 10, age, "acme")
        for begin, end, age in spells
        for second in range(begin, end)
        for tenth in range(10)
    ]


@pytest.mark.parametrize(
    ("spells", "recovered"),
    [
        ([(0, 10, 0.05), (10, 20, 3.0), (20, 40, 0.05)], 24.0),  # five seconds later none of the old is in sight
        ([(0, 10, 0.05), (10, 20, 3.0), (20, 30, 0.05), (30, 32, 2.0), (32, 40, 0.05)], 36.0),  # it came back once
        ([(0, 10, 0.05), (10, 20, 3.0), (20, 30, 0.05), (30, 32, 0.9), (32, 40, 0.05)], 24.0),  # that harms nobody
        ([(0, 10, 0.05), (10, 40, 3.0)], None),
        ([(0, 40, 0.05)], 10.0),  # it never rose
        ([(0, 10, 1.0), (10, 20, 3.0), (20, 40, 1.5)], 24.0),  # as good as it was before, within twice
    ],
)
def test_recovery_is_the_first_instant_from_which_ages_stay_low(
    spells: list[tuple[int, int, float]], recovered: float | None
) -> None:
    assert measure.recovery(_ages(*spells), surge=10.0, until=40.0) == recovered


def test_ages_are_told_before_during_and_after() -> None:
    quiet = _ages((0, 10, 0.05), (10, 24, 3.0), (24, 40, 0.1))
    ages = measure.quiet_ages(quiet, Moments(surge=10.0, surge_ends=30.0, recovered=24.0))
    assert (ages.before, ages.during, ages.after) == (0.05, 3.0, 0.1)


def test_a_quantile_is_the_nearest_rank() -> None:
    assert measure.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert measure.quantile(range(1, 101), 0.99) == 99
    assert measure.quantile([], 0.5) is None


# --- the report


def _report(**changes: Any) -> Report:
    moments = Moments(surge=100.0, surge_ends=150.0, detected=104.0, webhook=104.5)
    balance = measure.Balance(**dict.fromkeys(measure.Balance.__dataclass_fields__, 0))
    empty = measure.QuietAges(None, None, None)
    base = Report(moments, empty, [], [], balance, frozenset({scenario.NOISY}), frozenset(), 0, 7)
    return dataclasses.replace(base, **changes)


def test_the_report_tells_what_the_quiet_waited_with_the_limit_and_would_have_without(tmp_path: Path) -> None:
    told = SurgeReceipt("saved 7 tenants 20 s of p99, cost grove 3 s", 1.5, 21.0, 18.0, 24.0)
    console = Console(file=io.StringIO(), width=120)
    console.print(_report(receipt=told).as_table())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "from the limit on, with it" in shown and "21.0 s" in shown and "18.0 s to 24.0 s" in shown
    assert json.loads(_report(receipt=told).as_json())["receipt"]["quiet_without"] == 21.0
    assert receipt.of_surge(tmp_path, [], 0) is None, "nobody was limited"


def test_where_nobody_is_to_be_limited_that_is_no_fault() -> None:
    assert _report(dry_run=True).problems == []
    assert len(_report().problems) == 2, "neither throttled nor recovered"


# --- the balance


def _event(number: int, kind: str, at: datetime, message: str) -> dict[str, object]:
    return {
        "event_id": f"e{number}",
        "event_type": kind,
        "broker": scenario.BROKER,
        "queue": scenario.STREAM,
        "tenant": "acme",
        "message_id": message,
        "occurred_at": at,
        "clock": "broker",
        "source": "test",
        "ingested_at": at,
        "ingest_date": at.date(),
    }


def _balanced(root: Path, events: list[tuple[str, str]], gold: tuple[int, int], reading: StreamReading) -> bool:
    lake, at = Lake(root), datetime(2026, 1, 1, tzinfo=UTC)
    lake.create()
    rows = [_event(number, kind, at, message) for number, (kind, message) in enumerate(events)]
    lake.append("message_events", pa.Table.from_pylist(rows, MESSAGE_EVENTS.schema))
    counts = dict.fromkeys((field.name for field in PARTIALS.schema if not field.nullable), 0)
    partial = counts | {
        "broker": scenario.BROKER,
        "queue": scenario.STREAM,
        "subscriber": "",
        "tenant": "acme",
        "bucket_start": at,
        "newest_occurred_at": at,
        "bucket_seconds": 1,
        "enqueued": gold[0],
        "completed": gold[1],
    }
    lake.append("partials", pa.Table.from_pylist([partial], PARTIALS.schema))
    return measure.balance(Reader(root), reading).exact


LIVES = [("enqueued", "a"), ("enqueued", "b"), ("enqueued", "c"), ("completed", "a"), ("dead_lettered", "b")]


def test_a_balance_is_exact_where_broker_bronze_and_gold_agree(tmp_path: Path) -> None:
    assert _balanced(tmp_path, LIVES, (3, 2), StreamReading(published=3, held=1))


@pytest.mark.parametrize(
    ("events", "gold", "reading"),
    [
        (LIVES, (3, 2), StreamReading(4, 2)),  # one message was lost on the way to bronze
        (LIVES, (3, 2), StreamReading(3, 0)),  # an ending was lost
        ([*LIVES, ("completed", "a")], (3, 3), StreamReading(3, 1)),  # an ending was doubled
        (LIVES, (2, 2), StreamReading(3, 1)),  # Spark lost one
        (LIVES, (3, 3), StreamReading(3, 1)),  # Spark doubled one
    ],
)
def test_a_balance_notices_what_is_lost_or_doubled(
    tmp_path: Path, events: list[tuple[str, str]], gold: tuple[int, int], reading: StreamReading
) -> None:
    assert not _balanced(tmp_path, events, gold, reading)


# --- alerts, webhooks, freshness


def _transition(second: int, tenant: str, before: str, after: str) -> dict[str, object]:
    at = datetime.fromtimestamp(second, UTC)
    row = {"at": at, "rule_group": "tenants", "rule": "NoisyTenant", "fingerprint": tenant, "reason": "x"}
    return row | {"labels": [("tenant", tenant)], "from_state": before, "to_state": after}


def test_the_moments_of_an_alert_are_its_first_firing_and_its_last_end(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    rows = [
        _transition(100, "grove", "inactive", "pending"),
        _transition(102, "grove", "pending", "firing"),
        _transition(110, "grove", "firing", "keep_firing"),
        _transition(120, "grove", "keep_firing", "inactive"),
        _transition(105, "acme", "inactive", "pending"),
    ]
    lake.append("alert_transitions", pa.Table.from_pylist(rows, ALERT_TRANSITIONS.schema))
    reader = Reader(tmp_path)
    assert measure.alert_moments(reader, "grove", 90) == (102.0, 120.0)
    assert measure.alert_moments(reader, "grove", 115) == (None, 120.0)
    assert measure.accused(reader, 90) == {"grove"}


def _told(status: str, tenant: str = "grove", verified: bool = True) -> dict[str, Any]:
    labels = {"alertname": "NoisyTenant", "tenant": tenant}
    return {"verified": verified, "payload": {"alerts": [{"status": status, "labels": labels}]}}


def test_a_surge_is_over_once_its_alert_is_resolved_that_is_told_and_its_limit_has_ended(tmp_path: Path) -> None:
    lake, reader, now = Lake(tmp_path), Reader(tmp_path), time.time()
    fired = _transition(int(now) - 60, "grove", "pending", "firing")
    lake.append("alert_transitions", pa.Table.from_pylist([fired], ALERT_TRANSITIONS.schema))
    limit = actions_of(datetime.fromtimestamp(now - 50, UTC), datetime.fromtimestamp(now, UTC))[0]
    limit |= {"tenant": "grove", "valid_until": datetime.fromtimestamp(now + 600, UTC)}
    lake.append("actions", pa.Table.from_pylist([limit], ACTIONS.schema))
    entries = [_told("firing")]

    def left() -> list[str]:
        return measure.to_come(reader, entries, "grove", now - 100)

    assert left() == ["the alert to be resolved", "the webhook that says so", "the limit to end"]
    entries += [_told("resolved", "acme"), _told("resolved", verified=False)]
    gone = _transition(int(now) - 10, "grove", "firing", "inactive")
    lake.append("alert_transitions", pa.Table.from_pylist([gone], ALERT_TRANSITIONS.schema))
    assert left() == ["the webhook that says so", "the limit to end"]
    entries.append(_told("resolved"))
    over = limit | {"at": datetime.fromtimestamp(now - 5, UTC), "decision": "release", "after": None}
    lake.append("actions", pa.Table.from_pylist([over], ACTIONS.schema))
    assert left() == []


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    port, output = free_port(), tmp_path / "webhooks.jsonl"
    server = serve(port, SECRET, output)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{port}/webhook", output
    server.shutdown()
    thread.join()
    server.server_close()


def _post(url: str, body: bytes, secret: str, name: str) -> int:
    now = datetime.now(UTC)
    signature = Webhook(secret).sign(msg_id=name, timestamp=now, data=body.decode())
    headers = {"webhook-id": name, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_receiver_believes_only_what_is_signed(receiver: tuple[str, Path], tmp_path: Path) -> None:
    url, output = receiver
    body = json.dumps({"alerts": [{"status": "firing", "labels": {"tenant": "grove"}}]}).encode()
    since = time.time()
    assert _post(url, body, "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=", "forged") == 401
    assert measure.first_webhook(measure.webhooks(output, since - 1), "grove") is None
    assert _post(url, body, SECRET, "true") == 204
    entries = measure.webhooks(output, since - 1)
    assert [entry["verified"] for entry in entries] == [False, True]
    assert measure.first_webhook(entries, "grove") == entries[1]["at"]
    assert measure.webhooks(output, time.time() + 1) == []

    lake = Lake(tmp_path / "lake")
    row = {"at": datetime.now(UTC), "delivery_id": "true", "receiver": "demo", "group_key": "g", "status": "firing"}
    row |= {"alerts": 1, "attempt": 1, "outcome": "delivered", "data_as_of": datetime.fromtimestamp(since - 0.5, UTC)}
    lake.append("deliveries", pa.Table.from_pylist([row], DELIVERIES.schema))
    (delay,) = measure.webhook_delays(Reader(tmp_path / "lake"), entries, since - 10)
    assert delay == pytest.approx(entries[1]["at"] - since + 0.5, abs=1e-5)


def test_freshness_is_the_age_of_the_newest_event_that_can_be_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    sampling = Freshness(lake.path("partials"))
    sampling.start()
    try:
        assert not sampling.first_metrics
        at = datetime.fromtimestamp(time.time() - 2, UTC)
        row = dict.fromkeys((field.name for field in PARTIALS.schema if not field.nullable), 0)
        row |= {"broker": "b", "queue": "q", "subscriber": "", "tenant": "t", "bucket_start": at}
        lake.append("partials", pa.Table.from_pylist([row | {"newest_occurred_at": at}], PARTIALS.schema))
        time.sleep(0.5)
        lags = sampling.between(0, time.time())
        assert sampling.first_metrics
        assert lags
        assert min(lags) >= 2
        assert lags == sorted(lags)  # nothing new came, so what there is grew older
    finally:
        sampling.stop()
