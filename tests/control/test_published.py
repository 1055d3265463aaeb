"""What an application counts of its own publishes slows a tenant down: recorder, receiver, lake and law, all real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import sojourn
from alerts.control import build
from alerts.control.settings import ControlSettings, PolicySettings
from lake.store import Lake
from lake.tables import PARTIALS, QUEUE_SAMPLES
from sojourn.client import sender
from tests.client.test_end_to_end import Receiver
from tests.collectors.rabbitmq.test_publishing_law import row
from tests.collectors.receive.support import BEGIN, add
from tests.control.conftest import World
from tests.control.test_real_lake import partial
from tests.support.finishing import FinishingReader

#: Of no broker that anybody samples: the application is the only one that tells.
BROKER = "pulsar"


class Place:
    """A queue with traffic, the law over it, and an application that publishes to it; a look is a second."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(now=datetime.now(UTC).replace(microsecond=900_000) - timedelta(minutes=5))
        self.lake = Lake(root)
        self.lake.create()
        self.receiver = Receiver(root, publishes=True)
        self.receiver.start()
        # What was counted is told with the application's clock: that of this world.
        clock = SimpleNamespace(**vars(sender.time))
        clock.time_ns = lambda: round(self.world.now.timestamp() * 1e9)
        monkeypatch.setattr(sender, "time", clock)
        self.recorder = sojourn.Recorder(self.receiver.url, broker=BROKER, flush_interval=0.02)
        policy = PolicySettings(
            name="publishers",
            law="publishing",
            mode="auto",
            cooldown_seconds=2,
            lease_seconds=20,
            options={"over_seconds": 3},
        )
        self.control = build(ControlSettings(policies=(policy,)), root, root / "state")
        self.reader = FinishingReader(root)
        self._trace = 0

    def looks(
        self, seconds: int, took: float | None, failed: int = 0, queue: str = "orders", *, spans: bool = False
    ) -> dict[str, float]:
        """The limits after so many seconds with thirty publishes each, ``failed`` of them in vain; None: none.

        The application counts them, or ``spans`` of OpenTelemetry tell of them.
        """
        for _ in range(seconds):
            self.world.advance(1)
            now = self.world.now
            if spans:
                self._sent_spans(queue, took or 0.0, failed)
            else:
                for number in range(0 if took is None else 30):
                    self.recorder.published(queue, seconds=took or 0.0, failed=number < failed)
                assert self.recorder.flush(60)
            traffic = [partial("t0", 0, 100, 100, "orders"), partial("t1", 0, 10, 10, "orders")]
            for one in traffic:
                second = datetime.fromtimestamp(int(now.timestamp()) - 1, UTC)
                one |= {"broker": BROKER, "bucket_start": second, "newest_occurred_at": now}
            self.lake.append("partials", pa.Table.from_pylist(traffic, schema=PARTIALS.schema))
            sample = row(BROKER, now, queue="orders", depth=10, in_flight=0)
            self.lake.append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
            alert = self.world.alert({"broker": BROKER, "queue": "orders", "tenant": "t0"})
            evaluation = self.world.evaluation(actions=("publishers",), alerts=(alert,))
            self.control.controller.step(now + timedelta(milliseconds=50), [evaluation], self.reader.query)
        return {limit.tenant: limit.rate for limit in self.control.board.snapshot.limits}

    def _sent_spans(self, queue: str, took: float, failed: int) -> None:
        request, ended = ExportTraceServiceRequest(), self.world.now.timestamp() * 1e3 - BEGIN / 1e6
        for number in range(30):
            where = {"messaging__system": BROKER, "messaging__destination__name": queue}
            error = "refused" if number < failed else None
            begun, self._trace = ended - took * 1e3, self._trace + 1
            add(request, "send", 1, trace=self._trace, at=begun, took=took * 1e3, error=error, **where)
        headers = {"content-type": "application/x-protobuf"}
        url, body = f"{self.receiver.url}/v1/traces", request.SerializeToString()
        assert httpx.post(url, content=body, headers=headers, timeout=60).status_code == 200

    def close(self) -> None:
        self.control.close()
        self.recorder.close()
        self.receiver.kill()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path, monkeypatch)
    yield place
    place.close()


def test_slow_or_failed_publishes_of_an_application_slow_a_tenant_and_quick_ones_let_it_go_on(place: Place) -> None:
    assert place.looks(5, 0.01) == {}, "the broker takes what is published"
    slowed = place.looks(5, 0.5)
    assert slowed.keys() == {"t0"} and 1 <= slowed["t0"] < 100, "half of the publishes took half a second"
    risen = place.looks(6, 0.01)["t0"]
    assert risen > slowed["t0"], "AIMD: up again, a little at a time"
    failing = place.looks(6, 0.01, failed=6)["t0"]
    assert failing < risen, "a fifth of them failed"
    rows = place.control.controller.recent(20)
    first = next(row for row in reversed(rows) if row.decision == "throttle")
    assert "half of the publishes took 497 ms" in first.reason and "priority P2" in first.reason
    assert first.inputs["publishes_probed"] == "False"
    assert any("20% failed: congested" in row.reason for row in rows)
    # The views are told nothing by it: what an application counts is no reading of the broker.
    health = place.reader.query("SELECT queue, depth FROM queue_health_now").to_pylist()
    assert health == [{"queue": "orders", "depth": 10}]


def test_send_spans_of_an_application_that_embeds_nothing_do_the_same(place: Place) -> None:
    place.recorder.published("elsewhere", seconds=0.0)
    assert place.recorder.flush(60), "the receiver listens"
    assert place.looks(4, 0.01, spans=True) == {}
    slowed = place.looks(5, 0.5, spans=True)
    assert slowed.keys() == {"t0"} and 1 <= slowed["t0"] < 100
    rows = place.control.controller.recent(20)
    first = next(row for row in reversed(rows) if row.decision == "throttle")
    assert "half of the publishes took" in first.reason and first.inputs["publishes_probed"] == "False"


@pytest.mark.deep
def test_publishes_to_another_queue_few_ones_or_none_change_nothing(place: Place) -> None:
    assert place.looks(6, 0.5, queue="elsewhere") == {}
    assert place.looks(3, 0.5).keys() == {"t0"}
    place.looks(40, None)
    assert place.control.board.snapshot.limits == (), "nobody told anything more: the lease ended"
    assert {row.decision for row in place.control.controller.recent(50)} >= {"throttle", "skip", "expire"}
