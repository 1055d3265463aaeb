"""What a user sees of a fault: ``sojourn sql``, the metrics page, the rules and the dashboard's page of the queue.

``python -m tests.faults.faces > docs/brokers/faults.md`` makes every fault on its server and writes down what is said.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from textwrap import shorten
from typing import Any

import pyarrow as pa
from streamlit.testing.v1 import AppTest

from alerts.evaluate import Freshness, Identities, RuleMemory, evaluate
from alerts.models import AlertInstance, fingerprint
from alerts.rules.expression import bound
from alerts.rules.loader import load_rules
from collectors.run import run
from collectors.settings import CollectSettings
from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE
from dashboard.settings import DashboardSettings
from lake.definitions import Definitions
from lake.errors import SojournError
from lake.reader import Reader
from lake.store import Lake
from lake.tables import TABLES
from spark_analytics.sql import query
from spark_analytics.state.writer import Writer
from tests.faults.faults import FAULTS, Fault, Row
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

BROKER = "prod"
#: The longest that a rule asks for before it fires, and how far its clock is moved at a time.
_HELD, _STEP = timedelta(minutes=16), timedelta(minutes=1)


@dataclass(frozen=True)
class Faces:
    """What each face said; ``rules``: what fired once the fault had stood for as long as rules ask, and its summary."""

    sql: str
    rows: list[Row]
    metrics: list[str]
    rules: Mapping[str, tuple[str, str]]  # rule → severity, summary
    page: str


def seen(fault: Fault, folder: Path) -> Faces:
    """Make ``fault``, collect, analyse once, and look. The Spark session that is there answers the SQL."""
    with fault.server(folder / "server") as server, _environment(fault.environment):
        again = fault.make(server)
        (port,) = free_ports(1)
        broker = {"name": BROKER, **fault.broker(server)}
        chosen = CollectSettings.model_validate({"brokers": [broker], "sample_interval": 0.3, "metrics_port": port})
        root = folder / "lake"
        with _collecting(chosen, root):

            def found() -> Row | None:
                again()
                rows = health(root, fault)
                return next((row for row in rows if fault.seen(row)), None)

            wait_until(found, f"{fault.name} to be seen", seconds=60, every=0.5)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                metrics = answer.read().decode()
    rules = _rules(root)
    sql = f"SELECT {', '.join(fault.columns)} FROM queue_health_now WHERE queue = '{fault.queue}'"
    fired = {name: (alert.labels["severity"], alert.annotations["summary"]) for name, alert in rules.items()}
    told = [line for line in metrics.splitlines() if f'queue="{fault.queue}"' in line]
    return Faces(sql, query(root, sql).to_pylist(), told, fired, _page(root, fault.queue, rules))


def health(root: Path, fault: Fault) -> list[Row]:
    """What is known of the fault's queue, once the analysis has finished what there is."""
    if not Lake(root).exists("queue_samples"):
        return []
    writer = Writer(root)
    writer.step()
    writer.close()
    rows = Reader(root).query("SELECT * FROM queue_health_now").to_pylist()
    return [row for row in rows if row["queue"] == fault.queue]


@contextmanager
def _collecting(chosen: CollectSettings, root: Path) -> Iterator[None]:
    stop, raised = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            run(chosen, root, stop)
        except SojournError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not raised, raised


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _rules(root: Path) -> dict[str, AlertInstance]:
    """What fires about queues when all stays as it is for as long as any rule asks."""
    reader, found = Reader(root), dict[str, AlertInstance]()
    begin = datetime.now(UTC)
    for rule in load_rules((), builtin=True):
        if any(name in ("data_freshness", "rule_health", "notification_health") for name in rule.tables):
            continue
        memory, identities, at = RuleMemory(), Identities(), begin
        answer = reader.query(bound(rule.expr, begin, Definitions()))
        while at <= begin + _HELD:
            outcome = evaluate(
                rule, memory, lambda sql, answer=answer: answer, Freshness(at, at, False), at, identities
            )
            assert outcome.evaluation.error is None, (rule.name, outcome.evaluation.error)
            memory, at = outcome.memory, at + _STEP
        for alert in outcome.evaluation.alerts:
            if alert.state.is_firing and "queue" in alert.labels:
                found[rule.name] = alert
    return found


def _page(root: Path, queue: str, rules: Mapping[str, AlertInstance]) -> str:
    """The words of the dashboard's page of ``queue``, with the alerts that fire."""
    now = datetime.now(UTC)
    rows = [
        {
            "at": now,
            "data_as_of": now,
            "rule_group": "built in",
            "rule": name,
            "fingerprint": fingerprint(alert.labels),
            "labels": list(alert.labels.items()),
            "annotations": list(alert.annotations.items()),
            "from_state": "pending",
            "to_state": "firing",
            "value": alert.value,
            "reason": "",
        }
        for name, alert in rules.items()
    ]
    Lake(root).append("alert_transitions", pa.Table.from_pylist(rows, TABLES["alert_transitions"].schema))
    shown = {LAKE_VARIABLE: str(root), SETTINGS_VARIABLE: DashboardSettings().model_dump_json()}
    with _environment(shown):
        app = AppTest.from_function(_queue_page, default_timeout=120)
        app.query_params["queue"] = queue
        app.run()
    assert not app.exception, app.exception
    html = " ".join(element.proto.body for element in app.get("html") if "<style>" not in element.proto.body)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))).strip()


def _queue_page() -> None:
    from dashboard.pages import queue

    queue.render()


# -- the document -----------------------------------------------------------------------------------------------------

_HEAD = """# Faults, and what tells of them

Each of these was made on the real server, sampled alone, without events; the collectors and the analysis ran over it
once. What is shown is what a user sees: `sojourn sql`, the metrics page (lines of that queue), the built-in rules once
the fault has stood for as long as they ask, and the words of the dashboard's page of the queue. Written by
`python -m tests.faults.faces`; `tests/faults` holds each face to what is wanted.
"""


def document(faces: Iterator[tuple[Fault, Faces]]) -> str:
    """docs/brokers/faults.md."""
    text = _HEAD
    for fault, told in faces:
        rules = "".join(f"| {name} | {level} | {words} |\n" for name, (level, words) in sorted(told.rules.items()))
        table = f"| rule | severity | says |\n|---|---|---|\n{rules}" if rules else "No rule fires.\n"
        values = "\n".join(", ".join(f"{name} = {_shown(value)}" for name, value in row.items()) for row in told.rows)
        kept = [line for line in told.metrics if line.startswith((*fault.metrics, "sojourn_queue_info"))]
        text += f"\n## {fault.words}\n\n```sql\n{told.sql}\n```\n\n```text\n{values}\n```\n\n"
        text += (
            "```text\n" + "\n".join(kept) + f"\n```\n\n{table}\nThe page: {shorten(told.page, 600, placeholder=' …')}\n"
        )
    return text


def _shown(value: Any) -> str:
    return "null" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Make every fault, and write the page."""
    from spark_analytics.runtime.session import build_session

    session = build_session("faults", quick_start=True, conf={"spark.driver.memory": "1g"})
    wanted = sys.argv[1:]
    try:
        with tempfile.TemporaryDirectory() as folder:
            told = (
                (fault, seen(fault, Path(folder) / fault.name))
                for fault in FAULTS
                if not wanted or fault.name in wanted
            )
            text = document(told)
    finally:
        session.stop()
    sys.stdout.write(text)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
