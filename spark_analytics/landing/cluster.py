"""What must be known of the topics before Spark reads them, asked by Kafka's own Java client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 6


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that holds, or held, records: its identifier, another one when it is recreated, and its partitions."""

    name: str
    id: str
    partitions: tuple[int, ...]


class Cluster:
    """The Kafka cluster. Its methods raise py4j's errors."""

    def __init__(self, session: SparkSession, client: dict[str, str]) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        config = jvm.java.util.HashMap()
        for key, value in client.items():
            config.put(key, value)
        config.put("default.api.timeout.ms", str((TIMEOUT_SECONDS - 1) * 1000))
        config.put("request.timeout.ms", str(TIMEOUT_SECONDS * 500))
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(config)

    def topics(self, wanted: set[str]) -> list[Topic]:
        """Those of ``wanted`` that are there and to which anything was ever written."""
        there = set(self._got(self._admin.listTopics().names()))
        names = self._jvm.java.util.ArrayList()
        for name in sorted(wanted & there):
            names.add(name)
        if not names:
            return []
        described = self._got(self._admin.describeTopics(names).allTopicNames())
        found = []
        for name in sorted(described):
            about = described[name]
            partitions = tuple(sorted(int(one.partition()) for one in about.partitions()))
            if self._used(name, partitions):
                found.append(Topic(name, str(about.topicId().toString()), partitions))
        return found

    def close(self) -> None:
        """Let go of the connections."""
        self._admin.close()

    def _used(self, name: str, partitions: tuple[int, ...]) -> bool:
        wanted = self._jvm.java.util.HashMap()
        latest = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        for partition in partitions:
            wanted.put(self._jvm.org.apache.kafka.common.TopicPartition(name, partition), latest)
        ends = self._got(self._admin.listOffsets(wanted).all())
        return any(end.offset() > 0 for end in ends.values())

    def _got(self, future: Any) -> Any:
        return future.get(TIMEOUT_SECONDS, self._seconds)
