"""The tap: follows every message of the watched streams from what the broker tells, and writes its life to bronze.

Each step reads the tap's stream, looks at the consumers that are at work, and commits what became known. A commit's
number is the position in the tap's stream, so that a restart reads on exactly behind what is in the lake.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from brokers.errors import ConnectionLost
from brokers.nats.client import Client
from collectors.bronze import Bronze
from collectors.buffer import Batch, Buffer, position_of
from collectors.commits import Commits
from collectors.context import Context
from collectors.nats.attach import (
    StreamFacts,
    consumer_info,
    consumer_infos,
    ensure_republish,
    ensure_sampling,
    ensure_tap,
    stream_facts,
)
from collectors.nats.memory import Memory, recall, state_table
from collectors.nats.parse import Acknowledged, Advisory, Arrival, Malformed, microseconds, parse
from collectors.nats.reader import Message, Reader
from collectors.nats.settings import NatsBroker, StreamSettings
from collectors.nats.watch import Watch
from collectors.records import Event, Rejected, now_us
from collectors.sink import Sink
from lake.files import write_atomically

log = logging.getLogger(__name__)

#: Seconds from one look at all streams and consumers to the next; of many streams, so many for each.
_CHECK_EVERY, _CHECK_A_STREAM = 2.0, 0.05
#: Consumers that nobody waits for are looked at so often, and no more of them than so many a second.
_IDLE_LOOK_EVERY, _IDLE_LOOKS_A_SECOND = 1.0, 20
_LOOKS_AT_ONCE = 16
#: Events read ahead of a commit that is under way: more would only take memory, their source keeps them as well.
_AHEAD = 20_000


class NatsTap:
    """One broker's tap."""

    interval = 0.0  # reading waits for what comes

    def __init__(self, broker: NatsBroker, context: Context, named: set[str] | None = None) -> None:
        self.name = f"nats-tap:{broker.name}"
        self._named = set() if named is None else named  # streams whose only consumer is called by its name
        self._broker = broker
        # Nobody consumes a dead-letter stream: its depth is sampled, its messages ended in the queue it serves.
        self._streams = [stream for stream in broker.streams if stream.dead_letter_for is None]
        self._settings = context.settings
        self._writer = context.writer
        self._metrics = context.metrics
        self._client = Client(broker, "tap")
        self._reader: Reader | None = None
        self._app_id = ""
        self._sink: Sink | None = None
        self._buffer = Buffer(context.settings.buffer_capacity, 0)
        self._memory: Memory | None = None
        self._watches: dict[str, Watch] = {}
        self._events: list[Event] = []
        self._rejected: list[Rejected] = []
        self._position = 0
        self._read_to = 0  # the broker's time up to which all was read
        self._caught_up = False
        self._commits = Commits(lambda: self._buffer.seal(self._state), self._write, self._heard)
        self._due = {"flush": 0.0, "check": 0.0}
        self._looked: dict[tuple[str, str], float] = {}
        self._complaints: set[str] = set()

    # --- the collector's three verbs

    async def open(self) -> None:
        """Connect, prepare the broker, and go on behind what the lake holds."""
        await self._client.open()
        tap = await self._prepare()
        app_id = f"{self.name}@{tap.created}"
        if app_id != self._app_id:
            await self._resume(app_id, tap)
        await self._check(tap)
        self._reader = Reader(self._client, self._broker.tap.stream, self._position + 1)
        await self._reader.open()

    async def step(self) -> None:
        """Read, look, release, commit."""
        assert self._reader is not None
        poll = self._broker.tap.poll_interval
        if self._buffer.full:
            await asyncio.sleep(poll)
        elif self._commits.at_work and "lake" not in self._complaints and len(self._buffer) >= _AHEAD:
            await self._commits.wait(poll)  # the lake is the slower one, and takes what it can
            self._due["flush"] = 0.0
        else:
            _, looks = await asyncio.gather(self._reader.wait(poll), self._look())
            messages = await self._reader.take()  # all that came before the looks' answers, too
            self._read(messages)
            self._take(looks, quiet=not messages)
        for watch in self._watches.values():
            watch.tracker.release(self._read_to)
        self._keep()
        now = time.monotonic()
        if now >= self._due["check"]:
            tap = await stream_facts(self._client, self._broker.tap.stream)
            if tap is None or f"{self.name}@{tap.created}" != self._app_id:
                raise ConnectionLost(f"the tap's stream {self._broker.tap.stream!r} was deleted")
            await self._check(tap)
        held, interval = len(self._buffer), self._settings.flush_interval
        if now >= self._due["flush"] and self._commits.due(held, self._settings.buffer_capacity, interval):
            self._due["flush"] = now + interval
            await self._commits.flush()

    async def close(self) -> None:
        """Commit what was read, then disconnect. What cannot be committed now is read again by the next run."""
        self._keep()
        await self._commits.finish()
        if self._commits.held is not None or len(self._buffer):
            log.warning("%s: the lake takes nothing: what was read last is read again by the next run", self.name)
        if self._reader is not None:
            await self._reader.close()
        await self._client.close()

    # --- the broker's side

    async def _prepare(self) -> StreamFacts:
        facts = {stream.name: await stream_facts(self._client, stream.name) for stream in self._streams}
        return await ensure_tap(self._client, self._broker.tap, facts)

    async def _check(self, tap: StreamFacts) -> None:
        """Find streams and consumers that are new, and fix what the tap did not show."""
        self._due["check"] = time.monotonic() + max(_CHECK_EVERY, _CHECK_A_STREAM * len(self._streams))
        self._caught_up = self._caught_up or tap.last <= self._position
        for settings in self._streams:
            facts = await stream_facts(self._client, settings.name)
            if facts is None:
                self._complain(f"stream {settings.name!r} is not there yet")
                continue
            consumers = await consumer_infos(self._client, settings.name)
            for info in consumers.values():
                if info["config"].get("durable_name"):
                    await ensure_sampling(self._client, settings.name, info)
            watch = self._watches.get(settings.name)
            if watch is not None and watch.facts.created != facts.created:
                await self._forget(watch)
                watch = None
            if watch is None:
                await self._begin(settings, facts, consumers)
                continue
            watch.facts = facts
            watch.consume(consumers)
            await watch.meet(self._client, self._broker.tap.first_look_limit)
            await watch.find_missing(self._client)
            watch.check(tap.last, self._position, self._now_there())
        if len(self._watches) == len(self._streams):
            self._memory = None  # every stream has taken its part
        self._named.update(name for name, watch in self._watches.items() if watch.met)
        forgotten = sum(watch.tracker.pending.forgotten for watch in self._watches.values())
        self._metrics.forgotten.labels(self.name).set(forgotten)
        self._keep()

    async def _begin(self, settings: StreamSettings, facts: StreamFacts, consumers: dict[str, dict[str, Any]]) -> None:
        """Watch a stream from now on."""
        memory = self._memory
        assert memory is not None
        await ensure_tap(self._client, self._broker.tap, {settings.name: facts})
        await ensure_republish(self._client, facts, self._broker.tap)
        facts = await stream_facts(self._client, settings.name) or facts
        generation = await self._writer.do(lambda lake: self._generation(lake, settings.name, facts.created))
        tap = self._broker.tap
        watch = Watch.begin(settings, tap, facts, consumers, memory, generation, self._events)
        self._watches[settings.name] = watch
        if not memory.knows(settings.queue_name) or watch.tracker.pending.top == 0:
            found = await watch.look_back(self._client, tap.first_look_limit)
            if found:
                log.info("%s: %s messages were waiting in %s already", self.name, found, settings.name)
            if found >= tap.first_look_limit > 0:
                log.warning("%s: only the oldest %s messages in %s are seen", self.name, found, settings.name)
        else:
            await watch.meet(self._client, tap.first_look_limit)

    def _generation(self, lake: Bronze, stream: str, created: str) -> int:
        """How often the stream was deleted and recreated since it was first watched: its sequences began again."""
        path = lake.state_path("collect", f"{self.name.replace(':', '_')}.streams.json")
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        before = known.get(stream)
        if before and before["created"] == created:
            return int(before["generation"])
        known[stream] = {"created": created, "generation": before["generation"] + 1 if before else 0}
        write_atomically(path, json.dumps(known))
        return int(known[stream]["generation"])

    async def _forget(self, watch: Watch) -> None:
        """The stream was deleted and recreated: write what is known of the old one, then begin from the lake."""
        log.warning("%s: stream %s was recreated", self.name, watch.settings.name)
        del self._watches[watch.settings.name]
        await self._settle_lake()

    # --- the lake's side

    async def _resume(self, app_id: str, tap: StreamFacts) -> None:
        """Go on where the lake says that we were."""
        if self._sink is not None:
            log.warning("%s: the tap's stream was recreated: what it still held is lost", self.name)
            await self._settle_lake()
        self._watches.clear()
        broker, every = self._broker.name, self._settings.compact_every

        def recover(lake: Bronze) -> tuple[Sink, int | None, Memory]:
            sink = Sink(lake, broker=broker, source=self.name, app_id=app_id, compact_every=every)
            version = sink.recover()
            return sink, version, recall(lake, self.name, sink.state())

        self._sink, version, self._memory = await self._writer.do(recover)
        self._position = position_of(version) if version is not None else max(0, tap.first - 1)
        self._buffer = Buffer(self._settings.buffer_capacity, version if version is not None else 0)
        self._buffer.add([], [], self._position)
        self._app_id = app_id

    async def _settle_lake(self) -> None:
        """Commit everything, then remember from the lake."""
        self._keep()
        while self._commits.held is not None or len(self._buffer):
            await self._commits.flush()
            await self._commits.wait()
            await asyncio.sleep(0.05)
        sink = self._sink
        assert sink is not None
        self._memory = await self._writer.do(lambda lake: recall(lake, self.name, sink.state()))

    def _keep(self) -> None:
        """Hand what became known to the buffer."""
        if self._rejected:
            self._metrics.rejected.labels(self.name).inc(len(self._rejected))
        if self._events or self._rejected:
            before = self._buffer.conflated
            self._buffer.add(self._events, self._rejected, self._position)
            if self._buffer.conflated > before:
                self._metrics.conflated.labels(self.name).inc(self._buffer.conflated - before)
                self._complain(f"the buffer of {self._buffer.capacity} events is full: events are rolled up")
            self._events.clear()
            self._rejected.clear()
        held = self._commits.held
        self._metrics.buffered.labels(self.name).set(len(self._buffer) + len(held.events if held else ()))

    def _heard(self, failed: Exception | None) -> None:
        if failed is None:
            self._complaints.discard("lake")
        else:
            self._complain(f"the lake takes nothing now, {self.name} holds and repeats: {failed}", key="lake")

    def _state(self) -> Any:
        return state_table(
            (watch.settings.queue_name, watch.generation, watch.tracker.pending) for watch in self._watches.values()
        )

    async def _write(self, batch: Batch) -> None:
        sink = self._sink
        assert sink is not None
        with self._metrics.commit_seconds.labels(self.name).time():
            refused = await self._writer.do(lambda lake: sink.write(batch))
        if refused:
            self._metrics.rejected.labels(self.name).inc(refused)
        self._metrics.records.labels(self.name).inc(len(batch.events) + (batch.rollup.events if batch.rollup else 0))
        if batch.events:
            lag = (now_us() - max(event.occurred_at for event in batch.events)) / 1e6
            self._metrics.commit_lag.labels(self.name).set(lag)

    # --- what the broker tells

    def _read(self, messages: list[Message]) -> None:
        for message in messages:
            if message.sequence > self._position + 1:
                self._gap(message.sequence - 1)
            self._position = message.sequence
            try:
                record = parse(message.subject, message.headers, message.data)
            except Malformed as error:
                self._reject(message, str(error))
                continue
            watch = self._watches.get(record.stream) if record is not None else None
            if watch is None:
                continue
            if isinstance(record, Arrival):
                watch.arrived(record.sequence, record.stored_at, record.subject, record.headers)
            elif isinstance(record, Acknowledged):
                watch.tracker.acknowledged(record)
            elif isinstance(record, Advisory):
                watch.tracker.advised(record)
            else:
                self._due["check"] = 0.0  # a new consumer: let its acknowledgements be told at once
        if messages:
            self._read_to = max(self._read_to, messages[-1].stored_at)
            self._caught_up = messages[-1].pending == 0
            unmatched = sum(watch.tracker.unmatched for watch in self._watches.values())
            self._metrics.unmatched.labels(self.name).set(unmatched)

    def _gap(self, last: int) -> None:
        """The tap's stream discarded records before they were read."""
        lost = last - self._position
        self._metrics.lost.labels(self.name).inc(lost)
        reason = f"the tap's stream discarded {lost} records before they were read: give it more max_bytes or max_age"
        log.error("%s: %s", self.name, reason)
        raw = json.dumps({"first": self._position + 1, "last": last})
        self._rejected.append(Rejected(last, now_us(), reason, raw, lost))

    def _reject(self, message: Message, reason: str) -> None:
        raw = json.dumps(
            {
                "subject": message.subject.decode("utf-8", "replace"),
                "headers": message.headers.decode("utf-8", "replace"),
                "data": message.data.decode("utf-8", "replace"),
            },
            ensure_ascii=False,
        )
        self._rejected.append(Rejected(message.sequence, message.stored_at, reason, raw))

    async def _look(self) -> list[tuple[Watch, str, dict[str, Any]]]:
        """Ask how far the consumers are whose messages wait for a receipt to be told; the others less often."""
        now = time.monotonic()
        wanted = []
        number = sum(len(watch.consumers) for watch in self._watches.values())
        idle = max(_IDLE_LOOK_EVERY, number / _IDLE_LOOKS_A_SECOND)
        for name, watch in self._watches.items():
            every = self._broker.tap.poll_interval if watch.busy else idle
            wanted += [
                (self._looked.get((name, consumer), 0.0), name, consumer)
                for consumer in watch.consumers
                if now - self._looked.get((name, consumer), 0.0) >= 0.9 * every
            ]
        chosen = [(name, consumer) for _, name, consumer in sorted(wanted)[:_LOOKS_AT_ONCE]]
        infos = await asyncio.gather(*(consumer_info(self._client, *one) for one in chosen))
        looks = []
        for (name, consumer), info in zip(chosen, infos, strict=True):
            self._looked[name, consumer] = now
            if info is not None:
                looks.append((self._watches[name], consumer, info))
                await ensure_sampling(self._client, name, info)
        return looks

    def _take(self, looks: list[tuple[Watch, str, dict[str, Any]]], *, quiet: bool) -> None:
        for watch, consumer, info in looks:
            watch.looked(consumer, info)
            if quiet and self._caught_up:
                self._read_to = max(self._read_to, microseconds(info["ts"]))

    def _now_there(self) -> int:
        """The broker's time as far as it is known."""
        return self._read_to or now_us()

    def _complain(self, what: str, key: str | None = None) -> None:
        """Say something once, until it is over."""
        if (key or what) not in self._complaints:
            self._complaints.add(key or what)
            log.warning("%s: %s", self.name, what)
