"""Celery (kombu's Redis transport): a list for each queue and priority, one hash of what is not acknowledged.

A worker takes a message by RPOP, puts it into the hash ``unacked`` with its exchange and routing key, and deletes it
there by the acknowledgement. Messages with an ETA, retries among them, are taken at once and held back by the worker:
they stand in ``unacked`` and are **delayed**, not in flight; in a list they are delayed, not waiting. Celery's messages
carry no time of enqueueing; one header, which producers add, tells it. What has an ETA waits from its ETA on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from brokers.redis.resp import Command, Refusal, checked
from brokers.texts import loads
from collectors.plumbing import is_plumbing
from collectors.redis.layouts.base import UNREADABLE, UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.scan import Search
from collectors.redis.settings import CeleryLayout
from collectors.samples import Sample
from collectors.timestamps import unix_microseconds

_BINDING = "_kombu.binding."
#: The most that the hash of unacknowledged messages may take to be read each cycle: a larger one comes too late.
_MOST_BYTES = 8 << 20
_UNTOLD = UNTOLD_ANYWHERE | {
    "consumers": "Celery's workers are not listed in Redis",
    "published_total": "Celery does not count in Redis",
    "delivered_total": "Celery does not count in Redis",
    "acked_total": "Celery does not count in Redis",
    "redelivered_total": "Celery does not count in Redis",
}


@dataclass(slots=True)
class Census:
    """What some messages say of themselves; times in microseconds since 1970."""

    ready: int = 0
    delayed: int = 0
    since: list[float] = field(default_factory=list)

    def add(self, message: Any, header: str, now: int) -> None:
        """Count one message as kombu wrote it."""
        headers = message.get("headers") if isinstance(message, dict) else None
        headers = headers if isinstance(headers, dict) else {}
        due = unix_microseconds(headers.get("eta"))  # Celery writes a countdown, and a retry's backoff, as an ETA
        if due is not None and due > now:
            self.delayed += 1
            return
        self.ready += 1
        times = [time for time in (unix_microseconds(headers.get(header)), due) if time is not None]
        if times:
            self.since.append(max(times))


@dataclass(frozen=True, slots=True)
class Binding:
    """One queue's claim to the messages of an exchange; ``words``: of a topic's pattern, None for a plain key."""

    key: str
    words: tuple[str, ...] | None
    queue: str

    def takes(self, routing_key: str) -> bool:
        """Whether a message with this routing key goes to the queue, as kombu has it: ``#`` is one word or more."""
        if self.words is None:
            return self.key == routing_key
        given = routing_key.split(".")
        reached = {0}
        for word in self.words:
            if word == "#":
                reached = set(range(min(reached) + 1, len(given) + 1)) if reached else set()
            else:
                reached = {at + 1 for at in reached if at < len(given) and word in ("*", given[at])}
        return len(given) in reached


