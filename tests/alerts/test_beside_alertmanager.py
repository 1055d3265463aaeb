"""Sojourn beside a real Alertmanager: the same alerts in, the same groups, states and webhooks out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.notify.settings import ReceiverSettings
from alerts.notify.trial import ALERT, trial
from alerts.run import run
from alerts.settings import AlertSettings
from tests.alerts.helpers import WebhookReceiver
from tests.support.alertmanager import AlertmanagerServer
from tests.support.waiting import wait_until

ROUTE: dict[str, Any] = {
    "group_by": ["alertname", "queue"],
    "group_wait": "0s",
    "group_interval": "1s",
    "repeat_interval": "4h",
}
MATCHERS = ['severity=~"crit.+"']
INHIBIT = (["alertname=Down"], ["alertname=Slow"], ["queue"])
Receivers = Callable[..., WebhookReceiver]
START = datetime.now(UTC).replace(microsecond=123000)


@contextmanager
def alertmanager(folder: Path, chat: str, pager: str) -> Iterator[str]:
    source, target, equal = INHIBIT
    server = AlertmanagerServer(
        folder,
        {
            "route": {"receiver": "chat", **ROUTE, "routes": [{"receiver": "pager", "matchers": MATCHERS}]},
            "receivers": [
                {"name": name, "webhook_configs": [{"url": url}]} for name, url in (("chat", chat), ("pager", pager))
            ],
            "inhibit_rules": [{"source_matchers": source, "target_matchers": target, "equal": equal}],
        },
    )
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def sojourn(lake: Path, address: Callable[[Path], str], chat: str, pager: str) -> Iterator[str]:
    source, target, equal = INHIBIT
    settings = AlertSettings.model_validate(
        {
            "builtin": False,
            "port": 0,
            "receivers": [
                {"name": name, "url": url, "allow_private": True} for name, url in (("chat", chat), ("pager", pager))
            ],
            "route": {
                **ROUTE,
                "receivers": ["chat"],
                "routes": [{"receivers": ["pager"], "matchers": MATCHERS}],
                "inhibit": [{"source": source, "target": target, "equal": equal}],
            },
        }
    )
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(settings, lake, stop), kwargs={"once": False}, daemon=True)
    thread.start()
    try:
        yield address(lake)
    finally:
        stop.set()
        thread.join(60)


def alert(name: str, over: datetime | None = None, **labels: str) -> dict[str, Any]:
    told = {
        "labels": {"alertname": name, **labels},
        "annotations": {"summary": f"{name} is so"},
        "startsAt": START.isoformat(),
        "generatorURL": "http://prometheus.example/graph",
    }
    return told | ({"endsAt": over.isoformat()} if over else {})


def shown(url: str) -> dict[str, Any]:
    """What the API shows, without what is each server's own."""
    names = ("labels", "annotations", "receivers", "generatorURL")
    return {
        one["fingerprint"]: {
            **{name: one[name] for name in names},
            "state": one["status"]["state"],
            "silenced": len(one["status"]["silencedBy"]),
            "inhibited": one["status"]["inhibitedBy"],
            "since": datetime.fromisoformat(one["startsAt"]),
        }
        for one in httpx.get(f"{url}/api/v2/alerts").json()
    }


def groups(url: str) -> list[Any]:
    return sorted(
        [one["receiver"]["name"], sorted(one["labels"].items()), sorted(a["fingerprint"] for a in one["alerts"])]
        for one in httpx.get(f"{url}/api/v2/alerts/groups").json()
    )


