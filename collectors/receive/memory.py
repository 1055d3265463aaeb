"""What is remembered of messages between their spans: who sent them, when, and how often they were delivered.

Bounded by two generations: when the young one holds half of what is allowed it becomes the old one, and the old one
before it is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Deliveries of one message to one subscriber that are told apart; a message that came more often is not numbered.
MOST_DELIVERIES = 64
_ID = 8  # bytes of a span id


@dataclass(slots=True)
class Sent:
    """One message, or a batch of ``count`` that share one producer's context.

    ``known`` is false while only deliveries of it were seen. ``context`` is that of the span that tells of its
    enqueueing: where two spans stand for one publish, the other is silent. ``deliveries`` holds, for each subscriber
    (or service, where no subscriber is named), the span ids of its attempts in order of arrival, 8 bytes each: a span
    that is sent again keeps its number.
    """

    broker: str
    queue: str
    message_id: str = ""
    context: bytes = b""
    enqueued_at: int | None = None
    clock: str = "producer"
    tenant: str | None = None
    priority: int | None = None
    count: int = 1
    known: bool = False
    deliveries: dict[str | None, bytes] | None = None

    def tells(self, broker: str, queue: str) -> bool:
        """Whether a send span to ``queue`` was seen that this message is known by."""
        return self.known and self.queue == queue and self.broker == broker

    def attempt(self, subscriber: str | None, span_id: bytes) -> int | None:
        """The number of the delivery that ``span_id`` is; None where earlier ones may have gone unseen."""
        if self.deliveries is None:
            self.deliveries = {subscriber: span_id}
            number = 1
        else:
            seen = self.deliveries.get(subscriber, b"")
            number = _place(span_id, seen)
            if number > MOST_DELIVERIES:
                return None
            if number > len(seen) // _ID:
                self.deliveries[subscriber] = seen + span_id
        return number if self.known and self.count == 1 else None

    def delivered(self, subscriber: str | None) -> int | None:
        """The number of the newest delivery, where all are known and there was one."""
        if not self.known or self.count > 1 or self.deliveries is None:
            return None
        return len(self.deliveries.get(subscriber, b"")) // _ID or None


def _place(span_id: bytes, seen: bytes) -> int:
    """Where ``span_id`` stands among the ids ``seen``, from 1; behind them where it is new."""
    for begin in range(0, len(seen), _ID):
        if seen.startswith(span_id, begin):
            return begin // _ID + 1
    return len(seen) // _ID + 1


Key = bytes | tuple[str, str, str]


class Memory:
    """Messages by their producer's context (16 bytes trace id, 8 bytes span id) or by (broker, queue, message id)."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most)  # of keys: a message has two, and there are two generations
        self._young: dict[Key, Sent] = {}
        self._old: dict[Key, Sent] = {}
        self._parents: dict[bytes, Sent] = {}
        self._old_parents: dict[bytes, Sent] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Sent | None:
        """The message remembered under ``key``."""
        return self._young.get(key) or self._old.get(key)

    def put(self, key: Key, sent: Sent) -> None:
        """Remember ``sent`` under ``key``."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = sent

    def wrapped(self, context: bytes) -> Sent | None:
        """The message that a send span below the span at ``context`` sent."""
        return self._parents.get(context) or self._old_parents.get(context)

    def wrap(self, context: bytes, sent: Sent) -> None:
        """Remember that a send span below the span at ``context`` sent this message."""
        if 4 * len(self._parents) >= self._half:  # both spans of one publish come within seconds
            self._old_parents, self._parents = self._parents, {}
        self._parents[context] = sent
