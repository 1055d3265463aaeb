"""The life of every message of one stream, told from what the broker publishes: pure, without clock or connection.

Exactly one `received` for each message, subscriber and attempt, whoever shows it first:

* an acknowledgement's metric tells when its attempt was delivered, exactly, but only once the attempt has ended;
* looking at the consumer tells at once which messages were delivered at least once. Such a message is held for a
  moment, for a quick acknowledgement to tell its exact time; then the receipt is recorded with the time of the look,
  an upper bound, and says so in `reason`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from collectors.nats.parse import MAX_DELIVERIES, NAKED, Acknowledged, Advisory, matches
from collectors.nats.pending import PendingMessages
from collectors.records import Event

SEEN_IN_FLIGHT = "delivered at the latest then: seen in flight"
SEEN_AT_END = "delivered at the latest then: seen when the attempt ended"
SEEN_LATER = "delivered at the latest then: seen when a later attempt was"
ARRIVAL_UNSEEN = "arrived at the latest then: its arrival was not seen"
END_UNSEEN = "ended at the latest then: its acknowledgement was not seen"
REMOVED = "removed from the stream unfinished"
#: Looks remembered while the arrivals they speak of are not in yet.
_MOST_LOOKS = 10_000
_MOST_MISSING = 10_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer as Sojourn names it (None: the queue's only one) and the subjects that it takes (none: all)."""

    subscriber: str | None
    filters: tuple[str, ...] = ()

    def takes(self, subject: str) -> bool:
        """Whether messages of ``subject`` are delivered to it."""
        return not self.filters or any(matches(subject, pattern) for pattern in self.filters)


class _Look(NamedTuple):
    """At ``at`` every message up to ``delivered`` had been delivered at least once."""

    delivered: int
    at: int


@dataclass(slots=True)
class _Watch:
    looks: deque[_Look] = field(default_factory=deque)
    told: int = 0  # receipts up to this sequence need no further look

    def bound(self, sequence: int) -> int | None:
        return next((look.at for look in self.looks if look.delivered >= sequence), None)


