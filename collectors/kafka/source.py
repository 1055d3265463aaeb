"""Kafka as a source of samples: the cycle runs in a thread of its own, because its sockets block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from collectors.kafka.history import History, Judgement
from collectors.kafka.parse import samples
from collectors.kafka.reader import ClusterReader
from collectors.kafka.reading import Head
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.status import Progress
from collectors.kafka.wire.versions import Unspoken
from collectors.samples import Sample
from collectors.thread import Threads
from lake.errors import UserError
from lake.sasl import BY_PASSWORD

log = logging.getLogger(__name__)


class KafkaSource:
    """Reads one cluster's groups and topics. ``skewed`` is told how many records seem to come from the future."""

    def __init__(self, broker: KafkaBroker, skewed: Callable[[int], None] = lambda number: None) -> None:
        self._broker = broker
        self._skewed = skewed
        self.reader = ClusterReader(broker)
        if broker.mechanism not in BY_PASSWORD:
            self._by_vendor(f"our own requests do not speak {broker.mechanism}")
        self._history = History(broker.status)
        self._threads: Threads | None = None
        self._ahead: set[Head] = set()

    async def open(self) -> None:
        """Connect to the first broker that answers, and learn of the others."""
        await self.close()
        self._threads = Threads(f"kafka-sampler-{self._broker.name}")
        try:
            await self._threads.do(self.reader.open)
        except Unspoken as unspoken:
            self._by_vendor(str(unspoken))
            await self._threads.do(self.reader.open)

    def _by_vendor(self, why: str) -> None:
        """Go on by librdkafka, and say so."""
        try:
            from collectors.kafka.vendor import VendorReader
        except ModuleNotFoundError as error:
            raise UserError(f"the package {error.name!r} is missing", "pip install 'sojourn[collectors]'") from None
        log.warning("broker %r is sampled by librdkafka, some ten times slower: %s", self._broker.name, why)
        self.reader = VendorReader(self._broker)

    async def read(self) -> Sequence[Sample]:
        """Every topic and group once."""
        assert self._threads is not None, "it is not open"
        found, ahead = await self._threads.do(self._read)
        if new := len(ahead - self._ahead):  # a record that stays at a head is counted once
            self._skewed(new)
        self._ahead = ahead
        return found

    async def close(self) -> None:
        """Disconnect, after the cycle that is under way."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.do(self.reader.close)
            threads.close()

    def _read(self) -> tuple[list[Sample], set[Head]]:
        reading = self.reader.read()
        if self.reader.made_anew:
            self._history.forget()

        def judge(group: str, topic: str, progress: Mapping[int, Progress], alive: bool) -> Judgement:
            return self._history.judge(group, topic, progress, reading.tick, alive=alive)

        found = samples(reading, self._broker, judge)
        self._history.keep({(group.name, topic) for group in reading.groups for topic in group.committed})
        return found
