"""The way of one source into Kafka: transactions that hold its records and, with them, how far it has come.

Positions stand in a compacted topic, ``<prefix>.positions``: unlike a consumer group's offsets they do not expire when
a source has been silent for a week. Key ``[table, application]``, value the version reached.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from collectors.transport.cluster import Cluster
from lake.errors import UserError

# What goes wrong is raised; librdkafka's own lines about it help nobody.
_unheard = logging.getLogger(f"{__name__}.librdkafka")
_unheard.addHandler(logging.NullHandler())
_unheard.propagate = False

#: A transaction that is not ended within this time is aborted by Kafka: it then holds no reader back.
TRANSACTION_SECONDS = 60
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_OWNER = ""  # stands for a table: who writes for the source

Position = tuple[str, str]


class Outlet:
    """Writes for one source. Whoever opens an outlet of the same source later, anywhere, puts this one out of work.

    After any failure the producer is given up: the next use makes another, which first lets Kafka end, one way or the
    other, what the earlier one had begun, and then reads what was reached. So no batch is lost or doubled.
    """

    def __init__(self, source: str, prefix: str, cluster: Cluster, config: Mapping[str, Any], timeout: float) -> None:
        self._source = source
        self._cluster = cluster
        self._positions = f"{prefix}.positions"
        self._timeout = timeout
        self._config = dict(config) | {
            "transactional.id": f"{prefix}.{source}",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            "compression.type": "zstd",
            "linger.ms": 5,
            # Of one record before it is packed: a summary may hold 100,000 cells. Brokers judge what is packed.
            "message.max.bytes": 16 << 20,
            "partitioner": "murmur2_random",  # Java's: other programs find the same partition for a key
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 128 << 10,
        }
        self._producer: Producer | None = None
        self._reached: dict[Position, int] = {}
        self._claim: str | None = None

    def reached(self, table: str, app_id: str) -> int | None:
        """The version that ``app_id`` last wrote to ``table``."""
        self._open()
        return self._reached.get((table, app_id))

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]], table: str, reached: Mapping[str, int]) -> None:
        """Write ``records`` and what was ``reached`` (application → version): all of it, or – KafkaException – none.

        An exception may also come after all was written: look at :meth:`reached` before sending again.
        """
        producer = self._open()
        try:
            producer.begin_transaction()
            for key, value in records:
                self._produce(producer, topic, key, value)
            for app_id, version in reached.items():
                self._produce(producer, self._positions, _key(table, app_id), str(version).encode())
            producer.commit_transaction(self._timeout)
        except BaseException:
            self._give_up()
            raise
        self._reached |= {(table, app_id): version for app_id, version in reached.items()}

    def _open(self) -> Producer:
        if self._producer is not None:
            return self._producer
        if self._claim is not None:
            self._still_ours(self._read())
        producer = Producer(self._config, logger=_unheard)
        producer.init_transactions(self._timeout)  # whoever wrote before us is done now, or cut off
        found = self._read()
        if self._claim is not None:
            self._still_ours(found)
        claim = self._claim or uuid.uuid4().hex
        producer.begin_transaction()
        self._produce(producer, self._positions, _key(_OWNER, self._source), claim.encode())
        producer.commit_transaction(self._timeout)
        self._producer, self._claim = producer, claim
        self._reached = {key: int(value) for key, value in found.items() if key[0] != _OWNER}
        return producer

    def _still_ours(self, found: Mapping[Position, str]) -> None:
        """Being cut off may also mean that a transaction of ours took too long; then we go on."""
        if found.get((_OWNER, self._source)) != self._claim:
            raise UserError(
                f"another process writes to Kafka as {self._source!r}", "stop it, or give this broker another name"
            )

    def _read(self) -> dict[Position, str]:
        ends = self._cluster.ends(self._positions, [0])
        found: dict[Position, str] = {}
        for record in self._cluster.records(self._positions, {}, ends):
            table, app_id = json.loads(record.key())
            found[table, app_id] = (record.value() or b"0").decode()
        return found

    def _produce(self, producer: Producer, topic: str, key: bytes, value: bytes) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                producer.produce(topic, value, key)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "no record leaves")) from None
                producer.poll(0.05)

    def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()


def _key(table: str, app_id: str) -> bytes:
    return json.dumps([table, app_id]).encode()
