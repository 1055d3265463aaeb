"""The law of publishing on a real node: a node that blocks its publishers slows a tenant down, by way of the probe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.control import build
from alerts.control.settings import ControlSettings, PolicySettings
from collectors.rabbitmq.names import OURS
from collectors.rabbitmq.probe import Probe
from collectors.samples import Sample
from lake.store import Lake
from lake.tables import PARTIALS, QUEUE_SAMPLES
from tests.collectors.rabbitmq.conftest import Make
from tests.control.conftest import World
from tests.control.test_real_lake import partial
from tests.support.finishing import FinishingReader
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until


def row(broker: str, at: datetime, **told: Any) -> dict[str, Any]:
    common = {"source": "sampler", "ingested_at": at, "ingest_date": at.date(), "staleness_seconds": 0.0}
    return common | {"broker": broker, "sampled_at": at} | told


def test_a_node_that_blocks_publishers_slows_a_tenant_and_lets_it_go_on_afterwards(
    rabbit: RabbitServer, broker: Make, tmp_path: Path
) -> None:
    policy = PolicySettings(
        name="publishers", law="publishing", priority="P2", mode="auto", cooldown_seconds=2, options={"over_seconds": 3}
    )
    control = build(ControlSettings(policies=(policy,)), tmp_path, tmp_path / "state")
    world, lake = World(now=datetime.now(UTC).replace(microsecond=900_000)), Lake(tmp_path)
    lake.create()
    reader = FinishingReader(tmp_path)
    probe = Probe(broker(amqp_url=rabbit.amqp_url, probe={"interval": 0.05, "timeout": 1}))

    def told(state: str) -> Sample:
        def found() -> Sample | None:
            sample = probe.sample(0)
            known = sample.publish_latency_seconds is not None or state != "running"
            return sample if sample.state == state and known else None

        return wait_until(found, "the probe to tell")

    def looks(state: str, seconds: int) -> dict[str, float]:
        """So many seconds in which the queue has its traffic, and the node tells the probe what it tells."""
        for _ in range(seconds):
            world.advance(1)
            sample, at = told(state), world.now
            unix = int(at.timestamp())
            traffic = [partial("t0", 0, 100, 100, "orders"), partial("t1", 0, 10, 10, "orders")]
            for one in traffic:
                one |= {"broker": "mq", "bucket_start": datetime.fromtimestamp(unix - 1, UTC), "newest_occurred_at": at}
            lake.append("partials", pa.Table.from_pylist(traffic, schema=PARTIALS.schema))
            latency = sample.publish_latency_seconds
            samples = [
                row("mq", at, queue="orders", depth=10, in_flight=0),
                row("mq", at, queue=OURS, state=sample.state, publish_latency_seconds=latency),
            ]
            lake.append("queue_samples", pa.Table.from_pylist(samples, schema=QUEUE_SAMPLES.schema))
            alert = world.alert({"broker": "mq", "queue": "orders", "tenant": "t0"})
            evaluation = world.evaluation(actions=("publishers",), alerts=(alert,))
            control.controller.step(world.now + timedelta(milliseconds=50), [evaluation], reader.query)
        return {limit.tenant: limit.rate for limit in control.board.snapshot.limits}

    probe.start()
    try:
        assert looks("running", 5) == {}, "the node takes what is published"
        rabbit.ctl("set_vm_memory_high_watermark", "absolute", "1000")
        slowed = looks("blocked", 5)
        assert slowed.keys() == {"t0"} and 1 <= slowed["t0"] < 100
        rabbit.ctl("set_vm_memory_high_watermark", "0.4")
        assert looks("running", 8)["t0"] > slowed["t0"]
        rows = control.controller.recent(20)
        assert {row.decision for row in rows} >= {"throttle", "relax"}
        first = next(row for row in reversed(rows) if row.decision == "throttle")
        assert "failed: congested" in first.reason and "priority P2" in first.reason
        assert first.inputs["publish_errors"] != "0"
    finally:
        rabbit.ctl("set_vm_memory_high_watermark", "0.4")
        probe.stop()
        control.close()
