"""`sojourn up` over an object store, as a user writes it down: from a broker to a page, a picture and a notebook."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.heartbeats import heartbeats
from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE
from dashboard.settings import DashboardSettings
from lake.reader import Reader
from lake.store import Lake
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.collectors.support import connect, make_queue
from tests.spark_analytics.connect_client import Client
from tests.support.nats import NatsServer
from tests.support.ports import free_ports
from tests.support.postgresql import PostgresServer
from tests.support.s3 import BUCKET, S3Server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.deep]  # test_story goes the same way part by part

HOME = Path(__file__).parents[2]
APP = str(HOME / "dashboard" / "entry" / "app.py")
SENT = {"acme": 30, "quiet": 10}
TAKEN = 8
BACKLOG = "SELECT sum(backlog) AS n FROM tenant_backlog_now"
DEPTH = "SELECT max(depth) AS n FROM queue_health_now"
SETTINGS = """
[lake]
root = "{home}"
path = "s3://{bucket}/up"
[lake.storage_options]
aws_endpoint_url = "{store}"
aws_access_key_id = "any"
aws_secret_access_key = {{ env = "THEIR_SECRET" }}

[collect]
sample_interval = 0.5
[[collect.brokers]]
name = "mq"
url = "{broker}"
streams = ["ORDERS"]

[analyze]
quick_start = true
driver_memory = "512m"

[alert]
store = {{ env = "ALERTS_URL" }}
port = {alert}
rules = ["{rules}"]
builtin = false
[alert.route]
group_wait = 0
[[alert.receivers]]
name = "pager"
url = "{pager}"
secret_env = "HOOK_SECRET"
allow_private = true

[dashboard]
port = {dashboard}
"""
RULES = """
groups:
  - name: g
    rules:
      - alert: Waits
        expr: SELECT tenant, backlog AS value FROM tenant_backlog_now WHERE backlog > 20
"""


def send(url: str) -> None:
    """Messages of two tenants, of which a few are worked on."""

    async def work() -> None:
        connection = await connect(url)
        stream = connection.jetstream()
        for tenant, count in SENT.items():
            for number in range(count):
                await stream.publish("orders.new", str(number).encode(), headers={"Tenant": tenant})
        consumer = await stream.pull_subscribe("orders.>", durable="work", stream="ORDERS")
        for message in await consumer.fetch(TAKEN, timeout=10):
            await message.ack_sync()
        await connection.close()

    asyncio.run(work())


@contextmanager
def sojourn(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that serves until it is told to end, which it does in order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sojourn.cli.main", *words],
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until_told(process: subprocess.Popen[str], word: str) -> None:
    """Until a line says ``word``."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if word in line:
            return
    raise AssertionError("".join(said))


def logs(home: Path) -> str:
    return "\n".join(f"-- {log.name}\n{log.read_text()[-3000:]}" for log in (home / "state" / "logs").glob("*"))


def asked_by_java(server: S3Server) -> list[str]:
    return [f"{one.method} {one.path}" for one in server.requests() if "java" in one.client.lower()]


def overview() -> str:
    app = AppTest.from_file(APP, default_timeout=60).run()
    assert not app.exception, app.exception
    return re.sub(r"<[^>]+>", " ", " ".join(element.proto.body for element in app.get("html")))


def test_all_parts_run_over_an_object_store(
    server: S3Server, receivers: Callable[..., WebhookReceiver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the alerts' state in PostgreSQL, so that nothing is on this disk but what is recreated."""
    monkeypatch.setenv("THEIR_SECRET", "hush")
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    pager, home, config = receivers(), tmp_path / "home", tmp_path / "sojourn.toml"
    (tmp_path / "rules.yml").write_text(RULES)
    alert, dashboard, port = free_ports(3)
    with NatsServer(tmp_path / "nats") as broker, PostgresServer() as database:
        monkeypatch.setenv("ALERTS_URL", database.url())
        make_queue(broker.url)
        config.write_text(
            SETTINGS.format(
                home=home,
                bucket=BUCKET,
                store=server.url,
                broker=broker.url,
                alert=alert,
                rules=tmp_path / "rules.yml",
                pager=pager.url,
                dashboard=dashboard,
            )
        )
        with sojourn("up", "-c", str(config)) as up:
            until_told(up, "running: collect, analyze, alert, dashboard")
            send(broker.url)
            reader = Reader(home)
            left = sum(SENT.values()) - TAKEN
            before = len(asked_by_java(server))
            wait_until(lambda: reader.query(BACKLOG)["n"].to_pylist() == [left], "gold", seconds=60, every=0.2)
            [request] = pager.wait(1)
            assert [one["labels"]["tenant"] for one in request.payload["alerts"]] == ["acme"], logs(home)
            assert len(asked_by_java(server)) == before, "Spark follows mirrors of the logs on this disk"
            with database.connect() as connection:
                assert connection.execute("SELECT rule, state FROM alerts").fetchall() == [("Waits", "firing")]
            assert not (home / "state" / "alerts.sqlite").exists()
            lake = Lake(home)
            wait_until(lambda: reader.query(DEPTH)["n"].to_pylist() == [left], "samples", every=0.5)
            told = heartbeats(home)
            assert None not in (told.events, told.samples, told.metrics)
            monkeypatch.setenv(LAKE_VARIABLE, str(home))
            monkeypatch.setenv(SETTINGS_VARIABLE, DashboardSettings().model_dump_json())
            wait_until(lambda: "ORDERS" in overview(), "the overview")
            subprocess.run(
                [sys.executable, "-m", "sojourn.cli.main", "maintain", "-c", str(config)], cwd=HOME, check=True
            )
            lake.compact("message_events")
        wait_until(lambda: Reader(home).query(BACKLOG)["n"].to_pylist() == [left], "the same afterwards")
        kinds = Counter(lake.read("message_events", columns=["event_type"])["event_type"].to_pylist())
        assert (kinds["enqueued"], kinds["completed"]) == (sum(SENT.values()), TAKEN), logs(home)
    with sojourn("connect", "--port", str(port), "-c", str(config)) as serving:
        until_told(serving, "Spark Connect at")
        client = Client(port)
        assert client.sql(BACKLOG) == [{"n": left}]
        assert client.sql("SELECT count(*) AS n FROM message_events WHERE event_type = 'enqueued'") == [{"n": 40}]
        client.close()
    assert not list(home.rglob("_delta_log")), "no table is on this disk"
