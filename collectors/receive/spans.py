"""Spans → lifecycle events: what each messaging span, under old and current names, tells of which messages.

Pure: the same spans in the same order give the same events, whatever the clock. What must be known of earlier spans
stands in :class:`collectors.receive.memory.Memory`; a span that is read again, because its request was sent again,
gives the same events again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

from collectors.receive import events, facts, sampled
from collectors.receive.attributes import OFFSET_IDS, REPORTED
from collectors.receive.facts import LATEST, Refused
from collectors.receive.identity import BATCHED, ENDED, ENQUEUED, NOTHING, RECEIVED
from collectors.receive.joins import Joins
from collectors.receive.lean import Attributes, DecodeError, resource
from collectors.receive.memory import Memory, Sent
from collectors.receive.publishes import Publish
from collectors.receive.routes import CLIENT, PRODUCER, Route, Routes
from collectors.receive.rows import Row
from collectors.receive.told import MessagingSpan, Poll, Told

_REMOTE_IS_TOLD, _REMOTE = 0x100, 0x200  # SpanFlags: whether the parent is remote is told, and it is
MOST_IN_BATCH = 10_000
_MOST_RESOURCES = 10_000


class SpanReader:
    """Reads requests of OTLP, one after the other; ``most`` bounds the messages that one may tell of.

    Send spans count as ``publishes``, too, where that is asked for.
    """

    def __init__(self, memory: Memory, joins: Joins, most: int, *, publishes: bool = False) -> None:
        self.memory = memory
        self._publishes = publishes
        self._routes = Routes(joins)
        self._most = most
        self._attributes = Attributes()
        self._resources: dict[bytes, tuple[str | None, str | None]] = {}

    def sends(self, request: Any) -> Told:
        """Read the send spans of ``request`` (:data:`collectors.receive.lean.LeanRequest`); :meth:`rest` the others."""
        told = Told()
        for resource_spans in request.resource_spans:
            service, tenant = self._resource(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans[:]:  # as a list: to go through protobuf's own is twice as slow
                    told.spans += 1
                    try:
                        self._read(span, service, tenant, resource_spans.resource, told)
                    except Refused as refusal:
                        told.refused.append((span, str(refusal)))
        return told

    def rest(self, told: Told, holds: Callable[[MessagingSpan], bool] | None = None) -> list[MessagingSpan]:
        """Read what :meth:`sends` left, now that all send spans that came along are known.

        Returns the spans whose producer's is not known and that ``holds`` says are to wait for it.
        """
        held: list[MessagingSpan] = []
        contexts: set[bytes] = set()
        for span in told.later:
            waits = span.raw is not None and (span.above in contexts or not self.knows(span))
            if waits and holds is not None and holds(span):
                held.append(span)
                contexts.add(span.context)
            else:
                self._deliver(span, told)
        told.later.clear()
        return held

    def knows(self, span: MessagingSpan) -> bool:
        """Whether the producer's span is known, as far as the consumer's says whose it is."""
        tie = span.links[0] if span.links else span.producer
        if tie is None:
            return True
        sent = self.memory.get(tie)
        if sent is None and (explicit := facts.message_id(span.found)) is not None:
            sent = self.memory.get((span.route.broker, span.route.queue, explicit))
        return sent is not None and sent.known

    def release(self, spans: Iterable[MessagingSpan]) -> Told:
        """What spans tell that waited."""
        told = Told()
        for one in spans:
            told.weigh(one.context, one.weight)
            self._deliver(one, told)
        return told

    def _resource(self, encoded: bytes) -> tuple[str | None, str | None]:
        """(service, tenant) as a resource tells them; nothing where it cannot be read."""
        told = self._resources.get(encoded)
        if told is None:
            try:
                told = resource(encoded)
            except DecodeError:
                told = (None, None)
            if len(self._resources) >= _MOST_RESOURCES:
                self._resources.clear()
            self._resources[encoded] = told
        return told

    def _read(self, raw: Any, service: str | None, tenant: str | None, encoded: bytes, told: Told) -> None:
        found = facts.found_in(raw.attributes, self._attributes)
        route = self._routes.of(found, raw.kind)
        role = route.role
        if not role:
            if not REPORTED.isdisjoint(found):
                told.reports.append((raw.trace_id + raw.span_id, self._report(raw, found)))
            else:
                told.ignored += 1
            return
        if tenant is not None:
            found.setdefault("tenant", tenant)
        context, above, links, batch, start, end = _checked(raw, found)
        told.messages += max(1, batch or 0, len(links)) if links or batch else 1
        if told.messages > self._most:
            raise Refused(f"a request may tell of at most {self._most} messages")
        weight, worker = 1, found.get("worker") or service
        if raw.trace_state:
            weight = sampled.weight(raw.trace_state, raw.trace_id)
            told.weigh(context, weight)
        if role == "send":
            wrong, folded = facts.went_wrong(raw.status), told.folded
            if wrong:
                told.ignored += 1  # nothing reached the queue
            elif links and raw.kind == CLIENT:
                self._sent_linked(route, found, links, start, worker, told)
            else:
                self._sent(route, found, context, above, batch or 1, start, worker, told)
            # Of two spans of one publish the one counts that tells of it; of messages with create spans, their sending.
            if self._publishes and (wrong or told.folded == folded or links) and _publishes(raw, found):
                seconds = None if wrong else (end - start) / 1e9
                told.publishes.append(Publish(route.broker, route.queue, end // 1000, seconds, weight, context))
            return
        span = MessagingSpan(route, found, context, above, None, links, batch, start, end, worker, service)
        span.weight = weight
        if role == "poll":
            told.polls.append(_poll(span))
        else:
            span.ending, span.reason = facts.ending(raw, route, found)
            if above is not None and not links:
                flags = raw.flags
                if not flags & _REMOTE_IS_TOLD or flags & _REMOTE or self.memory.get(above):
                    span.producer = above
            sent = None if span.producer is None or role == "settle" else self.memory.get(span.producer)
            if sent is None or not sent.known:  # it may have to wait
                span.resource, span.raw = encoded, raw
            told.later.append(span)

    def _report(self, raw: Any, found: dict[str, Any]) -> events.Sent:
        if len(raw.trace_id) != 16 or len(raw.span_id) != 8:
            raise Refused("a span has a trace id of 16 bytes and a span id of 8")
        try:
            summaries, polls, publishes = (found.get(name, "") for name in ("summaries", "polls", "publishes"))
            return events.report(summaries, polls, publishes, found.get("conflated", 0), self._most)
        except events.Malformed as malformed:
            raise Refused(str(malformed)) from None

    def _sent(
        self,
        route: Route,
        found: dict[str, Any],
        context: bytes,
        above: bytes | None,
        count: int,
        start: int,
        worker: str | None,
        told: Told,
    ) -> None:
        memory = self.memory
        teller = memory.wrapped(context)
        if teller is None and above is not None:
            teller = memory.get(above)
        if teller is not None and teller.context != context and teller.tells(route.broker, route.queue):
            told.folded += 1  # two spans of one publish: the one that came first has told of it
            memory.put(context, teller)
            return
        explicit = None if route.system in OFFSET_IDS else facts.message_id(found)
        known = memory.get(context)
        sent = _learn(known, route, found, context, explicit or context.hex(), count, start)
        if known is None:
            memory.put(context, sent)
        if explicit is not None:
            key = (route.broker, route.queue, explicit)
            placeholder = memory.get(key)
            if placeholder is not None and not placeholder.known:
                sent.deliveries = sent.deliveries or placeholder.deliveries
            memory.put(key, sent)
        if above is not None:
            memory.wrap(above, sent)
        if count == 1:
            salt = above[16:] if above else NOTHING
            told.rows.append(_enqueued(sent, sent.message_id, start, worker, context, ENQUEUED, salt))
            return
        for number in range(count):
            name, salt = f"{sent.message_id}.{number}", number.to_bytes(8, "big")
            told.rows.append(_enqueued(sent, name, start, worker, context, BATCHED, salt))

    def _sent_linked(
        self, route: Route, found: dict[str, Any], links: list[bytes], start: int, worker: str | None, told: Told
    ) -> None:
        """A send of messages that have a create span each: they are told of under the create spans' contexts."""
        for link in links:
            known = self.memory.get(link)
            sent = (
                known if known is not None and known.known else _learn(known, route, found, link, link.hex(), 1, start)
            )
            if known is None:
                self.memory.put(link, sent)
            if sent.context == link:  # told again by its create span, it has the same event id
                told.rows.append(_enqueued(sent, sent.message_id, start, worker, link, ENQUEUED, NOTHING))
        told.folded += 1

    def _deliver(self, span: MessagingSpan, told: Told) -> None:
        explicit = facts.message_id(span.found)
        context = span.context
        if span.route.role == "settle":
            if not span.links and explicit is None:
                told.ignored += 1  # an acknowledgement of nobody knows what
                return
            # The process span around it tells of the same ending: under its context both have the same event id.
            context = span.above or context
        elif not span.links and span.batch is not None and span.batch > 1:
            for number in range(span.batch):
                self._tell(span, context, None, f"{context.hex()}.{number}", number.to_bytes(8, "big"), told)
            return
        if len(span.links) > 1:
            for link in span.links:
                self._tell(span, context, link, None, link[16:], told)
            return
        tie = span.links[0] if span.links else span.producer
        if span.route.role == "settle" and not span.links:
            tie = None
        if explicit is not None:
            salt = crc32(explicit.encode()).to_bytes(8, "big")
        else:
            salt = NOTHING if tie is None else tie[16:]
        self._tell(span, context, tie, explicit, salt, told)

    def _tell(
        self, span: MessagingSpan, context: bytes, tie: bytes | None, explicit: str | None, salt: bytes, told: Told
    ) -> None:
        """The events of one message that a consumer's span stands for.

        ``tie`` is the context of the message's producer, ``explicit`` its id, as far as the span tells them.
        """
        route, found = span.route, span.found
        if tie is not None and route.system in OFFSET_IDS:
            explicit = None
        subscriber = found.get("subscriber")
        tenant, numbers = found.get("tenant"), facts.numbers(found)
        attempt, priority, enqueued_at, clock = numbers.attempt, numbers.priority, numbers.enqueued_at, numbers.clock
        message_id, broker, queue = explicit or (tie or context).hex(), route.broker, route.queue
        sent = self._remembered(route, tie, explicit)
        if sent is not None:
            process = route.role == "process"
            whose = subscriber or span.service  # few instrumentations name the consumer group
            seen = sent.attempt(whose, context[16:]) if process else sent.delivered(whose)
            if attempt is None:
                attempt = seen
            if sent.known:
                if sent.broker != broker and sent.queue == queue:
                    broker = sent.broker  # whose queue it is was found meanwhile: a message ends where it began
                message_id = sent.message_id
                if sent.count > 1:
                    message_id = explicit or f"{message_id}.{context[16:].hex()}"
                tenant = tenant or sent.tenant
                priority = sent.priority if priority is None else priority
                if enqueued_at is None:
                    enqueued_at, clock = sent.enqueued_at, sent.clock
        start, end, worker, took, rows = span.start, span.end, span.worker, None, told.rows
        # Rows are written out, column by column: put together from common parts they take three times as long.
        if route.role == "process":
            # An ending keeps the time with which the message joined the backlog, whoever knew of its schedule then.
            since, of = numbers.waits_since(enqueued_at, clock)
            at = start // 1000
            rows.append(
                (
                    "received",
                    broker,
                    queue,
                    subscriber,
                    tenant,
                    message_id,
                    attempt,
                    since,
                    at,
                    None,
                    priority,
                    worker,
                    None,
                    of,
                    context,
                    RECEIVED,
                    salt,
                )
            )
            if end >= start and span.ending in ("completed", "failed"):
                took = (end - start) / 1e9
        at = (end if end > start else start) // 1000
        rows.append(
            (
                span.ending,
                broker,
                queue,
                subscriber,
                tenant,
                message_id,
                attempt,
                enqueued_at,
                at,
                took,
                priority,
                worker,
                span.reason,
                clock,
                context,
                ENDED,
                salt,
            )
        )

    def _remembered(self, route: Route, tie: bytes | None, explicit: str | None) -> Sent | None:
        """The message as it is remembered, from now on at the latest; None for one without a name."""
        memory = self.memory
        sent = None if tie is None else memory.get(tie)
        if sent is None and explicit is not None:
            sent = memory.get((route.broker, route.queue, explicit))
        if sent is None and (tie is not None or explicit is not None):
            sent = Sent(route.broker, route.queue)
            memory.put(tie if tie is not None else (route.broker, route.queue, explicit or ""), sent)
        return sent