class MessageTracker:
    """What happened to the messages of one queue; events go to ``out`` in the order in which they became known."""

    def __init__(
        self, queue: str, pending: PendingMessages, out: list[Event], *, hold: int, generation: int = 0
    ) -> None:
        self.queue = queue
        self.pending = pending
        self.out = out
        self.missing: dict[int, None] = {}  # arrivals that the tap left out; a look into the stream may find them
        self.unmatched = 0  # ends of messages that are unknown, or ended before
        self._hold = hold
        self._prefix = f"{generation}:" if generation else ""
        self.consumers: dict[str, Subscription] = {}
        self._watches: dict[str | None, _Watch] = {}
        self._refused: dict[tuple[int, str | None], int] = {}  # unfinished messages' newest failed attempt
        self._subscribers: tuple[str | None, ...] = (None,)
        self._routed = False

    # --- who subscribes

    def subscribe(self, consumers: dict[str, Subscription]) -> None:
        """The stream's consumers are these now; who waits for the messages that are there already follows them."""
        before = self.subscribers()
        self.consumers = dict(consumers)
        after = self._subscribers = tuple(dict.fromkeys(one.subscriber for one in consumers.values())) or (None,)
        gone, new = set(before) - set(after), tuple(name for name in after if name not in before)
        for name in gone:
            self.pending.rename(name, new)
            self._watches.pop(name, None)
        # A queue whose consumers share the messages by subject tells each arrival to the one it is for.
        self._routed = any(subscription.subscriber and subscription.filters for subscription in consumers.values())

    def subscribers(self) -> tuple[str | None, ...]:
        """Who is to finish a message before it is gone."""
        return self._subscribers

    def _for(self, subject: str) -> tuple[str | None, ...]:
        return tuple(dict.fromkeys(s.subscriber for s in self.consumers.values() if s.takes(subject)))

    def offered(self, sequence: int, at: int, subject: str, tenant: str | None, to: Subscription) -> None:
        """A message whose arrival was told before waits for a new subscriber too."""
        if to.takes(subject) and self.pending.attempts(sequence, to.subscriber) is None:
            self.pending.enqueue(sequence, at, tenant, (to.subscriber,))

    # --- what the tap says

    def arrived(self, sequence: int, at: int, subject: str, tenant: str | None) -> None:
        """A message was stored at ``at``."""
        pending = self.pending
        if sequence != pending.top + 1:  # nearly all come in order
            if pending.knows(sequence):
                return  # seen before: waiting when the stream was first watched, or its end overtook it
            self.missed(sequence - 1)
            self.missing.pop(sequence, None)
        if self._routed:
            subscribers = self._for(subject)
            pending.enqueue(sequence, at, tenant, subscribers)
            for subscriber in subscribers:
                self._emit("enqueued", sequence, subscriber, None, at, at, tenant)
        else:
            pending.enqueue(sequence, at, tenant, self._subscribers)
            self._emit("enqueued", sequence, None, None, at, at, tenant)

    def missed(self, last: int) -> None:
        """The arrivals above the newest one that is known, up to ``last``, did not come: they are ``missing``.

        The tap's stream refuses republished messages whose headers mean something to itself: a message id that another
        stream used a moment ago, an expected sequence, a roll-up.
        """
        top = self.pending.top
        if top and last > top:
            self.missing |= dict.fromkeys(range(max(top, last - _MOST_MISSING) + 1, last + 1))
            self.pending.top = last
            while len(self.missing) > _MOST_MISSING:
                del self.missing[next(iter(self.missing))]

    def acknowledged(self, record: Acknowledged) -> None:
        """An attempt ended well."""
        found = self._match(record.consumer, record.sequence, record.delivered_at)
        if found is None:
            return
        subscriber, told = found
        sequence, attempt, began, seconds = record.sequence, record.deliveries, record.delivered_at, record.seconds
        if attempt > told + 1:
            self._receipts(sequence, subscriber, told, attempt - 1, began, SEEN_LATER)
        enqueued_at, tenant = self.pending.facts(sequence)
        if attempt > told:
            self._emit("received", sequence, subscriber, attempt, enqueued_at, began, tenant)
        ended = began + round(seconds * 1e6)
        self._emit("completed", sequence, subscriber, attempt, enqueued_at, ended, tenant, None, seconds)
        self._finish(sequence, subscriber)

    def advised(self, record: Advisory) -> None:
        """An attempt was refused, or the message was given up."""
        found = self._match(record.consumer, record.sequence, record.at)
        if found is None:
            return
        subscriber, told = found
        self._receipts(record.sequence, subscriber, told, record.deliveries, record.at, SEEN_AT_END)
        if record.kind == NAKED:
            if self._refused.get((record.sequence, subscriber), 0) >= record.deliveries:
                return  # the consumer refused the same attempt twice
            self._refused[record.sequence, subscriber] = record.deliveries
            self._tell("failed", record.sequence, subscriber, record.deliveries, record.at, reason=record.reason)
            return
        plain = (
            f"delivered {record.deliveries} times" if record.kind == MAX_DELIVERIES else "terminated by the consumer"
        )
        reason = record.reason or plain
        self._tell("dead_lettered", record.sequence, subscriber, record.deliveries, record.at, reason=reason)
        self._finish(record.sequence, subscriber)

    # --- what looking at a consumer says

    def looked(self, consumer: str, delivered: int, at: int) -> None:
        """Every message up to ``delivered`` has been delivered by ``at``."""
        subscription = self.consumers.get(consumer)
        if subscription is None:
            return
        watch = self._watches.setdefault(subscription.subscriber, _Watch())
        if delivered > (watch.looks[-1].delivered if watch.looks else watch.told):
            watch.looks.append(_Look(delivered, at))
            if len(watch.looks) > _MOST_LOOKS:
                watch.looks.popleft()

    def release(self, read_to: int) -> None:
        """Record the receipts whose exact time has not come by ``read_to``, the broker's time of what was read last."""
        for subscriber, watch in self._watches.items():
            while watch.looks and watch.looks[0].at + self._hold <= read_to:
                look = watch.looks[0]
                last = min(look.delivered, self.pending.top)
                for sequence in list(self.pending.waiting(subscriber, watch.told + 1, last)):
                    self._tell("received", sequence, subscriber, 1, look.at, reason=SEEN_IN_FLIGHT)
                    self.pending.begin(sequence, subscriber, 1)
                watch.told = max(watch.told, last)
                if last < look.delivered:
                    break  # the arrivals of the rest are still to be read
                watch.looks.popleft()

    @property
    def holding(self) -> bool:
        """Whether receipts wait for their exact time."""
        return any(watch.looks for watch in self._watches.values())

    @property
    def waiting(self) -> bool:
        """Whether messages wait for their first receipt to be told."""
        return any(
            next(self.pending.waiting(subscriber, 1, self.pending.top), None) is not None
            for subscriber in self.subscribers()
        )

    def settle(self, consumer: str, sequences: Iterable[int], at: int, *, removed: bool) -> None:
        """End messages that the broker has done with, although the tap did not show how."""
        subscription = self.consumers.get(consumer)
        if subscription is None:
            return
        subscriber = subscription.subscriber
        for sequence in sequences:
            told = self.pending.attempts(sequence, subscriber)
            if told is None:
                continue
            if removed:
                self._tell("expired", sequence, subscriber, told or None, at, reason=REMOVED)
            else:
                self._receipts(sequence, subscriber, told, 1, at, SEEN_AT_END)
                self._tell("completed", sequence, subscriber, None, at, reason=END_UNSEEN)
            self._finish(sequence, subscriber)

    def unfinished(self, consumer: str, last: int, most: int) -> list[int]:
        """The consumer's oldest messages up to ``last`` whose end was not told."""
        subscription = self.consumers.get(consumer)
        return list(islice(self.pending.unfinished(subscription.subscriber, last), most)) if subscription else []

    # --- events

    def _match(self, consumer: str, sequence: int, at: int) -> tuple[str | None, int] | None:
        """The subscriber and how many attempts were told; None where nothing may be recorded of the message's end."""
        subscription = self.consumers.get(consumer)
        if subscription is None:
            self.unmatched += 1
            return None
        subscriber = subscription.subscriber
        told = self.pending.attempts(sequence, subscriber)
        if told is None and (sequence > self.pending.top or sequence in self.missing):
            self.missed(sequence - 1)
            self.missing.pop(sequence, None)
            self.pending.enqueue(sequence, None, None, (subscriber,) if self._routed else self.subscribers())
            self._emit("enqueued", sequence, subscriber if self._routed else None, None, None, at, None, ARRIVAL_UNSEEN)
            told = 0
        if told is None:
            self.unmatched += 1
            return None
        return subscriber, told

    def _finish(self, sequence: int, subscriber: str | None) -> None:
        self.pending.finish(sequence, subscriber)
        if self._refused:
            self._refused.pop((sequence, subscriber), None)

    def _receipts(
        self, sequence: int, subscriber: str | None, told: int, upto: int, at: int, reason: str | None
    ) -> None:
        """Record the attempts up to ``upto`` whose receipts were not told: the last at ``at``, the others by then."""
        for attempt in range(told + 1, upto + 1):
            when, why = (at, reason) if attempt == upto else (at, SEEN_LATER)
            if attempt == 1 and why is not None:
                watch = self._watches.get(subscriber)
                seen = watch.bound(sequence) if watch else None
                if seen is not None and seen <= at:
                    when, why = seen, SEEN_IN_FLIGHT
            self._tell("received", sequence, subscriber, attempt, when, reason=why)
        if upto > told:
            self.pending.begin(sequence, subscriber, upto)

    def _tell(
        self,
        kind: str,
        sequence: int,
        subscriber: str | None,
        attempt: int | None,
        at: int,
        *,
        seconds: float | None = None,
        reason: str | None = None,
    ) -> None:
        enqueued_at, tenant = self.pending.facts(sequence)
        self._emit(kind, sequence, subscriber, attempt, enqueued_at, at, tenant, reason, seconds)

    def _emit(
        self,
        kind: str,
        sequence: int,
        subscriber: str | None,
        attempt: int | None,
        enqueued_at: int | None,
        at: int,
        tenant: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> None:
        message_id = f"{self._prefix}{sequence}"
        self.out.append(
            Event(kind, self.queue, subscriber, tenant, message_id, attempt, enqueued_at, at, seconds, reason)
        )