def told(*receivers: WebhookReceiver) -> dict[str, Any]:
    """What the last webhook of each group said, in all that both servers say."""
    names = ("receiver", "status", "groupLabels", "commonLabels", "commonAnnotations", "version", "truncatedAlerts")
    last: dict[str, Any] = {}
    for receiver in receivers:
        for request in receiver.received:
            body = json.loads(request.body)
            last[body["groupKey"]] = {name: body[name] for name in names} | {
                "alerts": sorted(
                    (
                        one["fingerprint"],
                        one["status"],
                        sorted(one["labels"].items()),
                        sorted(one["annotations"].items()),
                        one["generatorURL"],
                        datetime.fromisoformat(one["startsAt"]),
                        one["endsAt"] if one["status"] == "firing" else "over",
                    )
                    for one in body["alerts"]
                )
            }
    return last


def test_the_same_alerts_become_the_same_groups_states_and_webhooks(
    tmp_path: Path, receivers: Receivers, address: Callable[[Path], str]
) -> None:
    theirs, ours = (receivers(), receivers()), (receivers(), receivers())
    with (
        alertmanager(tmp_path / "am", theirs[0].url, theirs[1].url) as them,
        sojourn(tmp_path / "lake", address, ours[0].url, ours[1].url) as us,
    ):

        def post(path: str, body: Any) -> None:
            for url in (them, us):
                answer = httpx.post(f"{url}/api/v2/{path}", json=body, timeout=60)
                assert answer.status_code == 200, answer.text

        def same(groups_told: int) -> None:
            wait_until(lambda: shown(us) == shown(them), "the same alerts in the same states")
            wait_until(lambda: groups(us) == groups(them), "the same groups")
            wait_until(lambda: len(told(*theirs)) == groups_told, f"Alertmanager to tell {groups_told} groups")
            wait_until(lambda: told(*ours) == told(*theirs), "the same webhooks")

        end = datetime.now(UTC) + timedelta(hours=1)
        matchers = [{"name": "queue", "value": "qui.*", "isRegex": True, "isEqual": True}]
        silence = {"matchers": matchers, "createdBy": "ann", "comment": "", "startsAt": START.isoformat()}
        post("silences", {**silence, "endsAt": end.isoformat()})
        post("alerts", [alert("Down", queue="orders", severity="critical")])
        same(1)
        post(
            "alerts",
            [
                alert("Slow", queue="orders"),
                alert("Slow", queue="mails", tenant="a"),
                alert("Slow", queue="mails", tenant="b"),
                alert("Slow", queue="quiet", severity="crit"),
                alert("Down", queue="quiet2", severity="critical"),
                alert("Odd", queue='a "b"\\c\n', severity="warning"),
            ],
        )
        same(3)
        states = sorted((one["labels"]["queue"], one["state"]) for one in shown(us).values())
        assert ("orders", "suppressed") in states and ("quiet", "suppressed") in states
        # The inhibiting alert is over, and one of a pair: what it held back is told, and both ends.
        over = datetime.now(UTC)
        post("alerts", [alert("Down", over, queue="orders", severity="critical")])
        post("alerts", [alert("Slow", over, queue="mails", tenant="b")])
        same(4)
        assert {one["status"] for one in told(*ours).values()} == {"firing", "resolved"}


@pytest.fixture
def their_url(tmp_path: Path, receiver: WebhookReceiver) -> Iterator[str]:
    with alertmanager(tmp_path / "am", receiver.url, receiver.url) as url:
        yield url


def test_an_alertmanager_takes_what_we_tell_it(their_url: str) -> None:
    settings = ReceiverSettings(name="am", format="alertmanager", url=their_url, allow_private=True)
    tries = trial(settings, "https://sojourn.example")
    assert next(tries).is_delivered
    (fired,) = httpx.get(f"{their_url}/api/v2/alerts").json()
    assert (fired["labels"]["alertname"], fired["status"]["state"]) == (ALERT, "active")
    assert datetime.fromisoformat(fired["endsAt"]) > datetime.now(UTC) + timedelta(minutes=3)
    assert next(tries).is_delivered
    tries.close()  # type: ignore[attr-defined]
    wait_until(lambda: httpx.get(f"{their_url}/api/v2/alerts").json() == [], "it to be over")