class Celery:
    """The listed queues, or those that Celery has bound."""

    def __init__(self, settings: CeleryLayout) -> None:
        self._settings = settings
        self._keys: list[bytes] = []
        self._bindings: dict[str, list[Binding]] = {}
        self._unread: dict[str, str] = {}  # exchange → why its bindings cannot be read
        self._unacked: dict[str, Census] = {}
        self._unacked_unread: dict[str | None, str] = {}  # queue, or None for all of them → why

    def search(self) -> Search | None:
        """The sets in which kombu keeps what is bound to an exchange."""
        return None if self._settings.queues else Search(f"{self._settings.key_prefix}{_BINDING}*", "set")

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """One set an exchange."""
        self._keys = sorted(keys)

    def prepare(self, now: int) -> Preparing:
        """The bindings, which name the queues; then the unacknowledged messages of them all."""
        settings, self._unacked, self._unacked_unread = self._settings, {}, {}
        unacked = settings.key_prefix + settings.unacked_key
        *members, held, size = yield [
            *(("SMEMBERS", key) for key in self._keys),
            ("HLEN", unacked),
            ("MEMORY", "USAGE", unacked),  # estimated from a few entries; a user who may not ask goes without
        ]
        before, self._bindings, self._unread = self._bindings, {}, {}
        begin = len(settings.key_prefix) + len(_BINDING)
        for key, found in zip(self._keys, members, strict=True):
            exchange = text(key)[begin:]
            if isinstance(found, Refusal) and before.get(exchange):
                self._bindings[exchange] = before[exchange]  # a cluster's node is lost: its queues may be on others
            else:
                self._bound_to(exchange, found)
        if isinstance(held, Refusal):
            self._unacked_unread[None] = str(held)
        elif held > 10 * settings.read_at_most:
            self._unacked_unread[None] = f"{unacked!r} holds {held} messages of all queues: too many to look into each"
        elif isinstance(size, int) and size > _MOST_BYTES:
            why = f"{unacked!r} holds about {size >> 20} MiB: too much to look into each message"
            self._unacked_unread[None] = why
        elif held:
            (entries,) = checked((yield [("HVALS", unacked)]))
            messages = [told for told in map(self._message, entries) if told is not None]
            exchanges = sorted({exchange for _, exchange, _ in messages} - {"", *self._bindings, *self._unread})
            if exchanges:  # queues were listed, or the search has not come by yet
                sets = yield [("SMEMBERS", f"{settings.key_prefix}{_BINDING}{exchange}") for exchange in exchanges]
                for exchange, found in zip(exchanges, sets, strict=True):
                    self._bound_to(exchange, found)
            for message, exchange, routing_key in messages:
                self._count(message, exchange, routing_key, now)

    def _bound_to(self, exchange: str, members: Any) -> None:
        """What is bound to an exchange: its routing key, a topic's pattern, and the queue."""
        if isinstance(members, Refusal):
            self._unread[exchange] = f"what is bound to exchange {exchange!r} cannot be read: {members}"
            return
        bindings = self._bindings[exchange] = []
        for member in members:
            key, pattern, queue = [*text(member).split(self._settings.separator), "", ""][:3]
            if queue and key:  # a fanout's messages stand in no list
                bindings.append(Binding(key, tuple(key.split(".")) if pattern else None, queue))

    def _message(self, entry: bytes) -> tuple[Any, str, str] | None:
        """One unacknowledged message: [message, exchange, routing key]."""
        try:
            message, exchange, routing_key = loads(entry)
            if not isinstance(routing_key, str) or not isinstance(exchange, str | None):
                raise TypeError("names are texts")
            return message, exchange or "", routing_key
        except UNREADABLE:
            self._unacked_unread[None] = "an unacknowledged message cannot be read"
            return None

    def _count(self, message: Any, exchange: str, routing_key: str, now: int) -> None:
        """A message is its queue's; where several queues took a copy each, nobody tells whose this one is."""
        if exchange in self._unread:
            self._unacked_unread[None] = self._unread[exchange]
            return
        queues = {binding.queue for binding in self._bindings.get(exchange, ()) if binding.takes(routing_key)}
        if len(queues) > 1:
            why = (
                f"several queues took what exchange {exchange!r} was sent for {routing_key!r}: whose it is, is not told"
            )
            self._unacked_unread |= dict.fromkeys(queues, why)
            return
        (queue,) = queues or {routing_key}
        self._unacked.setdefault(queue, Census()).add(message, self._settings.enqueued_at_header, now)

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue with what stands unacknowledged of it, and each exchange whose queues cannot be named."""
        chosen = {name: exchange for exchange, of in self._bindings.items() for name in self._names(exchange, of)}
        names = self._settings.queues or sorted(chosen)
        found: list[tuple[str, Read]] = []
        for name in names:
            why = self._unacked_unread.get(None) or self._unacked_unread.get(name)
            found.append((name, partial(read, name, self._settings, self._unacked.get(name, Census()), why)))
        if not self._settings.queues:
            found += [(name, partial(_refused, why)) for name, why in self._unread.items() if name not in chosen]
        return found

    def _names(self, exchange: str, bindings: list[Binding]) -> Iterator[str]:
        for binding in bindings:
            inner = is_plumbing(exchange) or is_plumbing(binding.queue)
            if self._settings.plumbing or not inner:
                yield binding.queue


def _refused(why: str, now: int) -> Reading:
    """An exchange whose bindings may not be read: that there are queues is known, and nothing else."""
    yield from ()
    raise Refusal(why)


def read(name: str, settings: CeleryLayout, unacked: Census, unacked_unread: str | None, now: int) -> Reading:
    """One queue: its lists, one for each priority step; step 0 has the queue's own name."""
    lists = [
        f"{settings.key_prefix}{name}{f'{settings.separator}{step}' if step else ''}"
        for step in settings.priority_steps
    ]
    lengths = checked((yield [("LLEN", key) for key in lists]))
    whole = sum(lengths) <= settings.read_at_most
    filled = [key for key, length in zip(lists, lengths, strict=True) if length]
    waiting = Census()
    # The last of a list is the next to be taken.
    commands: list[Command] = [("LRANGE", key, 0 if whole else -1, -1) for key in filled]
    heads = checked((yield commands)) if commands else ()
    _take(waiting, heads, settings, now)
    if not whole and waiting.delayed:  # behind what is not due yet stands what is
        waiting, window = Census(), max(1, settings.read_at_most // len(filled))
        _take(waiting, checked((yield [("LRANGE", key, -window, -1) for key in filled])), settings, now)
    missing = dict(_UNTOLD)
    depth, delayed, in_flight = sum(lengths), None, None
    if whole:
        depth = waiting.ready
    if unacked_unread is None:
        in_flight = unacked.ready
        if whole:
            delayed = waiting.delayed + unacked.delayed
        else:
            missing["delayed"] = f"more than {settings.read_at_most} messages wait: not each is looked into for its ETA"
    else:
        missing |= {"in_flight": unacked_unread, "delayed": unacked_unread}
    since = waiting.since + unacked.since
    oldest = age(now, min(since)) if since else None
    if oldest is None and not depth and in_flight == 0:
        oldest = 0.0
    elif oldest is None and waiting.delayed and not waiting.ready:
        missing["oldest_age_seconds"] = (
            f"the next {waiting.delayed} messages are not due yet, and no more are looked into"
        )
    elif oldest is None:
        missing["oldest_age_seconds"] = (
            f"no message here has an ETA, or a time in the header {settings.enqueued_at_header!r}"
        )
    return [
        Sample(
            name,
            now,
            depth=depth,
            in_flight=in_flight,
            delayed=delayed,
            oldest_age_seconds=oldest,
            queue_type="list",
            unavailable=missing,
        )
    ]


def _take(census: Census, lists: Iterable[Iterable[bytes]], settings: CeleryLayout, now: int) -> None:
    """Count what some lists hold; what is no message that Celery wrote waits as well."""
    for messages in lists:
        for raw in messages:
            try:
                census.add(loads(raw), settings.enqueued_at_header, now)
            except UNREADABLE:
                census.ready += 1
