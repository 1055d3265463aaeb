"""What a user sees of a scene's faults: ``sojourn sql``, the metrics page, the rules and the dashboard's pages."""

from __future__ import annotations

import os
import re
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession
from streamlit.testing.v1 import AppTest

from alerts.answer import Identities
from alerts.evaluate import Freshness, RuleMemory, evaluate
from alerts.models import AlertInstance, fingerprint
from alerts.rules.expression import ENGINE_VIEWS, bound
from alerts.rules.loader import EARLY, load_rules
from collectors.settings import CollectSettings
from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE
from dashboard.settings import DashboardSettings
from lake.definitions import Definitions
from lake.reader import Reader
from lake.store import Lake
from lake.tables import TABLES
from spark_analytics.sql import query
from spark_analytics.state.writer import Writer
from tests.collectors.support import running
from tests.faults.fault import Fault, Row, Scene
from tests.spark_analytics.analysis import analyse
from tests.support.pages import look_for_components_once
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

look_for_components_once()

#: Beyond which a queue is behind: far longer than any test takes, and far less than the age of what is old.
DEFINITIONS = Definitions(target_seconds=300)
#: The longest that a rule asks for before it fires, and how far its clock is moved at a time.
_HELD, _STEP = timedelta(minutes=16), timedelta(minutes=1)
#: Of the collectors as a whole, beside the lines of the queue.
_OWN = ("sojourn_collector_success{", "sojourn_collector_unread_queues{")

#: A page is read when the scene is over, which is no trouble of the queue's.
_SETTINGS = DashboardSettings(stale_after_seconds=3600)

Alerts = Mapping[str, list[AlertInstance]]  # by rule


class Faces:
    """The faces of a lake that nobody writes to any more. The Spark session that is there answers the SQL."""

    def __init__(self, root: Path, metrics: str) -> None:
        self._root = root
        self._metrics = metrics.splitlines()
        self._alerts = _alerts(root)
        _note(root, self._alerts)

    def rows(self, fault: Fault) -> list[Row]:
        """What SQL says of the queue."""
        return query(self._root, sql(fault)).to_pylist()

    def samples(self, fault: Fault) -> list[Row]:
        """What else is asked of SQL."""
        return query(self._root, fault.samples).to_pylist() if fault.samples else []

    def metrics(self, fault: Fault) -> list[str]:
        """The lines of the queue, and of the collectors."""
        mark = f'queue="{fault.queue}"'
        return [line for line in self._metrics if mark in line or line.startswith(_OWN)]

    def rules(self, fault: Fault) -> dict[str, tuple[str, str]]:
        """What fires once the fault has stood for as long as rules ask: rule → severity, summary."""
        return {
            rule: (alert.labels["severity"], alert.annotations["summary"])
            for rule, alerts in self._alerts.items()
            for alert in alerts
            if alert.labels["queue"] == fault.queue
        }

    def page(self, fault: Fault) -> str:
        """The words of the dashboard's page of the queue."""
        shown = {LAKE_VARIABLE: str(self._root), SETTINGS_VARIABLE: _SETTINGS.model_dump_json()}
        with patch.dict(os.environ, shown):
            app = AppTest.from_function(_queue_page, default_timeout=120)
            app.query_params["queue"] = fault.queue
            app.run()
        assert not app.exception, app.exception
        html = " ".join(element.proto.body for element in app.get("html") if "<style>" not in element.proto.body)
        return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))).strip()


def sql(fault: Fault) -> str:
    """What is asked of SQL."""
    return f"SELECT {', '.join(fault.columns)} FROM queue_health_now WHERE queue = '{fault.queue}'"


def look(scene: Scene, folder: Path) -> Faces:
    """Make the scene's faults, collect and analyse until each is seen, all at one time."""
    root = folder / "lake"
    DEFINITIONS.save(root)
    with scene.server(folder / "server") as server, patch.dict(os.environ, scene.environment):
        lasting = [fault.make(server) for fault in scene.faults]
        strikes = {fault.queue: fault.strikes for fault in scene.faults if fault.strikes}
        (port,) = free_ports(1)
        common = {"sample_interval": 0.3, "metrics_port": port}
        with running(CollectSettings.model_validate(scene.settings(server) | common), root):
            found = dict[str, list[Row]]()
            analysis = _Analysis(root, SparkSession.active() if scene.events else None)

            def seen() -> bool:
                for again in lasting:
                    again()
                found.update(analysis.health())
                for queue in found.keys() & strikes.keys():
                    strikes.pop(queue)(server)
                return not strikes and all(
                    found.get(fault.queue) and all(map(fault.seen, found[fault.queue])) for fault in scene.faults
                )

            try:
                wait_until(seen, f"the faults of {scene.name} to be seen", seconds=60, every=0.5)
            except AssertionError as error:
                raise AssertionError(f"{error}: {_unseen(scene, found)}") from None
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                metrics = answer.read().decode()
    return Faces(root, metrics)


def _unseen(scene: Scene, found: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    return {
        fault.name: found.get(fault.queue, [])
        for fault in scene.faults
        if not found.get(fault.queue) or not all(map(fault.seen, found[fault.queue]))
    }


class _Analysis:
    """What gold knows, brought up to bronze: of events too, where ``spark`` is there to read them."""

    def __init__(self, root: Path, spark: SparkSession | None) -> None:
        self._lake = Lake(root)
        self._spark = spark
        self._events = 0

    def health(self) -> dict[str, list[Row]]:
        """What is known of each queue, once the analysis has finished what there is."""
        if not self._lake.exists("queue_samples"):
            return {}
        if self._spark is not None and self._lake.exists("message_events"):
            events = self._lake.read("message_events", columns=["event_id"]).num_rows
            if events > self._events:
                analyse(self._spark, self._lake, driver_bytes=1 << 30)
            self._events = events
        writer = Writer(self._lake.root)
        writer.step()
        writer.close()
        found: dict[str, list[Row]] = defaultdict(list)
        for row in Reader(self._lake.root).query("SELECT * FROM queue_health_now").to_pylist():
            found[row["queue"]].append(row)
        return found


def _alerts(root: Path) -> Alerts:
    """What fires about queues when all stays as it is for as long as any rule asks."""
    reader, found = Reader(root), defaultdict[str, list[AlertInstance]](list)
    begin = datetime.now(UTC)
    for rule in load_rules((), builtin=True):
        if rule.tables & ENGINE_VIEWS.keys() or rule.group == EARLY:  # of policies that nobody has set here
            continue
        memory, identities, at = RuleMemory(), Identities(), begin
        answer = reader.query(bound(rule.expr, begin, DEFINITIONS))
        while at <= begin + _HELD:
            outcome = evaluate(
                rule, memory, lambda sql, answer=answer: answer, Freshness(at, at, False), at, identities
            )
            assert outcome.evaluation.error is None, (rule.name, outcome.evaluation.error)
            memory, at = outcome.memory, at + _STEP
        for alert in outcome.evaluation.alerts:
            if alert.state.is_firing and "queue" in alert.labels:
                found[rule.name].append(alert)
    return found


def _note(root: Path, alerts: Alerts) -> None:
    """Have the dashboard know what fires."""
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
        for name, of_rule in alerts.items()
        for alert in of_rule
    ]
    Lake(root).append("alert_transitions", pa.Table.from_pylist(rows, TABLES["alert_transitions"].schema))


def _queue_page() -> None:
    from dashboard.pages import queue

    queue.render()
