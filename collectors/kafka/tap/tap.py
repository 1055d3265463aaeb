"""The header tap: follows every record of the listed topics, and tells what became of it from offsets alone.

Each step reads what came, looks at what the groups committed, and commits what became known to bronze – the rows and,
in the same commit, how far each partition and group has come. A restart goes on exactly there: Kafka still holds what
has to be remembered, so nothing else is kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from collectors.bronze import Bronze
from collectors.commits import Commits
from collectors.context import Context
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.tap.begin import Known, begin
from collectors.kafka.tap.client import Consumed, TapAdmin, TapConsumer, TopicFacts
from collectors.kafka.tap.partition import Partition
from collectors.kafka.tap.records import Place
from collectors.kafka.tap.store import Commit, Store, group_key, position_key, topic_key
from collectors.records import Rejected, now_us
from collectors.thread import Threads

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_CHECK_EVERY = 2.0
_AT_ONCE = 20_000
_WAIT = 0.1


class KafkaTap:
    """One cluster's tap."""

    interval = 0.0  # reading waits for what comes

    def __init__(self, broker: KafkaBroker, context: Context) -> None:
        self.name = f"kafka-tap:{broker.name}"
        self._broker = broker
        self._settings = broker.tap
        self._topics = {topic.name: topic for topic in broker.tap.topics}
        self._collect = context.settings
        self._writer = context.writer
        self._metrics = context.metrics
        self._threads = Threads(self.name, 3)
        self._admin = TapAdmin(broker)
        self._reader = TapConsumer(broker)
        self._recaller = TapConsumer(broker)
        self._recalling: Place | None = None
        self._store: Store | None = None
        self._facts: dict[str, TopicFacts] = {}
        self._partitions: dict[Place, Partition] = {}
        self._awaited: set[str] = set()  # topics that were not there when they were first looked for
        self._reassign = False
        self._told: dict[str, int] = {}  # position keys as committed, or about to be
        self._noted: dict[str, int] = {}  # those of them that the next commit brings
        self._tables: list[pa.Table] = []
        self._lost: list[tuple[str, Rejected]] = []
        self._rows = 0
        self._commits = Commits(self._seal, self._write, self._heard)
        self._due = {"look": 0.0, "check": 0.0, "flush": 0.0}
        self._complaints: set[str] = set()

    # --- the collector's three verbs

    async def open(self) -> None:
        """Connect, and go on behind what bronze holds; what was read and not committed yet stays in hand."""
        await self._threads.do(self._admin.open)
        self._reassign, self._recalling = True, None
        await self._check()

    async def step(self) -> None:
        """Read, look, tell, commit."""
        now = time.monotonic()
        full = self._rows >= self._collect.buffer_capacity
        if full:
            await asyncio.sleep(_WAIT)
        elif self._partitions:
            read, recalled, looked = await asyncio.gather(
                self._read(), self._recall(), self._look(now), return_exceptions=True
            )
            # What was read is taken, whatever else failed: the consumers are past it.
            if isinstance(read, Consumed):
                self._take(read)
            if isinstance(recalled, Consumed):
                self._remember(recalled)
            for partition in self._partitions.values():
                if self._rows < self._collect.buffer_capacity:  # what is deferred stays in memory, and is told next
                    self._tell(partition.ended(_AT_ONCE))
            for failed in (read, recalled, looked):
                if isinstance(failed, BaseException):
                    raise failed
        else:
            await asyncio.sleep(_WAIT)
        if now >= self._due["check"]:
            await self._check()
        room, interval = self._collect.buffer_capacity, self._collect.flush_interval
        if now >= self._due["flush"] and self._commits.due(self._rows, room, interval):
            self._due["flush"] = now + interval
            await self._commits.flush()
        commit = self._commits.held
        held = commit.rows.num_rows if commit is not None and commit.rows is not None else 0
        self._metrics.buffered.labels(self.name).set(self._rows + held)

    async def close(self) -> None:
        """Commit what was read, then disconnect. What cannot be committed now is read again by the next run."""
        await self._commits.finish()
        if self._commits.at_work or self._rows:
            log.warning("%s: bronze takes nothing: what was read last is read again by the next run", self.name)
        await self._threads.do(self._reader.close)
        await self._threads.do(self._recaller.close)
        self._admin.close()
        self._threads.close()

    # --- the cluster's side

    async def _check(self) -> None:
        """Find topics and partitions that are new, recreated or gone, and what retention removed."""
        self._due["check"] = time.monotonic() + _CHECK_EVERY
        facts = await self._threads.do(lambda: self._admin.topics(self._topics))
        for name in self._topics.keys() - facts.keys():
            self._awaited.add(name)
            self._complain(f"topic {name!r} is not there")
        for name, fact in facts.items():
            self._complaints.discard(f"topic {name!r} is not there")
            before = self._facts.get(name)
            if before is not None and before.id != fact.id:
                self._forget(name)
                self._reassign = True
            self._facts[name] = fact
        new = [(n, p) for n, fact in facts.items() for p in fact.partitions if (n, p) not in self._partitions]
        if new:
            await self._begin(new)
            self._reassign = True
        lows = await self._threads.do(lambda: self._admin.lows(self._partitions))
        if any(low > group.told for place, low in lows.items() for group in self._partitions[place].groups.values()):
            # What a group has committed since the last look it had read before it was removed.
            self._due["look"] = 0.0
            await self._look(time.monotonic())
            for partition in self._partitions.values():
                self._tell(partition.ended())
        for place, low in lows.items():
            self._retained(place, low)
        if self._reassign:
            starts = {place: partition.position for place, partition in self._partitions.items()}
            await self._threads.do(lambda: self._reader.assign(starts))
            self._reassign = False

    async def _begin(self, places: list[Place]) -> None:
        """Follow these partitions from now on."""
        wanted: defaultdict[str, list[Place]] = defaultdict(list)
        for topic, partition in places:
            for group in self._topics[topic].groups:
                wanted[group].append((topic, partition))
        committed = await self._threads.do(lambda: self._admin.committed(wanted))
        ends = await self._threads.do(lambda: self._admin.ends(places))
        identities = {topic: self._facts[topic].id for topic, _ in places}
        later = self._awaited | {topic for topic, _ in self._partitions}

        def remember(store: Store) -> dict[Place, Known]:
            generations = {topic: store.generation(topic, identity) for topic, identity in identities.items()}
            return {place: self._known(store, place, generations[place[0]]) for place in places}

        known = await self._stored(remember)
        for (topic, _), of in known.items():
            keys = (topic_key(self.name, topic), topic_key(self.name, topic, identities[topic]))
            self._note(dict.fromkeys(keys, of.generation))
        later |= {topic for (topic, _), of in known.items() if of.position is not None or of.generation}
        for place in places:
            if place not in ends:
                continue  # it has no leader yet: the next check finds it again
            seen = {group: offsets[place] for group, offsets in committed.items() if place in offsets}
            self._partitions[place] = begin(
                self._broker, self._topics[place[0]], known[place], ends[place], seen, later=place[0] in later
            )

    def _known(self, store: Store, place: Place, generation: int) -> Known:
        label = f"{generation}:{place[0]}-{place[1]}" if generation else f"{place[0]}-{place[1]}"
        told = {group: store.reached(group_key(self.name, group, label)) for group in self._topics[place[0]].groups}
        return Known(label, generation, store.reached(position_key(self.name, label)), told)

    def _forget(self, topic: str) -> None:
        """The topic was deleted and recreated: what was unread of the old one has gone with it."""
        log.warning("%s: topic %s was recreated", self.name, topic)
        at = now_us()
        for place in [place for place in self._partitions if place[0] == topic]:
            partition = self._partitions.pop(place)
            self._tell(partition.deleted(at))
            self._note(self._progress(partition))
        if self._recalling is not None and self._recalling[0] == topic:
            self._recalling = None

    async def _read(self) -> Consumed:
        return await self._threads.do(lambda: self._reader.consume(_AT_ONCE, _WAIT))

    async def _recall(self) -> Consumed | None:
        """Read again what must be remembered, one partition at a time."""
        if self._recalling is None or self._partitions[self._recalling].to_recall() is None:
            self._recalling, start = next(
                (
                    (place, at)
                    for place, partition in self._partitions.items()
                    if (at := partition.to_recall()) is not None
                ),
                (None, 0),
            )
            if self._recalling is None:
                return None
            place = self._recalling
            await self._threads.do(lambda: self._recaller.assign({place: start}))
        return await self._threads.do(lambda: self._recaller.consume(_AT_ONCE, _WAIT))

    async def _look(self, now: float) -> None:
        if now < self._due["look"]:
            return
        self._due["look"] = now + self._settings.poll_interval
        wanted: defaultdict[str, list[Place]] = defaultdict(list)
        for place, partition in self._partitions.items():
            for group in partition.groups:
                wanted[group].append(place)
        if not wanted:
            return
        committed = await self._threads.do(lambda: self._admin.committed(wanted))
        at = now_us()  # after the answer: an upper bound
        for group, offsets in committed.items():
            for place, offset in offsets.items():
                if place in self._partitions:
                    self._partitions[place].groups[group].seen(offset, at)

    # --- what was read

    def _take(self, read: Consumed) -> None:
        now = now_us()
        for place, records in read.records.items():
            partition = self._partitions.get(place)
            if partition is not None:
                ahead = pc.sum(pc.greater(records.stamps, now)).as_py()
                if ahead:
                    self._metrics.skewed.labels(self.name).inc(ahead)
                self._tell(partition.arrived(records, now))
        if read.out_of_range:
            self._reassign = True  # retention was quicker: the next check finds out how much is lost

    def _remember(self, recalled: Consumed | None) -> None:
        place = self._recalling
        if recalled is None or place is None or place not in self._partitions:
            return
        partition = self._partitions[place]
        if place in recalled.records:
            partition.recalled(recalled.records[place])
        if place in recalled.ended:
            partition.recalled_all()
        if recalled.out_of_range:
            self._recalling = None

    def _retained(self, place: Place, low: int) -> None:
        partition = self._partitions[place]
        tables, gone = partition.retained(low, now_us())
        self._tell(tables)
        if gone:
            reason = f"retention removed up to {gone} records of {partition.label} before the tap had read them"
            log.error("%s: %s", self.name, reason)
            self._metrics.lost.labels(self.name).inc(gone)
            raw = json.dumps({"partition": partition.label, "first": low - gone, "last": low - 1})
            self._lost.append((partition.label, Rejected(low, now_us(), reason, raw, gone)))

    def _tell(self, tables: list[pa.Table]) -> None:
        self._tables += tables
        self._rows += sum(table.num_rows for table in tables)

    # --- bronze's side

    async def _stored(self, work: Callable[[Store], Result]) -> Result:
        def do(bronze: Bronze) -> Result:
            self._store = self._store or Store(bronze, self.name, self._collect.compact_every)
            return work(self._store)

        return await self._writer.do(do)

    def _progress(self, partition: Partition) -> dict[str, int]:
        positions = {position_key(self.name, partition.label): partition.position}
        for name, group in partition.groups.items():
            positions[group_key(self.name, name, partition.label)] = group.told
        return positions

    def _note(self, positions: dict[str, int]) -> None:
        """Let the next commit bring what of ``positions`` bronze does not hold yet."""
        new = {key: value for key, value in positions.items() if self._told.get(key) != value}
        self._told |= new
        self._noted |= new

    def _heard(self, failed: Exception | None) -> None:
        if failed is None:
            self._complaints.discard("bronze")
        else:
            self._complain(f"bronze takes nothing now, it is held and repeated: {failed}", key="bronze")

    def _seal(self) -> Commit | None:
        for partition in self._partitions.values():
            self._note(self._progress(partition))
        if not self._noted and not self._lost:
            return None
        rows = pa.concat_tables(self._tables) if self._tables else None
        commit = Commit(rows, self._noted, tuple(self._lost))
        self._tables, self._rows, self._noted, self._lost = [], 0, {}, []
        return commit

    async def _write(self, commit: Commit) -> None:
        with self._metrics.commit_seconds.labels(self.name).time():
            refused = await self._stored(lambda store: store.write(commit))
        if refused:
            self._metrics.rejected.labels(self.name).inc(refused)
        if commit.rows is not None:
            self._metrics.records.labels(self.name).inc(commit.rows.num_rows)
            newest = pc.max(commit.rows.column("occurred_at").cast(pa.int64())).as_py()
            self._metrics.commit_lag.labels(self.name).set((now_us() - newest) / 1e6)

    def _complain(self, what: str, key: str | None = None) -> None:
        """Say something once, until it is over."""
        if (key or what) not in self._complaints:
            self._complaints.add(key or what)
            log.warning("%s: %s", self.name, what)