def _publishes(raw: Any, found: dict[str, Any]) -> bool:
    """Whether a send span is a call of the broker, by OpenTelemetry's conventions for messaging: of kind PRODUCER, or
    CLIENT for messages that have create spans of their own, which are none. One without a duration, as our client's,
    tells of none."""
    if raw.kind not in (PRODUCER, CLIENT) or raw.end_time_unix_nano <= raw.start_time_unix_nano:
        return False
    names = ("messaging.operation.type", "messaging.operation", "messaging.operation.name")
    return next((found[name] for name in names if found.get(name)), "") != "create"


def _checked(raw: Any, found: dict[str, Any]) -> tuple[bytes, bytes | None, list[bytes], int | None, int, int]:
    """(context, the parent's context, links, batch, start, end), which every messaging span has.

    Refused if one makes no sense.
    """
    trace_id, span_id, parent = raw.trace_id, raw.span_id, raw.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8:
        raise Refused("a span has a trace id of 16 bytes and a span id of 8")
    start, end = raw.start_time_unix_nano, raw.end_time_unix_nano
    if not (0 < start < LATEST and 0 < end < LATEST):
        raise Refused("a span has a start and an end between 1970 and 9999")
    batch: int | None = found.get("batch")
    links = facts.links(raw.links) if raw.links else []
    if len(links) > MOST_IN_BATCH or (batch is not None and not 0 <= batch <= MOST_IN_BATCH):
        raise Refused(f"a span may stand for at most {MOST_IN_BATCH} messages")
    above = trace_id + parent if len(parent) == 8 else None
    return trace_id + span_id, above, links, batch, start, end


