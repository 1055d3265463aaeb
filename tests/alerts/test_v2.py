"""Alertmanager's API as its own tools use it, and as nobody should."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from alerts.api import access_controlled, application, url_of
from alerts.engine import Snapshot
from alerts.models import AlertInstance, AlertState, RuleEvaluation, fingerprint
from alerts.settings import AlertSettings
from alerts.store import ApiState, connect
from alerts.v2.app import Api
from lake.clock import Clock
from lake.web.server import WebServer, listen, served
from tests.support.debian import debian_program
from tests.support.prometheus import PrometheusServer
from tests.support.waiting import wait_until

SETTINGS = AlertSettings.model_validate(
    {
        "receivers": [{"name": name, "url": "https://example.org/"} for name in ("chat", "pager")],
        "route": {
            "receivers": ["chat"],
            "routes": [{"matchers": ['severity="critical"'], "receivers": ["pager"]}],
            "inhibit": [{"source": ["alertname=Down"], "target": ["alertname=Slow"], "equal": ["queue"]}],
        },
    }
)
NOW = datetime.now(UTC)
SOON = (NOW + timedelta(hours=1)).isoformat()


def firing_as(fired: dict[str, Any], says: str, value: float) -> Snapshot:
    """That the alert of a row of ``alert_states`` fires on, and what it says now."""
    labels, at = dict(fired["labels"]), fired["since"]
    names = fired["rule"], fired["rule_group"]
    alert = AlertInstance(*names, labels, {"summary": says}, value, AlertState.FIRING, at, at, fired["fingerprint"])
    return Snapshot(NOW, evaluations=(RuleEvaluation(*names, (), NOW, NOW, True, False, None, (alert,)),))


def firing(name: str, **labels: str) -> AlertInstance:
    labels = {"alertname": name, **labels}
    notes = {"summary": f"{name} is so"}
    return AlertInstance(name, "g", labels, notes, 1.0, AlertState.FIRING, NOW, NOW, fingerprint(labels))


DOWN = firing("Down", queue="orders", severity="critical")
SLOW = firing("Slow", queue="orders")
OTHER = firing("Slow", queue="mails")
SNAPSHOT = Snapshot(NOW, evaluations=(RuleEvaluation("r", "g", (), NOW, NOW, True, False, None, (DOWN, SLOW, OTHER)),))


@contextmanager
def serving(path: Path, snapshot: Snapshot = SNAPSHOT, clock: Clock | None = None) -> Iterator[httpx.Client]:
    clock = clock or Clock()
    with closing(ApiState(path)) as api_state:
        api = Api(lambda: snapshot, api_state, SETTINGS, clock)
        front = access_controlled(application(lambda: snapshot, api.app, Starlette(), clock), SETTINGS, None, None)
        listener = listen("127.0.0.1", 0)
        with (
            served(WebServer(front, listener, front.limits)),
            httpx.Client(base_url=url_of(listener), timeout=60) as http,
        ):
            yield http


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alerts.sqlite"


@pytest.fixture
def http(path: Path) -> Iterator[httpx.Client]:
    with serving(path) as client:
        yield client


def silence(**more: Any) -> dict[str, Any]:
    matchers = [{"name": "queue", "value": "orders", "isRegex": False, "isEqual": True}]
    given = {"matchers": matchers, "startsAt": NOW.isoformat(), "endsAt": SOON}
    return {**given, "createdBy": "ann", "comment": "deploy", **more}


def names(http: httpx.Client, query: str = "") -> list[str]:
    answer = http.get(f"/api/v2/alerts{query}")
    assert answer.status_code == 200, answer.text
    return sorted(f"{one['labels']['alertname']} {one['labels'].get('queue', '')}" for one in answer.json())


def amtool(http: httpx.Client, *arguments: str) -> str:
    command = [
        str(debian_program("prometheus-alertmanager", "amtool")),
        f"--alertmanager.url={http.base_url}",
        *arguments,
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_amtool_queries_alerts_by_matchers_and_state(http: httpx.Client) -> None:
    def query(*arguments: str) -> list[str]:
        told = json.loads(amtool(http, "-o", "json", "alert", "query", *arguments))
        return sorted(f"{one['labels']['alertname']} {one['labels']['queue']}" for one in told)

    assert query() == ["Down orders", "Slow mails"]
    assert query("--inhibited") == ["Slow orders"]
    assert query("queue=~m.*") == ["Slow mails"]
    assert query("alertname!=Slow") == ["Down orders"]
    assert query("--receiver=pag.*") == ["Down orders"]
    assert "Down is so" in amtool(http, "alert", "query", "Down")


def test_amtool_makes_shows_and_ends_silences(http: httpx.Client, path: Path) -> None:
    id = amtool(
        http, "silence", "add", "--author=ann", "--comment=deploy", "-d2h", "queue=~mai.+", "severity!=x"
    ).strip()
    (told,) = json.loads(amtool(http, "-o", "json", "silence", "query"))
    assert (told["id"], told["status"]["state"], told["createdBy"], told["comment"]) == (id, "active", "ann", "deploy")
    assert [m["value"] for m in told["matchers"]] == ["mai.+", "x"]
    assert names(http, "?silenced=false") == ["Down orders", "Slow orders"]
    (mails,) = http.get("/api/v2/alerts", params={"filter": 'queue="mails"'}).json()
    assert mails["status"] == {"state": "suppressed", "silencedBy": [id], "inhibitedBy": [], "mutedBy": []}
    assert json.loads(amtool(http, "-o", "json", "silence", "query", "queue=other")) == []
    amtool(http, "silence", "expire", id)
    assert json.loads(amtool(http, "-o", "json", "silence", "query")) == []
    assert names(http, "?silenced=false") == ["Down orders", "Slow mails", "Slow orders"]
    (told,) = json.loads(amtool(http, "-o", "json", "silence", "query", "--expired", "--within=1h"))
    assert told["status"]["state"] == "expired"
    rows = connect(path).execute("SELECT who, peer, what, subject FROM journal ORDER BY id").fetchall()
    assert rows[0] == ("ann", "127.0.0.1", "silence", id)
    assert rows[1][1:] == ("127.0.0.1", "expire", id)


def test_amtool_sends_alerts_in(http: httpx.Client) -> None:
    amtool(http, "alert", "add", "DiskFull", "queue=disks", "--annotation=summary=full", "--generator-url=http://p/g")
    (told,) = http.get("/api/v2/alerts", params={"filter": "queue=disks"}).json()
    assert told["fingerprint"] == fingerprint({"alertname": "DiskFull", "queue": "disks"})
    assert (told["annotations"], told["generatorURL"]) == ({"summary": "full"}, "http://p/g")
    assert told["receivers"] == [{"name": "chat"}]


def test_prometheus_sends_its_own_alerts_in_and_their_end(http: httpx.Client, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"

    def rule(threshold: int) -> None:
        one = {"alert": "DiskFull", "expr": f"vector(1) > {threshold}", "labels": {"queue": "disks"}}
        rules.write_text(json.dumps({"groups": [{"name": "g", "interval": "1s", "rules": [one]}]}))

    rule(0)
    target = str(http.base_url).removeprefix("http://").rstrip("/")
    config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [target]}]}]},
    }
    with PrometheusServer(tmp_path / "prometheus", config) as prometheus:
        wait_until(lambda: names(http, "?filter=queue=disks") == ["DiskFull disks"], "Prometheus' alert to come")
        (told,) = http.get("/api/v2/alerts", params={"filter": "queue=disks"}).json()
        assert told["generatorURL"].startswith("http") and told["receivers"] == [{"name": "chat"}]
        rule(1)
        prometheus.reload()
        wait_until(lambda: names(http, "?filter=queue=disks") == [], "Prometheus to say that it is over")


def test_amtool_reads_the_status_and_the_routes(http: httpx.Client) -> None:
    assert "disabled" in amtool(http, "cluster", "show")
    config = amtool(http, "config", "show")
    assert "pager" in config and "example.org" not in config, "it tells no url"
    assert "receiver: pager" in amtool(http, "config", "routes", "show")
    assert amtool(http, "config", "routes", "test", "severity=critical").strip() == "pager"
    assert amtool(http, "config", "routes", "test", "severity=warning").strip() == "chat"


def test_groups_are_by_receiver_and_labels_with_filters(http: httpx.Client) -> None:
    def groups(query: str = "") -> list[tuple[str, str, int]]:
        told = http.get(f"/api/v2/alerts/groups{query}").json()
        return [(one["receiver"]["name"], one["labels"]["queue"], len(one["alerts"])) for one in told]

    assert groups() == [("pager", "orders", 1), ("chat", "mails", 1), ("chat", "orders", 1)]
    assert groups("?receiver=chat&inhibited=false") == [("chat", "mails", 1)]
    assert http.get("/api/v2/receivers").json() == [{"name": "chat"}, {"name": "pager"}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?active=false", ["Slow orders"]),
        ("?inhibited=false", ["Down orders", "Slow mails"]),
        ("?active=0&inhibited=f", []),
        ('?filter=queue="orders"&filter=alertname!=Down', ["Slow orders"]),
        ("?receiver=pager", ["Down orders"]),
        ("?receiver=page", []),
    ],
)
def test_filters_are_honoured(http: httpx.Client, query: str, expected: list[str]) -> None:
    assert names(http, query) == expected


@pytest.mark.parametrize("query", ["?active=maybe", "?filter=queue", "?filter=a=~(", "?receiver=(", "?unprocessed=2"])
def test_a_filter_that_cannot_be_read_is_refused_and_not_left_out(http: httpx.Client, query: str) -> None:
    for where in ("alerts", "alerts/groups"):
        assert http.get(f"/api/v2/{where}{query}").status_code == 400


ALERT = {"labels": {"alertname": "A"}}
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        DEEP,
        b'[{"labels": ' + DEEP + b"}]",
        b"[" + json.dumps(ALERT).encode(),
        json.dumps([ALERT, {"labels": {}}]).encode(),
        json.dumps([ALERT, {"labels": {"alertname": ""}}]).encode(),
        json.dumps([ALERT, {"labels": {"a-b": "c"}}]).encode(),
        json.dumps([ALERT, {"labels": {"a": 1}}]).encode(),
        json.dumps([ALERT, {**ALERT, "annotations": {"a": None}}]).encode(),
        json.dumps([ALERT, {**ALERT, "startsAt": "yesterday"}]).encode(),
        json.dumps([ALERT, {**ALERT, "startsAt": "2026-01-01T00:00:00"}]).encode(),
        json.dumps([ALERT, {**ALERT, "startsAt": 1767225600}]).encode(),
        json.dumps([ALERT, {**ALERT, "startsAt": "0001-01-02T00:00:00Z"}]).encode(),
        json.dumps([ALERT, {**ALERT, "startsAt": SOON, "endsAt": NOW.isoformat()}]).encode(),
        json.dumps([ALERT, {**ALERT, "generatorURL": "javascript:alert(1)"}]).encode(),
        json.dumps([ALERT, {"labels": {f"l{n}": "x" for n in range(101)}}]).encode(),
        b'[{"labels": {"a": "\\ud800"}}]',
        b'[{"labels": {"a": "\xff"}}]',
    ],
    ids=range(21),
)
def test_alerts_that_are_not_wholly_right_are_not_taken_at_all(http: httpx.Client, body: bytes) -> None:
    answer = http.post("/api/v2/alerts", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, isinstance(answer.json(), str)) == (400, True)
    assert names(http, "?filter=alertname=A") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"matchers": []},
        {"matchers": [{"name": "a", "value": "(", "isRegex": True}]},
        {"matchers": [{"name": "a", "value": ".*", "isRegex": True}]},
        {"matchers": [{"name": "a", "value": "b"}]},
        {"matchers": [{"name": "a b", "value": "b", "isRegex": False}]},
        {"endsAt": (NOW - timedelta(hours=1)).isoformat()},
        {"endsAt": "0001-01-01T00:00:00Z"},
        {"startsAt": None},
        {"createdBy": ""},
        {"comment": None},
        {"comment": "x" * 3000},
    ],
)
def test_a_silence_that_is_not_right_is_refused(http: httpx.Client, wrong: dict[str, Any]) -> None:
    assert http.post("/api/v2/silences", json=silence(**wrong)).status_code == 400
    assert http.get("/api/v2/silences").json() == []


def test_what_is_too_large_or_of_another_kind_is_refused(http: httpx.Client) -> None:
    big = json.dumps([{"labels": {"a": "x" * (1024 * 1024)}}])
    json_type = {"content-type": "application/json"}
    assert http.post("/api/v2/alerts", content=big, headers=json_type).status_code == 413
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = http.post("/api/v2/silences", content=json.dumps(silence()), headers={"content-type": kind})
        assert answer.status_code == 415
    assert http.delete("/api/v2/silences").status_code == 405
    assert http.get("/api/v2/silences").json() == []


def test_a_silence_may_be_changed_and_one_that_is_not_there_may_not(http: httpx.Client) -> None:
    id = http.post("/api/v2/silences", json=silence()).json()["silenceID"]
    shown = http.get(f"/api/v2/silence/{id}").json()
    longer = silence(id=id, startsAt=shown["startsAt"], endsAt="9999-12-31T23:59:59Z")
    assert http.post("/api/v2/silences", json=longer).json() == {"silenceID": id}
    assert http.get(f"/api/v2/silence/{id}").json()["endsAt"] > SOON
    other = http.post("/api/v2/silences", json=silence(id=id, matchers=[{"name": "a", "value": "b", "isRegex": False}]))
    assert other.json()["silenceID"] != id
    assert http.get(f"/api/v2/silence/{id}").json()["status"]["state"] == "expired"
    for answer in (
        http.post("/api/v2/silences", json=silence(id="none")),
        http.get("/api/v2/silence/none"),
        http.delete("/api/v2/silence/none"),
    ):
        assert answer.status_code == 404


def test_what_newer_releases_require_is_there(http: httpx.Client) -> None:
    http.post("/api/v2/silences", json=silence()).raise_for_status()
    assert [one["annotations"] for one in http.get("/api/v2/silences").json()] == [{}]
    groups = http.get("/api/v2/alerts/groups").json()
    assert groups and all(group["routeLabels"] == {} for group in groups)


def test_what_karma_reads_is_there_in_the_types_that_it_decodes(http: httpx.Client) -> None:
    """Its ``internal/mapper/v017/api.go`` of August 2026, for Alertmanager 0.22 and later."""
    http.post("/api/v2/silences", json=silence()).raise_for_status()
    groups, silences = (http.get(f"/api/v2/{path}").json() for path in ("alerts/groups", "silences"))
    assert groups and silences
    for group in groups:
        assert isinstance(group["receiver"]["name"], str) and _is_of_texts(group["labels"])
        for alert in group["alerts"]:
            assert _is_of_texts(alert["labels"]) and _is_of_texts(alert["annotations"])
            assert datetime.fromisoformat(alert["startsAt"]).tzinfo is not None
            assert isinstance(alert["fingerprint"], str) and isinstance(alert["generatorURL"], str)
            assert alert["status"]["state"] in {"active", "suppressed", "unprocessed"}
            assert all(isinstance(one, str) for by in ("inhibitedBy", "silencedBy") for one in alert["status"][by])
    for one in silences:
        assert all(datetime.fromisoformat(one[name]).tzinfo is not None for name in ("startsAt", "endsAt"))
        assert all(isinstance(one[name], str) for name in ("id", "comment", "createdBy"))
        for matcher in one["matchers"]:
            kinds = {"name": str, "value": str, "isRegex": bool, "isEqual": bool}
            assert {name: type(matcher[name]) for name in kinds} == kinds


def _is_of_texts(given: Any) -> bool:
    return isinstance(given, dict) and all(isinstance(value, str) for value in given.values())


def test_an_alert_is_acknowledged_and_released_by_name(http: httpx.Client, path: Path) -> None:
    sent = {"fingerprint": DOWN.fingerprint, "createdBy": "ann", "comment": "on it"}
    assert http.post("/api/v2/acknowledgements", json=sent).status_code == 200
    (one,) = http.get("/api/v2/acknowledgements").json()
    assert (one["fingerprint"], one["createdBy"], one["comment"]) == (DOWN.fingerprint, "ann", "on it")
    assert http.delete(f"/api/v2/acknowledgement/{DOWN.fingerprint}").status_code == 200
    assert http.get("/api/v2/acknowledgements").json() == []
    assert http.delete(f"/api/v2/acknowledgement/{DOWN.fingerprint}").status_code == 404
    for wrong, status in (({"fingerprint": "0" * 16}, 404), ({"fingerprint": "x"}, 400), ({"createdBy": ""}, 400)):
        assert http.post("/api/v2/acknowledgements", json={**sent, **wrong}).status_code == status
    whats = connect(path).execute("SELECT who, what FROM journal ORDER BY id").fetchall()
    assert whats[0] == ("ann", "acknowledge") and whats[1][1] == "release"


def test_instants_are_shown_on_the_wall_clock_that_was_set(path: Path) -> None:
    """The clock is set an hour ahead: a silence of an hour, made then, lasts an hour and is shown as it was given."""
    set_by = timedelta(0)
    clock = Clock(lambda: datetime.now(UTC) + set_by)
    with serving(path, clock=clock) as http:
        set_by = timedelta(hours=1)
        starts, ends = datetime.now(UTC) + set_by, datetime.now(UTC) + 2 * set_by
        id = http.post("/api/v2/silences", json=silence(startsAt=starts.isoformat(), endsAt=ends.isoformat())).json()[
            "silenceID"
        ]
        shown = http.get(f"/api/v2/silence/{id}").json()
        assert abs(datetime.fromisoformat(shown["endsAt"]) - ends) < timedelta(seconds=1)
        set_by = timedelta(0)
        shown = http.get(f"/api/v2/silence/{id}").json()
        assert abs(datetime.fromisoformat(shown["endsAt"]) - ends + timedelta(hours=1)) < timedelta(seconds=1)
        assert shown["status"]["state"] == "active"


def test_it_is_ready_once_rules_have_been_evaluated_lately(path: Path) -> None:
    with serving(path, Snapshot(datetime.now(UTC))) as http:
        assert http.get("/-/ready").status_code == 200
    for at in (None, NOW - timedelta(hours=1)):
        with serving(path, Snapshot(at)) as http:
            assert http.get("/-/ready").status_code == 503
            assert http.get("/-/healthy").status_code == 200
