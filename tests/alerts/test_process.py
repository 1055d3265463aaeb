"""The alert process as users run it: a process of its own, real webhooks, SIGKILL at the worst moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.reader import Reader
from tests.alerts.helpers import SECRET, GoldLake, Received, WebhookReceiver
from tests.support.alerting import PROGRAM
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
RULES = """
groups:
  - name: tests
    rules:
      - alert: Dead
        expr: SELECT broker, queue, tenant, SUM(dead_lettered) AS value FROM partials
              GROUP BY broker, queue, tenant HAVING SUM(dead_lettered) > SUM(sidelined)
"""


class Processes:
    """Starts alert processes over one lake, all of which are gone at the end."""

    def __init__(self, gold: GoldLake) -> None:
        self.gold = gold
        self.rules = gold.root.parent / "rules.yml"
        self.rules.write_text(RULES)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, receiver: WebhookReceiver, **more: Any) -> subprocess.Popen[bytes]:
        settings = {
            "rules": [str(self.rules)],
            "builtin": False,
            "port": 0,
            "receivers": [{"name": "pager", "url": receiver.url, "secret_env": "HOOK_SECRET", "allow_private": True}],
            **more,
        }
        environment = {**os.environ, "HOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
        log = (self.gold.root.parent / "alerts.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(self.gold.root), json.dumps(settings)],
            env=environment,
            stdout=log,
            stderr=log,
        )
        self.running.append(process)
        return process


@pytest.fixture
def processes(gold: GoldLake) -> Iterator[Processes]:
    started = Processes(gold)
    yield started
    for process in started.running:
        if process.poll() is None:
            process.kill()
        process.wait()


def history(root: Path) -> list[tuple[str, str]]:
    rows = Reader(root).query("SELECT from_state, to_state FROM alert_transitions ORDER BY at").to_pylist()
    return [(row["from_state"], row["to_state"]) for row in rows]


def said(request: Received) -> dict[str, Any]:
    """What a webhook tells, without the words, which each attempt writes anew."""
    alerts = [{name: one[name] for name in one if name != "annotations"} for one in request.payload["alerts"]]
    return {**request.payload, "alerts": alerts, "commonAnnotations": {}}


def eventually(look: Callable[[], Any], wanted: Any, timeout: float = 40) -> None:
    deadline = time.monotonic() + PATIENCE * timeout
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen}, not {wanted}"
        time.sleep(0.05)


def test_one_process_fires_resolves_serves_its_api_and_stops_cleanly(
    processes: Processes, gold: GoldLake, receiver: WebhookReceiver, address: Callable[[Path], str]
) -> None:
    process = processes.start(receiver)
    url = address(gold.root)
    assert httpx.get(f"{url}/-/healthy").status_code == 200
    at = gold.partial(dead_lettered=1)
    request = receiver.wait(1)[0]
    (alert,) = request.payload["alerts"]
    assert (alert["status"], alert["labels"]["tenant"]) == ("firing", "acme")
    assert datetime.fromisoformat(alert["annotations"]["data_as_of"]) == at
    assert alert["annotations"]["being_done"] == "nothing: no action is in force"
    assert alert["annotations"]["exemplars_unknown"] in {"there are no events", "the events were not read in time"}
    (shown,) = httpx.get(f"{url}/api/v2/alerts").json()
    assert (shown["fingerprint"], shown["status"]["state"]) == (alert["fingerprint"], "active")
    assert httpx.get(f"{url}/api/v2/silences").json() == []
    assert httpx.get(f"{url}/v1/limits").json()["limits"] == []
    assert 'sojourn_alerts_rules{state="ok"} 1' in httpx.get(f"{url}/metrics").text.splitlines()

    second = processes.start(receiver)
    assert second.wait(60) == 1
    assert "already running" in (gold.root.parent / "alerts.log").read_text()

    gold.partial(sidelined=1)
    over = receiver.wait(2)[1].payload
    assert (over["status"], over["alerts"][0]["fingerprint"]) == ("resolved", alert["fingerprint"])
    assert over["alerts"][0]["endsAt"] > alert["startsAt"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert history(gold.root) == [("inactive", "firing"), ("firing", "inactive")]
    deliveries = Reader(gold.root).query("SELECT outcome, data_as_of FROM deliveries ORDER BY at").to_pylist()
    assert [row["outcome"] for row in deliveries] == ["delivered", "delivered"]
    assert deliveries[0]["data_as_of"] == at
    assert not (gold.root / "state" / "run" / "alerts.json").exists()


def test_sigkill_between_decision_and_delivery_neither_loses_nor_doubles(
    processes: Processes, gold: GoldLake, receivers: Callable[..., WebhookReceiver]
) -> None:
    """The receiver may see a request twice, with one webhook-id: at least once on the wire, once by id."""
    receiver = receivers(hold=2.0)
    first = processes.start(receiver)
    gold.partial(dead_lettered=1)
    before = receiver.wait(1)[0]  # decided and under way, not yet answered
    first.kill()
    first.wait()
    receiver.hold = 0.0
    processes.start(receiver)
    after = receiver.wait(2)[1]
    assert (after.id, said(after)) == (before.id, said(before))
    assert after.payload["alerts"][0]["labels"]["tenant"] == "acme"
    time.sleep(1.0)
    assert {request.id for request in receiver.received} == {before.id}
    eventually(lambda: history(gold.root), [("inactive", "firing")])


def test_what_fired_before_a_crash_fires_on_without_being_told_again(
    processes: Processes, gold: GoldLake, receiver: WebhookReceiver, address: Callable[[Path], str]
) -> None:
    first = processes.start(receiver)
    gold.partial(dead_lettered=1)
    receiver.wait(1)
    eventually(lambda: history(gold.root), [("inactive", "firing")])
    first.kill()
    first.wait()
    (gold.root / "state" / "run" / "alerts.json").unlink()
    processes.start(receiver)
    url = address(gold.root)
    eventually(lambda: len(httpx.get(f"{url}/api/v2/alerts").json()), 1)
    gold.partial(sidelined=1)
    assert receiver.wait(2)[1].payload["status"] == "resolved"
    eventually(lambda: history(gold.root), [("inactive", "firing"), ("firing", "inactive")])


def test_the_api_asks_for_the_token_where_there_is_one(
    processes: Processes,
    gold: GoldLake,
    receiver: WebhookReceiver,
    address: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALERT_TOKEN", "a token")
    processes.start(receiver, token_env="ALERT_TOKEN")
    url = address(gold.root)
    for path in ("/api/v2/alerts", "/v1/limits"):
        assert httpx.get(url + path).status_code == 401
        assert httpx.get(url + path, headers={"authorization": "Bearer another"}).status_code == 401
        assert httpx.get(url + path, headers={"authorization": "Bearer a token"}).status_code == 200
    assert httpx.get(f"{url}/-/healthy").status_code == 200
