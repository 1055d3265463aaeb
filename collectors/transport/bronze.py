"""Bronze by way of Kafka: records go to topics, from which the analytics bring them into the lake."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaException

from brokers.errors import ConnectionLost
from collectors.kafka.connection import connection
from collectors.transport import LakeBehind
from collectors.transport.cluster import POSITIONS_CONFIG, Cluster, explained
from collectors.transport.encode import Encoder, topic
from collectors.transport.outlet import Outlet, source_of
from collectors.transport.settings import TransportSettings
from lake.store import Lake, conform, reached_by, sound
from lake.tables import TABLES

BRONZE_TABLES = tuple(name for name, spec in TABLES.items() if spec.layer == "bronze")

_LOOK_SECONDS = 0.1


class KafkaBronze:
    """Implements :class:`collectors.bronze.Bronze` over the topics ``<prefix>.<table>``; connects on first use.

    ConnectionLost where Kafka does not answer, CredentialsRefused where it does not let us in, UserError where another
    process took over what this one writes.
    """

    def __init__(self, settings: TransportSettings, lake: Lake) -> None:
        self._settings = settings
        self._lake = lake
        self._config = connection(settings.as_broker())
        self._encoder = Encoder()
        self._cluster: Cluster | None = None
        self._outlets: dict[str, Outlet] = {}

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Send ``rows`` in one transaction; see :meth:`lake.store.Lake.append`, UnwritableRows included."""
        reached = reached_by(app_id, version, positions)
        rows = sound(conform(rows, TABLES[name].schema))
        if rows.num_rows == 0 and not reached:
            return True
        with self._explaining():
            outlet = (
                self._outlet(source_of(next(iter(reached)))) if reached else self._outlet(rows["source"][0].as_py())
            )
            if reached and all(_at_least(outlet.reached(name, key), value) for key, value in reached.items()):
                return False
            outlet.send(topic(self._settings.prefix, name), self._encoder.records(name, rows), name, reached)
        return True

    def committed(self, name: str, app_id: str) -> int | None:
        """The last version that ``app_id`` sent to the topic of table ``name``."""
        with self._explaining():
            return self._outlet(source_of(app_id)).reached(name, app_id)

    def compact(self, name: str) -> None:
        """Nothing: the analytics, who write the lake, compact it."""

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """As :meth:`lake.store.Lake.scan`, all that was sent before this call included.

        Waits a little for the analytics, which bring them into the lake; LakeBehind where they need longer.
        """
        deadline = time.monotonic() + self._settings.catch_up_seconds
        with self._explaining():
            carrying = topic(self._settings.prefix, name)
            identity, partitions = self._reached_cluster().identity(carrying)
            ends = self._reached_cluster().ends(carrying, partitions)
            while missing := self._missing(name, carrying, identity, ends):
                if time.monotonic() > deadline:
                    raise LakeBehind(
                        f"records of {name} are still on their way from Kafka into the lake "
                        f"(partitions {', '.join(map(str, sorted(missing)))}): is `sojourn analyze` running?"
                    )
                ends = {partition: ends[partition] for partition in missing}
                time.sleep(_LOOK_SECONDS)
        return self._lake.scan(name, columns, since)

    def state_path(self, *parts: str) -> Path:
        """As the lake's: on the local disk."""
        return self._lake.state_path(*parts)

    def _missing(self, name: str, carrying: str, identity: str, ends: Mapping[int, int]) -> set[int]:
        """The partitions with records below ``ends`` that the lake does not hold."""
        landed = {one: self._lake.committed(name, landed_id(identity, one)) or 0 for one in ends}
        missing: set[int] = set()
        for record in self._reached_cluster().records(carrying, landed, ends):
            missing.add(record.partition())
            if len(missing) == len(ends):
                break
        return missing

    def _outlet(self, source: str) -> Outlet:
        if source not in self._outlets:
            settings = self._settings
            cluster = self._reached_cluster()
            self._outlets[source] = Outlet(source, settings.prefix, cluster, self._config, settings.timeout_seconds)
        return self._outlets[source]

    def _reached_cluster(self) -> Cluster:
        """The cluster, with all topics there."""
        if self._cluster is None:
            settings = self._settings
            cluster = Cluster(self._config, settings.timeout_seconds)
            positions = topic(settings.prefix, "positions")
            topics: dict[str, dict[str, str]] = {topic(settings.prefix, name): {} for name in BRONZE_TABLES}
            partitions = dict.fromkeys(topics, settings.partitions) | {positions: 1}
            cluster.ensure(topics | {positions: POSITIONS_CONFIG}, partitions, settings.replication or -1)
            self._cluster = cluster
        return self._cluster

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self._renew()
            raise explained(error, self._settings.bootstrap) from None
        except TimeoutError:  # of our own waiting, where the client's has not yet ended
            self._renew()
            raise ConnectionLost(f"Kafka at {self._settings.bootstrap}, the transport, does not answer") from None

    def _renew(self) -> None:
        if self._cluster is not None:
            self._cluster.renew()


def landed_id(topic_id: str, partition: int) -> str:
    """The application id under which a table of the lake notes the next offset of one partition to be landed."""
    return f"kafka:{topic_id}-{partition}"


def _at_least(done: int | None, wanted: int) -> bool:
    return done is not None and done >= wanted
