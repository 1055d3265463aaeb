"""A policy bounds what one tenant's consumer has in hand, on a real server: what waits for that is said to be ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lake.errors import SojournError
from lake.reader import Reader
from lake.why import Cause, Rise, tell
from tests.collectors.support import api, connect, make_consumer, make_stream
from tests.s3.test_up import logs, sojourn, until_told
from tests.support.nats import NatsServer
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.deep]

STREAM, HELD, TENANTS = "ORDERS", "acme", ("acme", "bolt", "cobalt")
#: Of each tenant: messages a second, workers, what the broker lets them have in hand; seconds for a message.
RATE, WORKERS, IN_HAND, SERVICE = 20, 4, 8, 0.1
SETTINGS = """
[lake]
root = "{lake}"
[definitions]
window_seconds = 10
target_seconds = 5

[collect]
sample_interval = 0.5
[[collect.brokers]]
name = "mq"
url = "{url}"
streams = ["{stream}"]

[analyze]
quick_start = true
driver_memory = "512m"

[alert]
port = {port}
rules = ["{rules}"]
builtin = false
[[alert.control.actuators]]
kind = "nats_max_ack_pending"
name = "slow"
url = "{url}"
consumer = "of-{{tenant}}"
service_seconds = 1.0 # not asked for: the law says how many in hand
[[alert.control.policies]]
name = "slow-down"
law = "concurrency"
options = {{ service_seconds = {too_little}, headroom = 1 }}
actuator = "slow"
mode = "auto"
floor = 1
max_step = 1
cooldown_seconds = 1
"""
RULES = """
groups:
  - name: ours
    rules:
      - alert: Slow
        for: 12s
        expr: SELECT broker, queue, tenant, backlog AS value FROM tenant_backlog_now WHERE tenant = '{held}'
        actions: [slow-down]
"""
#: Seconds by which a wait has risen that are no chance, and beside which it matters little that a wait is told as the
#: mean of the last ten seconds: while it rises, parts that are told of the newest moment are ahead of it.
ENOUGH = 16.0


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Each tenant's producer, and its workers behind a consumer of its own, until the end."""
    over = threading.Event()

    async def produce(stream: Any) -> None:
        while not over.is_set():
            for tenant in TENANTS:
                await stream.publish(f"orders.{tenant}", b"x", headers={"Tenant": tenant})
            await asyncio.sleep(1 / RATE)

    async def work(stream: Any, tenant: str) -> None:
        pull = await stream.pull_subscribe_bind(f"of-{tenant}", STREAM)
        while not over.is_set():
            try:
                [message] = await pull.fetch(1, timeout=0.5)
            except TimeoutError:
                continue
            await asyncio.sleep(SERVICE)
            await message.ack()

    async def run() -> None:
        connection = await connect(url)
        stream = connection.jetstream()
        await asyncio.gather(produce(stream), *(work(stream, tenant) for tenant in TENANTS for _ in range(WORKERS)))
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


async def prepare(url: str) -> None:
    connection = await connect(url)
    await make_stream(connection, STREAM)
    for tenant in TENANTS:
        name, subject = f"of-{tenant}", f"orders.{tenant}"
        await make_consumer(connection, STREAM, name, filter_subject=subject, max_ack_pending=IN_HAND)
    await connection.close()


async def bound(url: str) -> int:
    """What the server lets the held tenant's consumer have in hand."""
    connection = await connect(url)
    told = await api(connection, f"CONSUMER.INFO.{STREAM}.of-{HELD}")
    await connection.close()
    return int(told["config"]["max_ack_pending"])


def test_what_waits_for_a_bound_that_a_policy_set_is_said_to_be_ours_until_it_is_revoked(tmp_path: Path) -> None:
    lake, config, rules = tmp_path / "lake", tmp_path / "sojourn.toml", tmp_path / "rules.yml"
    rules.write_text(RULES.format(held=HELD))
    (port,), reader = free_ports(1), Reader(lake)

    def said(*words: str) -> str:
        command = [sys.executable, "-m", "sojourn.cli.main", *words, "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rise(tenant: str = HELD) -> Rise | None:
        try:
            told = tell(lambda sql: reader.query(sql).to_pylist(), "mq", STREAM, f"of-{tenant}")
        except SojournError:  # nothing is finished yet
            return None
        return None if told is None else told.rise

    def parts(found: Rise | None) -> dict[Cause, float]:
        return {} if found is None else {part.cause: part.seconds for part in found.parts}

    with NatsServer(tmp_path / "nats") as broker:
        asyncio.run(prepare(broker.url))
        text = SETTINGS.format(
            lake=lake, url=broker.url, stream=STREAM, port=port, rules=rules, too_little=SERVICE / 10
        )
        config.write_text(text)
        with traffic(broker.url), sojourn("up", "-c", str(config), "--without", "dashboard") as up:
            until_told(up, "running: collect, analyze, alert")
            wait_until(
                lambda: (now := rise()) is not None and now.seconds > ENOUGH < parts(now).get(Cause.THROTTLED, 0.0),
                "it to be ours",
                seconds=180,
                every=2,
            )
            assert asyncio.run(bound(broker.url)) == 1

            told = json.loads(said("why", f"mq/{STREAM}/of-{HELD}", "--json"))
            found = {part["cause"]: part["seconds"] for part in told["rise"]["parts"]}
            rose = told["rise"]["rise_seconds"]
            assert sum(found.values()) == pytest.approx(rose)
            # It sends what it always did, well within its workers: but for the bound it would not wait.
            assert max(found, key=lambda cause: found[cause]) == "throttled by us", found
            assert found["throttled by us"] == pytest.approx(rose, rel=0.5), found
            (limit,) = told["limits"]
            assert (limit["tenant"], limit["actuator"], limit["waits_in_queue"]) == (HELD, "slow", True)
            others = json.loads(said("why", f"mq/{STREAM}/of-bolt", "--json"))
            assert others["limits"] == [], "they read nothing of whom is held"

            (row,) = reader.query("SELECT action_id FROM limits").to_pylist()
            said("actions", "revoke", row["action_id"])
            wait_until(lambda: asyncio.run(bound(broker.url)) == IN_HAND, "the bound that was there")
            wait_until(
                lambda: (now := rise()) is not None and parts(now).get(Cause.THROTTLED, 0.0) < ENOUGH / 100,
                "nothing to wait for us",
                seconds=120,
                every=2,
            )
            assert json.loads(said("why", f"mq/{STREAM}/of-{HELD}", "--json"))["rise"]["wait_seconds"] < rose, logs(
                lake
            )
