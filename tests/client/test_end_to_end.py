"""From a call in the application to a row of the lake, through the real receiver, with either of them killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sojourn
from collectors.settings import CollectSettings
from lake.store import Lake
from lake.tables import EVENT_TYPES
from sojourn.client import sender as sending
from tests.collectors.support import start
from tests.support.deep import examples
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE, wait_until

#: Says after each flush how many events were accepted, and goes on until it is killed.
APPLICATION = """
import sys
import sojourn
recorder = sojourn.Recorder(sys.argv[1], broker="redis", flush_interval=0.05)
number = 0
while True:
    for _ in range(200):
        recorder.enqueued("killed", f"m{number}", tenant="acme")
        number += 1
    if number % 1000 == 0 and recorder.flush(30):
        print(number, flush=True)
"""


class Receiver:
    """The collectors with nothing but the receiver, as a process."""

    def __init__(self, root: Path, **receive: Any) -> None:
        self.root = root
        (self.port,) = free_ports(1)
        receive = {"enabled": True, "http_port": self.port, "grpc_port": 0} | receive
        self._settings = CollectSettings.model_validate({"receive": receive, "flush_interval": 0.05})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = start(self._settings, self.root)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def rows(self, table: str, queue: str) -> list[dict[str, Any]]:
        """The rows of a table that are about ``queue``."""
        return [row for row in Lake(self.root).read(table).to_pylist() if row["queue"] == queue]

    def counts(self, queue: str) -> Counter[str]:
        """Events of each type, single or summarised."""
        counts = Counter(event["event_type"] for event in self.rows("message_events", queue))
        for row in self.rows("event_summaries", queue):
            for kind in EVENT_TYPES:
                counts[kind] += row[kind]
        return +counts


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MAX_BACKOFF", 0.3)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One for all tests, which name queues of their own; a test that kills it starts it again."""
    receiver = Receiver(tmp_path_factory.mktemp("receiver") / "lake")
    receiver.start()
    yield receiver
    receiver.kill()


@pytest.mark.parametrize(("capacity", "kills"), [(256, 1), (100_000, 2)][: examples(1, 2)])
def test_killing_the_receiver_at_any_instant_loses_and_doubles_nothing(
    receiver: Receiver, capacity: int, kills: int
) -> None:
    chance, queue = random.Random(capacity), f"orders-{capacity}"
    recorder = sojourn.Recorder(receiver.url, broker="redis", flush_interval=0.02, capacity=capacity)
    told: Counter[str] = Counter()

    def work(seconds: float) -> None:
        until = time.monotonic() + PATIENCE * seconds
        while time.monotonic() < until:
            number = told["enqueued"]
            recorder.enqueued(queue, f"m{number}", tenant=f"t{number % 5}")
            recorder.received(queue, f"m{number}", tenant=f"t{number % 5}", attempt=1, enqueued_at=time.time())
            told.update(("enqueued", "received"))
            if number % 20 == 0:
                recorder.failed(queue, f"m{number}", tenant=f"t{number % 5}", attempt=1)
                told["failed"] += 1
            if number % 50 == 0:
                time.sleep(0.005)

    work(0.1)
    assert recorder.flush(60)
    for _ in range(kills):
        work(chance.uniform(0.1, 0.4))
        receiver.kill()
        work(0.2)
        receiver.start()
        accepted = recorder.stats().batches
        wait_until(lambda: recorder.stats().batches > accepted, "an accepted batch", seconds=60)  # noqa: B023
    assert recorder.close(60)
    assert receiver.counts(queue) == told
    events = receiver.rows("message_events", queue)
    assert len({event["event_id"] for event in events}) == len(events)
    stats = recorder.stats()
    assert stats.recorded == told.total() == stats.sent + stats.summarised
    assert stats.refused == stats.dropped == 0
    assert (stats.summarised > 0) == (capacity == 256)
    if capacity == 256:
        assert stats.conflated_marks or sum(event["event_type"] == "failed" for event in events) == told["failed"]


def test_killing_the_application_loses_only_what_was_not_accepted_yet(receiver: Receiver) -> None:
    command = [sys.executable, "-c", APPLICATION, receiver.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as application:
        assert application.stdout is not None
        accepted = [int(application.stdout.readline()) for _ in range(3)][-1]
        application.kill()
        accepted = max([accepted, *(int(line) for line in application.stdout if line.endswith("\n"))])
    ids = Counter(event["message_id"] for event in receiver.rows("message_events", "killed"))
    assert set(ids.values()) == {1}
    assert {f"m{number}" for number in range(accepted)} <= set(ids)


def test_what_an_application_tells_is_what_the_lake_holds(receiver: Receiver) -> None:
    with sojourn.Recorder(receiver.url, broker="redis", worker="w1", flush_interval=0.02) as recorder:
        with recorder.attempt("told", "m1", subscriber="s", tenant="acme", attempt=2, enqueued_at=1.7e9, priority=4):
            pass
        with recorder.poll("told", subscriber="s") as poll:
            poll.messages = 0
        assert recorder.flush(60)
    received, completed = sorted(
        receiver.rows("message_events", "told"), key=lambda event: EVENT_TYPES.index(event["event_type"])
    )
    for event in (received, completed):
        assert {name: event[name] for name in ("broker", "queue", "subscriber", "tenant", "message_id", "worker")} == {
            "broker": "redis",
            "queue": "told",
            "subscriber": "s",
            "tenant": "acme",
            "message_id": "m1",
            "worker": "w1",
        }
        assert (event["attempt"], event["priority"], event["enqueued_at"].timestamp()) == (2, 4, 1.7e9)
    assert completed["processing_seconds"] >= 0
    samples = receiver.rows("queue_samples", "told")
    assert samples[-1]["polls_total"] == samples[-1]["empty_polls_total"] == 1


def test_exported_as_spans_it_is_the_same(receiver: Receiver) -> None:
    enqueued_at = time.time() - 5
    with sojourn.Recorder(receiver.url, broker="sqs", worker="w1", flush_interval=0.02, export="otlp") as recorder:
        recorder.enqueued("spans", "m1", tenant="acme", enqueued_at=enqueued_at, priority=2)
        with recorder.attempt("spans", "m1", tenant="acme", attempt=1, enqueued_at=enqueued_at):
            time.sleep(0.05)
        with pytest.raises(KeyError), recorder.attempt("spans", "m1", tenant="acme", attempt=2):
            raise KeyError("x")
        recorder.dead_lettered("spans", "m1", tenant="acme", attempt=2, reason="enough")
        assert recorder.flush(60)
    assert recorder.stats().recorded == recorder.stats().sent == 6
    found = sorted(
        receiver.rows("message_events", "spans"),
        key=lambda event: (event["occurred_at"], EVENT_TYPES.index(event["event_type"])),
    )
    assert [(event["event_type"], event["attempt"]) for event in found] == [
        ("enqueued", None),
        ("received", 1),
        ("completed", 1),
        ("received", 2),
        ("failed", 2),
        ("dead_lettered", 2),
    ]
    for event in found:
        assert (event["broker"], event["queue"], event["message_id"]) == ("sqs", "spans", "m1")
        assert (event["tenant"], event["worker"]) == ("acme", "w1")
    assert found[1]["enqueued_at"].timestamp() == pytest.approx(enqueued_at, abs=1e-5)
    assert 0.05 <= found[2]["processing_seconds"] < 5
    assert found[4]["reason"] == "KeyError"
