"""One watched stream: who consumes it, what its messages live through, and what became of those nobody told about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brokers.nats.client import Client
from brokers.tenants import Message, tenant_of
from collectors.nats.attach import StreamFacts, first_look, subscriptions
from collectors.nats.memory import Memory, restore
from collectors.nats.parse import microseconds
from collectors.nats.pending import PendingMessages
from collectors.nats.settings import StreamSettings, TapSettings
from collectors.nats.tracker import REMOVED, MessageTracker
from collectors.records import Event

#: Missing arrivals looked for at once, and messages settled at once: no step takes long.
_AT_ONCE = 256
_SETTLED_AT_ONCE = 10_000


@dataclass(slots=True)
class _Suspects:
    """Messages that the broker has done with; told so if the tap, read up to ``tap_last``, still does not show how."""

    sequences: list[int]
    tap_last: int
    removed: bool


@dataclass(slots=True)
class Watch:
    """A stream that is being tapped."""

    settings: StreamSettings
    facts: StreamFacts
    tracker: MessageTracker
    generation: int
    met: set[str]  # subscribers that were named at some time
    consumers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _suspects: dict[str, _Suspects] = field(default_factory=dict)
    _unseen_to: int = 0

    @classmethod
    def begin(
        cls,
        settings: StreamSettings,
        tap: TapSettings,
        facts: StreamFacts,
        consumers: dict[str, dict[str, Any]],
        memory: Memory,
        generation: int,
        out: list[Event],
    ) -> Watch:
        """Go on where earlier runs left off, or begin."""
        queue = settings.queue_name
        pending = PendingMessages(tap.max_unfinished)
        tracker = MessageTracker(queue, pending, out, hold=round(tap.hold_seconds * 1e6), generation=generation)
        watch = cls(settings, facts, tracker, generation, met=memory.subscribers(queue))
        watch.consume(consumers)
        restore(pending, memory, queue, generation, tracker.subscribers())
        watch._end_earlier(memory, out)
        return watch

    def _end_earlier(self, memory: Memory, out: list[Event]) -> None:
        """A stream that was deleted and recreated took its unfinished messages with it."""
        if self.generation == 0:
            return
        at = microseconds(self.facts.created)
        queue = self.settings.queue_name
        open_rows = {(row.generation, row.sequence, row.subscriber): row for row in memory.rows(queue)}
        for of, entry in memory.entries(queue):
            row = open_rows.get((of, entry.sequence, entry.subscriber))
            if of < self.generation and not (row and row.finished):
                self._expire(
                    out, of, entry.sequence, entry.subscriber, entry.tenant, entry.attempts, entry.enqueued_at, at
                )
        covered = memory.tops.get(queue, (0, 0))
        ended = {(row.generation, row.sequence) for row in open_rows.values() if row.finished}
        for (of, sequence, subscriber), row in open_rows.items():
            in_state = of == covered[0] and sequence <= covered[1]
            if of < self.generation and not in_state and (of, sequence) not in ended:
                self._expire(out, of, sequence, subscriber, row.tenant, row.attempts, row.enqueued_at, at)

    def _expire(
        self,
        out: list[Event],
        generation: int,
        sequence: int,
        subscriber: str | None,
        tenant: str | None,
        attempts: int,
        enqueued_at: int | None,
        at: int,
    ) -> None:
        message_id = f"{generation}:{sequence}" if generation else str(sequence)
        queue, attempt = self.settings.queue_name, attempts or None
        out.append(Event("expired", queue, subscriber, tenant, message_id, attempt, enqueued_at, at, None, REMOVED))

    async def look_back(self, client: Client, limit: int) -> int:
        """Record what waits in a stream that was never watched; returns how many messages."""
        floors = [info["ack_floor"]["stream_seq"] for info in self.consumers.values()]
        first = max(self.facts.first, 1 if self.facts.shared else min(floors, default=0) + 1)
        found = await first_look(client, self.settings.name, first, self.facts.last, limit)
        for message in found:
            self.arrived(message.sequence, message.stored_at, message.subject, message.headers)
            self.tracker.missing.clear()
        self.tracker.pending.top = max(self.tracker.pending.top, self.facts.last)
        self.met |= {one.subscriber for one in self.tracker.consumers.values() if one.subscriber is not None}
        return len(found)

    def consume(self, consumers: dict[str, dict[str, Any]]) -> None:
        """These are the stream's consumers now."""
        self.consumers = consumers
        self.tracker.subscribe(subscriptions(self.facts, consumers, named=bool(self.met)))

    async def meet(self, client: Client, limit: int) -> None:
        """Let what is in the stream already wait for subscribers that are new to it."""
        if self.facts.shared:
            return
        for consumer, subscription in self.tracker.consumers.items():
            name = subscription.subscriber
            if name is None or name in self.met:
                continue
            self.met.add(name)
            first = max(self.facts.first, self.consumers[consumer]["ack_floor"]["stream_seq"] + 1)
            last = min(self.facts.last, self.tracker.pending.top)
            for message in await first_look(client, self.settings.name, first, last, limit):
                tenant = self._tenant(message.headers, message.subject)
                self.tracker.offered(message.sequence, message.stored_at, message.subject, tenant, subscription)

    def arrived(self, sequence: int, at: int, subject: str, headers: Mapping[str, str]) -> None:
        """A message was stored."""
        self.tracker.arrived(sequence, at, subject, self._tenant(headers, subject))

    def _tenant(self, headers: Mapping[str, str], subject: str) -> str | None:
        return tenant_of(self.settings.tenant, Message(self.settings.queue_name, subject, headers))

    def looked(self, consumer: str, info: Mapping[str, Any]) -> None:
        """The server told how far a consumer is."""
        delivered = info["delivered"]
        seen = delivered.get("last_active") or info["ts"]
        self.tracker.looked(consumer, delivered["stream_seq"], microseconds(seen))

    @property
    def busy(self) -> bool:
        """Whether somebody may be working on messages whose receipt is not told yet."""
        return self.tracker.holding or self.tracker.waiting

    async def find_missing(self, client: Client) -> None:
        """Look into the stream for arrivals that the tap left out."""
        for sequence in list(self.tracker.missing)[:_AT_ONCE]:
            for message in await first_look(client, self.settings.name, sequence, sequence, 1):
                self.arrived(message.sequence, message.stored_at, message.subject, message.headers)
            # Not there any more: its end, if it is still to be read, will be told without its arrival.

    def check(self, tap_last: int, tap_read: int, at: int) -> None:
        """Compare what the server has done with to what the tap told; a difference must last two checks to count.

        Fixes what was acknowledged unseen: before the stream was watched, while its consumer was not yet sampled, or
        in what the tap's stream discarded.
        """
        facts = self.facts
        if (
            tap_read >= tap_last
            and facts.last > self.tracker.pending.top
            and self._unseen_to > self.tracker.pending.top
        ):
            self.tracker.missed(min(facts.last, self._unseen_to))
        self._unseen_to = facts.last
        for consumer, info in self.consumers.items():
            before = self._suspects.pop(consumer, None)
            if before is not None:
                if tap_read < before.tap_last:
                    self._suspects[consumer] = before
                    continue
                self.tracker.settle(consumer, before.sequences, at, removed=before.removed)
            floor = info["ack_floor"]["stream_seq"]
            gone = facts.first - 1
            removed = gone > floor
            sequences = self.tracker.unfinished(consumer, max(floor, gone), _SETTLED_AT_ONCE)
            if removed:
                sequences = [sequence for sequence in sequences if sequence > floor] or sequences
                removed = bool(sequences) and sequences[0] > floor
            if sequences:
                self._suspects[consumer] = _Suspects(sequences, tap_last, removed)
