"""The dyno-queues recipe: scored sets, their scores the milliseconds at which a message is due.

Netflix' library has two shapes of keys, both read here: RedisDynoQueue ``<prefix>.QUEUE.<queue>.<shard>``,
``<prefix>.UNACK.<queue>.<shard>``, and RedisPipelineQueue ``<prefix>.QUEUE.{<queue>.<shard>}``,
``<prefix>.UNACK.{<queue>.<shard>}.<bucket>`` with 32 buckets. A score is the time of the push plus the message's
delay, plus priority ÷ 100; an UNACK score is the deadline of the acknowledgement. A message that is not acknowledged
goes back with its deadline for a score: **its age begins anew**, and nothing in the recipe's sets tells that it did. So
the age of the head is the time for which it could have been received, at least; where producers keep a third set,
``<prefix>.SINCE.…``, scored by the time at which a message was first due and cleared by its acknowledgement
(examples/redis_queue does), the age is exact, of waiting messages and of those in flight, deliveries notwithstanding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial

from brokers.redis.resp import Command, checked
from collectors.redis.layouts.base import UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.scan import Search
from collectors.redis.settings import DynoLayout
from collectors.samples import Sample

_KEY = re.compile(r"(?P<prefix>.+?)\.(?P<part>QUEUE|UNACK|SINCE)\.(?:\{(?P<braced>.+)\}(?:\.\d+)?|(?P<plain>[^{}]+))")
_UNTOLD = UNTOLD_ANYWHERE | {
    "consumers": "the recipe keeps no list of consumers",
    "published_total": "the recipe does not count",
    "delivered_total": "the recipe does not count",
    "acked_total": "the recipe does not count",
    "redelivered_total": "the recipe does not count deliveries",
}
_UNTOLD_IN_FLIGHT = _UNTOLD | {
    "oldest_age_seconds": "all messages are in flight, and their scores are deadlines: the time of the push is not kept"
}


@dataclass(slots=True)
class Shard:
    """The keys of one shard of a queue; ``since`` where there is an index of first due times."""

    queue: bytes
    unack: set[bytes] = field(default_factory=set)
    since: bytes | None = None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """What one key's name says: the queue as it is reported, prefix and shard as in the key, the kind of set."""

    queue: str
    prefix: str
    shard: str
    part: str


def place(key: str, prefix: str) -> Place | None:
    """Where ``key`` belongs; None if it is no key of the recipe. The prefix is named where it was not configured."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    inner = match["braced"] or match["plain"]
    queue, dot, shard = inner.rpartition(".")
    if not (dot and queue and shard):
        return None
    if set(prefix) & set("*?["):
        queue = f"{match['prefix']}.{queue}"
    return Place(queue, match["prefix"], f"{{{inner}}}" if match["braced"] else inner, match["part"])


class Dyno:
    """Every queue of the recipe under one prefix, or any."""

    def __init__(self, settings: DynoLayout) -> None:
        self._settings = settings
        self._queues: dict[str, dict[tuple[str, str], Shard]] = {}
        self._keys: frozenset[bytes] = frozenset()
        if settings.listed:
            self._queues = {queue: dict(self._listed(queue)) for queue in settings.queues}

    def _listed(self, queue: str) -> Iterator[tuple[tuple[str, str], Shard]]:
        prefix = self._settings.prefix
        for name in self._settings.shards:
            inner = f"{{{queue}.{name}}}" if self._settings.braces else f"{queue}.{name}"
            shard = self._shard(prefix, inner)
            shard.since = f"{prefix}.SINCE.{inner}".encode()
            yield (prefix, inner), shard

    def _shard(self, prefix: str, inner: str) -> Shard:
        unack = f"{prefix}.UNACK.{inner}"
        names = [f"{unack}.{bucket}" for bucket in range(self._settings.unack_buckets or 1)]
        if not inner.startswith("{"):
            names = [unack]
        return Shard(f"{prefix}.QUEUE.{inner}".encode(), {name.encode() for name in names})

    def search(self) -> Search | None:
        """All sets of the recipe; nothing where every key is listed."""
        return None if self._settings.listed else Search(f"{self._settings.prefix}.[QUS]*.*", "zset")

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """Sort ``keys`` by queue and shard.

        Redis keeps no empty set, so that a queue whose keys vanish is an empty queue, until ``forget_after``.
        """
        if self._settings.listed or keys is self._keys:  # the search makes another set whenever it has found anything
            return
        for key in keys - self._keys:
            self._add(key)
        self._keys = keys
        self._forget(now)

    def _add(self, key: bytes) -> None:
        found = place(text(key), self._settings.prefix)
        wanted = self._settings.queues
        if found is None or (wanted and not any(fnmatchcase(found.queue, pattern) for pattern in wanted)):
            return
        shards = self._queues.setdefault(found.queue, {})
        shard = shards.get((found.prefix, found.shard))
        if shard is None:
            shard = shards[found.prefix, found.shard] = self._shard(found.prefix, found.shard)
        if found.part == "UNACK" and (self._settings.unack_buckets is None or not found.shard.startswith("{")):
            shard.unack.add(key)
        elif found.part == "SINCE":
            shard.since = key

    def _forget(self, now: int) -> None:
        oldest = now - self._settings.forget_after * 1e6
        for name in list(self._queues):
            shards = self._queues[name]
            for key, shard in list(shards.items()):
                if shard.seen == 0 or shard.queue in self._keys or not self._keys.isdisjoint(shard.unack):
                    shard.seen = now
                elif shard.seen < oldest:
                    del shards[key]
            if not shards:
                del self._queues[name]

    def prepare(self, now: int) -> Preparing:
        """Nothing."""
        yield from ()

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue with its shards of this moment."""
        return [(name, partial(read, name, tuple(shards.values()))) for name, shards in self._queues.items()]


def read(name: str, shards: tuple[Shard, ...], now: int) -> Reading:
    """One queue: the sums over its shards."""
    due = now // 1000 + 1  # a priority is a fraction of a millisecond: all of this one is due
    commands: list[Command] = []
    for shard in shards:
        commands.append(("ZCOUNT", shard.queue, "-inf", b"(%d" % due))
        commands.append(("ZCOUNT", shard.queue, due, "+inf"))
        commands.append(("ZRANGE", shard.queue, 0, 0, "WITHSCORES"))
        if shard.since is not None:
            commands.append(("ZRANGE", shard.since, 0, 0, "WITHSCORES"))
        commands += [("ZCARD", unack) for unack in shard.unack]
    answers = iter(checked((yield commands)))
    depth = delayed = in_flight = 0
    ages: list[float] = []
    for shard in shards:
        waiting = next(answers)
        depth, delayed = depth + waiting, delayed + next(answers)
        heads = [next(answers)]
        if shard.since is not None:
            heads.append(next(answers))
        ages += [age(now, float(head[1]) // 1 * 1000) for head in heads if head and float(head[1]) < due]
        in_flight += sum(next(answers) for _ in shard.unack)
    missing = _UNTOLD
    oldest = max(ages, default=None)
    if oldest is None:
        if in_flight:
            missing = _UNTOLD_IN_FLIGHT
        else:
            oldest = 0.0  # what is not due yet waits for nobody
    return [
        Sample(
            name,
            now,
            depth=depth,
            in_flight=in_flight,
            delayed=delayed,
            oldest_age_seconds=oldest,
            queue_type="sorted set",
            unavailable=missing,
        )
    ]
