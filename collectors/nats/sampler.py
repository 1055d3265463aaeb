"""The sampler: what the broker says of its own queues, one row for each queue and subscriber.

Everything is asked for in pipelined requests of JetStream's API, some streams at a time, so that 10,000 consumers take
neither 10,000 round trips nor the memory of 10,000 answers. The monitoring endpoint tells the same in one answer of
26 MB: twice as fast to get, but 150 MB when parsed, and without the account's permissions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from brokers.nats.client import NO_STREAM, ApiError, Client
from collectors.broker import matching
from collectors.nats.attach import INNER
from collectors.nats.exchange import NO_LEADER, Exchange
from collectors.nats.oldest_unacked import OldestUnacked, request
from collectors.nats.samples import samples, subject_samples
from collectors.nats.settings import NatsBroker, StreamSettings
from collectors.records import now_us
from collectors.remembered import Remembered
from collectors.samples import Sample

#: Streams read together, as many as the server lists in one page: bounds what is held of answers at once.
_TOGETHER = 256
_AWAY = "the nodes of the cluster that keep some of the stream's consumers do not answer"

Infos = dict[str, dict[str, Any]]


class NatsSource:
    """Reads one broker's streams, or all of them. ``named``: streams whose only consumer is called by its name."""

    def __init__(self, broker: NatsBroker, named: set[str] | None = None) -> None:
        self._broker = broker
        self._client = Client(broker, "sampler")
        self._exchange = Exchange(self._client)
        self._oldest_unacked = OldestUnacked()
        self._settings = {stream.name: stream for stream in broker.streams}
        self._named = set() if named is None else named
        self._tap = broker.tap.stream
        self._seen: dict[str, None] = {}  # streams of the cycle before, where none are listed
        self._remembered = Remembered()

    async def open(self) -> None:
        """Connect, and see that there is a JetStream."""
        await self._client.open()
        await self._client.api("INFO")
        await self._exchange.open()

    async def read(self) -> list[Sample]:
        """Every queue once."""
        self._oldest_unacked.begin()
        found: list[Sample] = []
        if self._broker.streams:
            for names in _portions([stream.name for stream in self._broker.streams]):
                found += await self._listed(names)
            return found
        before, self._seen = self._seen, {}
        offset, total = 0, 1
        while offset < total:
            (page,) = await self._exchange.ask([("STREAM.LIST", {"offset": offset})])
            if isinstance(page, ApiError):
                raise page  # half a list would make queues disappear
            streams, away = page.get("streams") or (), page.get("missing") or ()
            told = len(streams) + len(away)
            offset, total = offset + told, page["total"] if told else 0
            ours = {_name(stream): stream for stream in streams if self._is_new(_name(stream))}
            lost = [name for name in away if self._is_new(name) and name not in ours]
            self._seen |= dict.fromkeys((*ours, *lost))
            found += await self._read(list(ours.values()))
            for name in lost:
                found += self._unread(name, NO_LEADER)
        # A stream that is deleted meanwhile moves others from one page to the one before, which was read already.
        for names in _portions([name for name in before if name not in self._seen]):
            found += await self._listed(names)
        self._remembered.keep(self._seen.keys())
        return found

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    def _is_new(self, name: str) -> bool:
        """Whether a stream is an application's, and was not read in this cycle."""
        return name not in self._seen and name != self._tap and not name.startswith(INNER)

    def _unread(self, name: str, reason: str) -> list[Sample]:
        self._seen[name] = None  # it is there
        return self._remembered.unread(name, self._of(name).queue_name, now_us(), reason)

    async def _listed(self, names: Sequence[str]) -> list[Sample]:
        """Streams of the settings; of one that is not there nothing is known."""
        filters = [self._of(name).subjects for name in names]
        bodies = [None if pattern is None else {"subjects_filter": pattern} for pattern in filters]
        asked = [(f"STREAM.INFO.{name}", body) for name, body in zip(names, bodies, strict=True)]
        streams: list[dict[str, Any]] = []
        troubles: list[Sample] = []
        for name, answer in zip(names, await self._exchange.ask(asked, led=True), strict=True):
            if isinstance(answer, dict):
                streams.append(answer)
            elif answer.code != NO_STREAM:
                troubles += self._unread(name, answer.description)
            else:
                self._remembered.told(name, ())
        return await self._read(streams) + troubles

    async def _read(self, streams: Sequence[dict[str, Any]]) -> list[Sample]:
        """Everything about ``streams``, which are there."""
        consumers, away, troubles = await self._consumers(streams)
        pairs = [(stream, info) for stream in streams for info in consumers.get(_name(stream), {}).values()]
        places = self._oldest_unacked.unknown(pairs)
        self._oldest_unacked.learn(places, await self._exchange.ask([request(place) for place in places], led=True))
        found: list[Sample] = []
        for stream in streams:
            name = _name(stream)
            if name in consumers and name not in troubles:
                try:
                    told = self._told(stream, consumers[name], away.get(name, ()))
                    self._remembered.told(name, told)
                    found += told
                except (KeyError, TypeError, ValueError) as error:
                    troubles[name] = f"the broker's answer cannot be read: {error}"
            if name in troubles:
                found += self._unread(name, troubles[name])
        return found

    def _told(self, stream: dict[str, Any], consumers: Infos, away: Collection[str]) -> list[Sample]:
        """The rows of a stream; ``away``: consumers that are there, and whose nodes do not answer."""
        name = _name(stream)
        settings = self._of(name)
        heads = {one: self._oldest_unacked.of(stream, info) for one, info in consumers.items()}
        backlog = matching(name, self._broker.backlogs)
        if not away:
            found = samples(settings, stream, consumers, heads, named=name in self._named, backlog=backlog)
        else:  # who is left must not be taken for the only consumer, nor nobody for a log
            named = name in self._named or len(consumers) + len(away) > 1
            found = samples(settings, stream, consumers, heads, named=named, backlog=backlog) if consumers else []
            told = {sample.subscriber for sample in found}
            rows = self._remembered.unread(name, settings.queue_name, now_us(), _AWAY)
            found += [row for row in rows if row.queue == settings.queue_name and row.subscriber not in told]
        return found + subject_samples(settings, stream) if settings.subjects else found

    def _of(self, name: str) -> StreamSettings:
        return self._settings.get(name) or StreamSettings(name=name)

    async def _consumers(
        self, streams: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, Infos], dict[str, list[str]], dict[str, str]]:
        """Each stream's consumers, and those that are there but do not answer; streams that are gone are left out,
        those that could not be read have a reason."""
        found: dict[str, Infos] = {_name(stream): {} for stream in streams}
        silent: dict[str, list[str]] = defaultdict(list)
        troubles: dict[str, str] = {}
        asked = [(_name(stream), 0) for stream in streams if stream["state"]["consumer_count"]]
        while asked:
            requests = [(f"CONSUMER.LIST.{name}", {"offset": at}) for name, at in asked]
            pages = await self._exchange.ask(requests, led=True)
            further = []
            for (name, at), page in zip(asked, pages, strict=True):
                if isinstance(page, ApiError):
                    if page.code == NO_STREAM:
                        found.pop(name, None)  # deleted while we read
                    else:
                        troubles[name] = page.description
                    continue
                infos, away = page.get("consumers") or (), page.get("missing") or ()
                if name in found:
                    found[name].update((info["name"], info) for info in infos)
                if away:
                    silent[name] += away
                if at == 0 and (told := len(infos) + len(away)):
                    further += [(name, offset) for offset in range(told, page["total"], told)]
            asked = further
        return found, silent, troubles


def _name(stream: dict[str, Any]) -> str:
    return str(stream["config"]["name"])


def _portions(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _TOGETHER] for start in range(0, len(items), _TOGETHER))
