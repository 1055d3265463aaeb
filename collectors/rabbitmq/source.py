"""Reading one broker's queues each cycle: which API, how often the rare things, and the probe beside them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.rabbitmq import exposition, parse
from collectors.rabbitmq.client import Client
from collectors.rabbitmq.parse import Links, Reading
from collectors.rabbitmq.probe import Probe
from collectors.rabbitmq.rare import Listing, read_listing
from collectors.rabbitmq.settings import RabbitBroker
from collectors.records import now_us
from collectors.samples import Sample
from collectors.thread import Threads

log = logging.getLogger(__name__)

#: Seconds between two listings of the queues, and the least between two where queues came or went.
_LISTED_EVERY, _LISTED_AGAIN = 60.0, 10.0
#: The most of the time that listings take where queues come and go all the while.
_LISTING_SHARE = 0.05
#: Auto: readings in a row that must cost too much before metrics are read, and seconds until management is tried again.
_PATIENCE, _TRIED_AGAIN = 3, 600.0
#: The management plugin takes up the nodes' statistics each so many seconds (its shortest sample interval).
_MANAGEMENT_INTERVAL = 5.0


class RabbitSource:
    """Reads every queue in a thread of its own; ``interval`` is the cycle's, which the cost is compared with."""

    def __init__(self, broker: RabbitBroker, interval: float) -> None:
        self._broker = broker
        self._interval = interval
        self._client = Client(broker)
        self._exposition = exposition.Exposition()
        self._probe = Probe(broker) if broker.amqp_url is not None else None
        self._threads: Threads | None = None
        self._prometheus = broker.api == "prometheus"
        self._dear = 0
        self._tried_at = float("-inf")
        self._cluster: str | None = None
        self._listing: Listing | None = None
        self._unlisted = "the management API was not read yet"
        self._listed_at = float("-inf")
        self._listing_cost = 0.0

    @property
    def reads(self) -> str:
        """The API that the next cycle reads: ``management`` or ``prometheus``."""
        return "prometheus" if self._prometheus else "management"

    async def open(self) -> None:
        """See that the API to be read answers, and to us."""
        if self._threads is None:
            self._threads = Threads(f"rabbitmq-{self._broker.name}")
        await self._threads.do(self._open)
        if self._probe is not None:
            self._probe.start()

    async def read(self) -> Sequence[Sample]:
        """Every queue once, and what the probe found."""
        if self._threads is None:
            raise ConnectionLost(f"broker {self._broker.name!r} is not connected")
        found = await self._threads.do(self._read)
        found = [sample for sample in found if self._broker.chooses(sample.queue)]
        if self._probe is not None:
            found.append(self._probe.sample(now_us()))
        return found

    async def close(self) -> None:
        """Let go of the connections and of the probe."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.do(self._close)
            threads.close()

    def _close(self) -> None:
        if self._probe is not None:
            self._probe.stop()
        self._client.close()

    def _open(self) -> None:
        self._client.open()
        self._listed_at = float("-inf")
        self._dear, self._prometheus = 0, self._broker.api == "prometheus"
        if self._prometheus:
            self._client.metrics()
            return
        try:
            self._cluster = str(self._client.overview().get("cluster_name"))
        except ConnectionLost as error:
            if not self._turn_to_metrics(str(error)):
                raise

    def _read(self) -> list[Sample]:
        if not self._prometheus:
            try:
                return self._read_management(None)
            except ConnectionLost as error:
                if not self._turn_to_metrics(str(error)):
                    raise
        elif self._broker.api == "auto" and time.monotonic() - self._tried_at > _TRIED_AGAIN:
            try:
                return self._read_management(self._budget)
            except (ConnectionLost, CredentialsRefused):
                self._tried_at = time.monotonic()
        return self._read_metrics()

    def _read_management(self, timeout: float | None) -> list[Sample]:
        started = time.monotonic()
        rows = self._client.statistics(timeout)
        cost = time.monotonic() - started
        sampled_at = self._now()
        if self._prometheus:
            log.info("broker %s: reading the management API again", self._broker.name)
            self._prometheus = False
        self._list(lambda listing: not parse.covers(listing.types, listing.links, rows))
        self._dear = self._dear + 1 if cost > self._budget else 0
        if self._dear >= _PATIENCE:
            self._dear = 0
            self._turn_to_metrics(f"the management API takes {cost:.1f} s for {len(rows)} queues")
        staleness = self._broker.statistics_interval + _MANAGEMENT_INTERVAL
        return parse.samples(rows, Reading(sampled_at, staleness, self._links))

    def _read_metrics(self) -> list[Sample]:
        listed = () if self._listing is None else self._listing.types
        told = self._exposition.read(self._client.metrics(), listed).queues
        sampled_at = self._now()
        self._list(lambda listing: told.keys() != listing.types.keys())
        types = {} if self._listing is None else self._listing.types
        reading = Reading(sampled_at, self._broker.statistics_interval, self._links)
        return exposition.samples(told, types, reading, self._unlisted)

    def _list(self, outdated: Callable[[Listing], bool]) -> None:
        """Learn what queues there are and what links them, where that is due or the last listing is ``outdated``.

        Without it the numbers are read all the same.
        """
        started = time.monotonic()
        since = started - self._listed_at
        again = since > max(_LISTED_AGAIN, self._listing_cost / _LISTING_SHARE)
        if since < _LISTED_EVERY and not (again and self._listing is not None and outdated(self._listing)):
            return
        try:
            self._listing = read_listing(self._client)
            self._unlisted = "declared since the queues were last listed"
        except (ConnectionLost, CredentialsRefused) as error:
            # What was listed before stays: of a queue on a node that is lost it is all that is known.
            self._unlisted = f"the management API cannot be read: {error}"
        self._listed_at = time.monotonic()
        self._listing_cost = self._listed_at - started

    @property
    def _links(self) -> Links:
        return Links(no_prefetch=self._unlisted) if self._listing is None else self._listing.links

    @property
    def _budget(self) -> float:
        """Seconds that one reading of the management API may take."""
        return self._broker.management_share * self._interval

    def _turn_to_metrics(self, why: str) -> bool:
        """Read the Prometheus metrics from now on if that is allowed and they tell of every node's queues."""
        if self._broker.api != "auto":
            return False
        try:
            told = self._exposition.read(self._client.metrics())
        except (ConnectionLost, CredentialsRefused):
            return False
        # A guessed address, or one behind a tunnel, may be another broker's.
        ours = told.clusters == {self._cluster} if self._cluster is not None else bool(self._broker.metrics_urls)
        if not told.queues or not ours or (self._listing is not None and not self._listing.nodes <= told.nodes):
            return False
        log.info("broker %s: reading Prometheus metrics, as %s", self._broker.name, why)
        self._prometheus, self._tried_at = True, time.monotonic()
        return True

    def _now(self) -> int:
        return now_us() + round(self._client.clock_ahead * 1e6)
