"""Real answers of a real broker, kept as bytes with the requests that brought them; recorded once, replayed in tests.

``python -m tests.collectors.kafka.recording`` records them anew (and then the expected samples are to be reasoned out
anew, by hand): see ``prepare_recording`` for what is in the broker.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from brokers.kafka.link import Link
from brokers.kafka.wire.cluster import metadata_request, read_metadata
from brokers.kafka.wire.codec import Reader, Request
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.reader import ClusterReader
from collectors.kafka.settings import KafkaBroker
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

FILE = Path(__file__).parent / "recorded" / "cycle.json"
#: Milliseconds since 1970 of the first record of each partition; each further one is a second younger.
BASE = 1_700_000_000_000


def recorded_settings(bootstrap: str = "127.0.0.1:9092") -> KafkaBroker:
    """As the recording was made."""
    return KafkaBroker.model_validate({"bootstrap": bootstrap, "read_committed": ["strict"]})


class Recorded(Cluster):
    """A cluster that answers what was recorded; a request that was not recorded is a failure of the test."""

    def __init__(self, exchanges: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(recorded_settings())
        self._answers = {(one["api"], one["version"], one["body"]): one["answer"] for one in exchanges}

    def _answer(self, request: Request) -> Reader:
        return Reader(bytes.fromhex(self._answers[request.api, request.version, request.body.hex()]))

    def refresh(self) -> None:
        self.metadata = read_metadata(self._answer(metadata_request()))

    def newest(self, node: int, api: int) -> int:
        return 5

    def do(self, jobs: Mapping[int, Sequence[Job]]) -> dict[int, str]:
        for queue in jobs.values():
            for job in queue:
                job.take(self._answer(job.request))
        return {}


def exchanges() -> list[dict[str, Any]]:
    """What was recorded."""
    return list(json.loads(FILE.read_text()))


def prepare_recording(server: KafkaServer) -> Consumer:
    """What the recorded broker holds; the consumer is a member of the group ``workers``."""
    for_ever = {"retention.ms": "-1"}
    server.make_topics("orders", partitions=2, config=for_ever)
    server.make_topics("ledger", "unread", "jobs", config=for_ever)
    for partition, number in ((0, 6), (1, 4)):
        for index in range(number):
            server.produce("orders", 1, partition=partition, timestamp=BASE + 1000 * index)
    server.produce("unread", 2, timestamp=BASE)
    server.produce("jobs", 3, timestamp=BASE)
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t", "compression.type": "lz4"})
    producer.init_transactions(20)
    for first, number in ((0, 3), (10, 5)):
        producer.begin_transaction()
        for index in range(number):
            producer.produce("ledger", b"x" * 100, partition=0, timestamp=BASE + 1000 * (first + index))
        if first:
            producer.flush(20)
        else:
            producer.commit_transaction(20)
    server.commit("billing", "orders", {0: 2, 1: 4})
    server.commit("partly", "orders", {0: 6})
    server.commit("strict", "ledger", {0: 1})
    server.commit("loose", "ledger", {0: 5})
    server.commit("workers", "jobs", {0: 3})
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "workers", "enable.auto.commit": False})
    consumer.subscribe(["jobs"])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "the member to be assigned")
    return consumer


def record() -> None:
    """Write what the broker answered to one cycle."""
    found: list[dict[str, Any]] = []
    receive, send = Link.receive, Link.send

    def noting_send(link: Link, request: Request) -> None:
        send(link, request)
        link.__dict__.setdefault("noted", []).append(request)

    def noting_receive(link: Link) -> Reader:
        answer, request = receive(link), link.__dict__["noted"].pop(0)
        body = answer.data[answer.at :]
        one = {"api": request.api, "version": request.version, "body": request.body.hex(), "answer": body.hex()}
        if one not in found:
            found.append(one)
        return answer

    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder) / "kafka")
        server.start()
        try:
            consumer = prepare_recording(server)
            Link.send, Link.receive = noting_send, noting_receive  # type: ignore[method-assign]
            reader = ClusterReader(recorded_settings(server.bootstrap))
            reader.open()
            reader.read()
            reader.close()
            consumer.close()
        finally:
            Link.send, Link.receive = send, receive  # type: ignore[method-assign]
            server.stop()
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
