"""What strangers call queues, tenants and messages, on its whole way: a name stays a name, and the same name."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from alerts.run import run
from alerts.settings import AlertSettings
from dashboard import figures
from dashboard.pages import markup
from dashboard.services.queue import TenantLine
from lake.reader import Reader
from lake.store import Lake
from lake.tables import PARTIALS
from sojourn.cli.rows import as_csv, as_json, as_table
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.collectors.receive.support import receiving
from tests.reference.partials import partials_of
from tests.security.names import ENDLESS, HALVES, NAMES
from tests.support.finishing import finish

RULE = """
groups:
  - name: g
    rules:
      - alert: Arrived
        expr: SELECT broker, queue, subscriber, tenant, SUM(enqueued) AS value FROM partials GROUP BY 1, 2, 3, 4
        annotations:
          summary: "{{ labels.tenant }} on {{ labels.queue }}"
"""


def told(name: str, number: int) -> dict[str, object]:
    """An event in which everything is called ``name``."""
    return {
        "event_id": f"e{number}",
        "event_type": "enqueued",
        "broker": name,
        "queue": name,
        "subscriber": name,
        "tenant": name,
        "message_id": name,
        "occurred_at": int(time.time() * 1_000_000),
    }


def test_a_hostile_name_stays_the_same_name_from_the_receiver_to_the_webhook(
    tmp_path: Path,
    receivers: Callable[..., WebhookReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [*NAMES.values(), *HALVES]
    kept = {name.encode("utf-8", "replace").decode() for name in NAMES.values()}
    with receiving(tmp_path / "lake") as one:
        events = [told(name, number) for number, name in enumerate([*names, ENDLESS])]
        body = json.dumps({"version": 1, "sender": "s", "sequence": 0, "events": events})
        answer = httpx.post(f"{one.url}/v1/events", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200
        rows = one.rows()
    bronze = {row["tenant"] for row in rows}
    assert kept <= bronze and ENDLESS not in bronze
    assert all(row["tenant"] == row["queue"] == row["broker"] == row["message_id"] for row in rows)
    lake = Lake(tmp_path / "lake")
    lake.append("partials", pa.Table.from_pylist(partials_of(rows), PARTIALS.schema))
    finish(lake.root)

    (tmp_path / "rules.yml").write_text(RULE)
    pager = receivers()
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    settings = AlertSettings.model_validate(
        {
            "port": 0,
            "rules": [str(tmp_path / "rules.yml")],
            "builtin": False,
            "route": {"group_by": ["alertname"]},
            "receivers": [{"name": "p", "url": pager.url, "secret_env": "HOOK_SECRET", "allow_private": True}],
        }
    )
    run(settings, lake.root, threading.Event(), once=True)
    alerts = [alert for request in pager.received for alert in request.payload["alerts"]]
    assert {alert["labels"]["tenant"] for alert in alerts} == bronze
    assert all(alert["labels"]["queue"] == alert["labels"]["tenant"] for alert in alerts)
    states = Reader(lake.root).query("SELECT labels FROM alert_states").to_pylist()
    assert {dict(row["labels"])["tenant"] for row in states} == bronze


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_hostile_name_is_text_on_every_page_and_every_terminal(name: str) -> None:
    line = TenantLine(name, True, "1", 0.5, "1", "1", "1 s", "1/s → 1/s", "empty", "–")
    page = markup.tenants([line], name) + markup.title(name)
    inside = page.replace("<span", "").replace("</span", "")
    assert "<a" not in inside and "<script" not in inside and "<img" not in inside
    legend = figures.shown_text(name, figures.NAME)
    assert "<" not in legend and len(legend) < 6 * figures.NAME
    table = pa.table({"tenant": [name]})
    for shown in (page, legend, as_table(table)):
        assert [sign for sign in shown if not (sign.isprintable() or sign in "\n\u200d\ue000\uffff\U0010ffff")] == []
    assert json.loads(as_json(table))["tenant"] == name
    assert name.replace('"', '""') in as_csv(table)
