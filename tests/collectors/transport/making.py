"""Transports, rows and topics for the tests of the transport."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from collectors.transport.bronze import KafkaBronze
from collectors.transport.cluster import Cluster
from collectors.transport.settings import TransportSettings
from lake.store import Lake
from tests.support.kafka import KafkaServer


def settings(server: KafkaServer, **changes: Any) -> TransportSettings:
    """A transport with topics of its own."""
    chosen = {"kind": "kafka", "bootstrap": server.bootstrap, "prefix": f"t{uuid.uuid4().hex[:8]}", "partitions": 2}
    return TransportSettings.model_validate(chosen | changes)


def bronze(chosen: TransportSettings, lake: Lake) -> KafkaBronze:
    """Bronze as a process that has just started sees it."""
    return KafkaBronze(chosen, lake)


def sent(chosen: TransportSettings, name: str) -> list[dict[str, Any]]:
    """What any other program reads: the committed records of the topic of table ``name``."""
    config = {"bootstrap.servers": chosen.bootstrap, "group.id": "other", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(config | {"enable.auto.commit": False, "isolation.level": "read_committed"})
    try:
        places = range(chosen.partitions)
        consumer.assign([TopicPartition(f"{chosen.prefix}.{name}", one, OFFSET_BEGINNING) for one in places])
        left, found = set(places), []
        while left:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append(json.loads(message.value() or b"null"))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(message.partition() or 0)
        return found
    finally:
        consumer.close()


def decided(chosen: TransportSettings, name: str) -> bool:
    """Whether Kafka has written to the topic of table ``name``, and to the positions, how each transaction ended.

    It answers a commit before that. Kafka 4.3 forgets to write it after a crash in between, where all brokers that
    hold the topic were gone (KAFKA-20734): then its readers wait for ever, and what they wait for nobody can tell.
    """
    cluster = Cluster({"bootstrap.servers": chosen.bootstrap}, 5)
    places = {f"{chosen.prefix}.{name}": list(range(chosen.partitions)), f"{chosen.prefix}.positions": [0]}
    return all(cluster.ends(*place, committed=True) == cluster.ends(*place) for place in places.items())