def _poll(span: MessagingSpan) -> Poll:
    empty = None
    if span.batch is not None:
        empty = span.batch == 0
    elif span.links or facts.message_id(span.found) is not None:
        empty = False
    return Poll(span.route.broker, span.route.queue, span.found.get("subscriber"), empty, span.context)


def _learn(
    known: Sent | None, route: Route, found: dict[str, Any], context: bytes, message_id: str, count: int, start: int
) -> Sent:
    """What a send span tells of its message, filled in where something is ``known`` of it."""
    numbers, tenant = facts.numbers(found), found.get("tenant")
    sent_at = start // 1000 if numbers.enqueued_at is None else numbers.enqueued_at
    enqueued_at, clock = numbers.waits_since(sent_at, numbers.clock)
    if known is None:
        priority, broker, queue = numbers.priority, route.broker, route.queue
        return Sent(broker, queue, message_id, context, enqueued_at, clock, tenant, priority, count, True)
    known.enqueued_at, known.clock = enqueued_at, clock
    known.context, known.message_id, known.count, known.known = context, message_id, count, True
    known.tenant, known.priority = tenant, numbers.priority
    return known


def _enqueued(sent: Sent, name: str, start: int, worker: str | None, context: bytes, letter: bytes, salt: bytes) -> Row:
    return (
        "enqueued",
        sent.broker,
        sent.queue,
        None,
        sent.tenant,
        name,
        None,
        sent.enqueued_at,
        start // 1000,
        None,
        sent.priority,
        worker,
        None,
        sent.clock,
        context,
        letter,
        salt,
    )
