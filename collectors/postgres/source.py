"""Reading every queue of one database once a cycle, layout by layout: each statement's trouble is its own queues'."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from brokers.errors import ConnectionLost
from collectors.broker import matching
from collectors.postgres import catalogue
from collectors.postgres.connection import Connection, Refusal, Row
from collectors.postgres.counting import Dead, Queue, count, count_dead, dead_of, tallied
from collectors.postgres.layouts import LAYOUTS
from collectors.postgres.layouts.base import Found, Lacking, Layout
from collectors.postgres.parse import Facts, dated, dead_sample, sample
from collectors.postgres.settings import PostgresBroker
from collectors.remembered import Remembered
from collectors.samples import Sample, unread

_STANDING = """
SELECT extract(epoch FROM now())::float8, pg_is_in_recovery(),
  CASE WHEN NOT pg_is_in_recovery() OR pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
    ELSE extract(epoch FROM now() - pg_last_xact_replay_timestamp()) END::float8"""
#: Where the oldest job that runs was begun so many seconds ago at most, somebody is at work, listed or not.
_LATELY = 60.0


class PostgresSource:
    """Samples of every queue, in every layout that the broker's settings choose."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._broker = broker
        self._connection = Connection(broker)
        self._chosen = {name: (LAYOUTS[name], settings) for name, settings in broker.chosen().items()}
        self._remembered = {name: Remembered() for name in self._chosen}
        self._seen: dict[str, dict[str, float]] = {name: {} for name in self._chosen}  # queue → when it had jobs last
        self._found: dict[str, Found] = {}
        self._looked: float | None = None
        self._now = 0.0  # the database's, in seconds since 1970
        self._staleness: float | None = 0.0

    async def open(self) -> None:
        """Connect."""
        self._looked = None
        await self._connection.open()

    async def read(self) -> list[Sample]:
        """Every queue once, at the database's time."""
        await self._stand()
        await self._look()
        samples: list[Sample] = []
        told: set[str] = set()
        for name in self._chosen:
            for one in await self._read_layout(name):
                if one.queue in told:  # two libraries' queues of one name
                    one = replace(one, queue=f"{name}:{one.queue}")
                    if one.dead_letter_for is not None:
                        one = replace(one, dead_letter_for=f"{name}:{one.dead_letter_for}")
                told.add(one.queue)
                samples.append(one)
        return samples

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def _stand(self) -> None:
        """The database's time, and whether this is still the place to ask."""
        try:
            ((self._now, standby, self._staleness),) = await self._connection.ask(_STANDING)
        except Refusal as refusal:
            await self._connection.close()
            raise ConnectionLost(f"broker {self._broker.name!r} does not answer: {refusal}") from None
        if standby and not self._broker.read_replica:
            await self._connection.close()
            raise ConnectionLost(
                f"broker {self._broker.name!r} is a standby: name the primary, or set read_replica = true"
            )

    async def _look(self) -> None:
        """See which tables there are, now and then."""
        clock = time.monotonic()
        if self._looked is not None and clock < self._looked + self._broker.discover_every:
            return
        pairs = list(self._chosen.values())
        try:
            tables = await self._connection.ask(catalogue.tables_wanted(pairs))
            labels = await self._connection.ask(catalogue.labels_wanted(pairs))
        except Refusal as refusal:
            if self._found:
                return  # what was there before has to do
            await self._connection.close()
            raise ConnectionLost(f"the catalogue of broker {self._broker.name!r} cannot be read: {refusal}") from None
        self._found = catalogue.found(self._chosen, tables, labels, self._broker.scan_at_most)
        self._looked = clock

    async def _read_layout(self, name: str) -> list[Sample]:
        layout, found = self._chosen[name][0], self._found[name]
        lacks = layout.lacks(found)
        if lacks is not None:
            kind, why = lacks
            known = self._seen[name]
            if kind == "absent" and not self._broker.is_named(name) and not known:
                return []
            return self._unread(name, known or [name], why)
        reading = _Reading(self._connection, layout, found, self._broker.most_queues)
        await reading.run()
        if reading.missing:
            self._looked = None  # the tables have changed: look at them before the next cycle
        return self._told(name, reading)

    def _told(self, name: str, reading: _Reading) -> list[Sample]:
        """The samples of one layout; queues that have no jobs any more are empty for a while."""
        now, seen = self._now, self._seen[name]
        there = {*reading.queues, *reading.facts, *reading.dead}
        seen |= dict.fromkeys(there, now)
        for queue in [queue for queue, at in seen.items() if at < now - self._broker.forget_after]:
            del seen[queue]
        samples: list[Sample] = []
        remembered = self._remembered[name]
        for queue in sorted(seen):
            if self._broker.queues and not matching(queue, self._broker.queues):
                continue
            why = reading.unread.get(queue) or reading.unread.get(None)
            if why is not None:
                samples += remembered.unread(queue, queue, round(now * 1e6), why)
                continue
            rows = [sample(reading.layout, queue, reading.queues.get(queue, Queue()), self._facts(reading, queue), now)]
            rows += self._dead_row(reading, queue)
            rows = [dated(row, self._staleness) for row in rows]
            remembered.told(queue, rows)
            samples += rows
        remembered.keep(set(seen))
        if not seen and (why := reading.unread.get(None)) is not None:
            samples.append(unread(name, round(now * 1e6), why))
        return samples

    def _facts(self, reading: _Reading, queue: str) -> Facts:
        facts = reading.facts.get(queue, Facts())
        layout = reading.layout
        consumers: int | str = reading.no_consumers
        if reading.consumers is not None:
            consumers = sum(number for pattern, number in reading.consumers if layout.takes(pattern, queue))
            began = reading.queues.get(queue, Queue()).whole.began
            if not consumers and began is not None and self._now - began < _LATELY:
                consumers = "none is listed, and yet somebody began its jobs within the last minute"
        return replace(
            facts,
            consumers=consumers,
            no_running=reading.no_running,
            no_state=reading.no_state,
            rules=reading.found.rules,
        )

    def _dead_row(self, reading: _Reading, queue: str) -> list[Sample]:
        layout = reading.layout
        if layout.dead is None or (reading.dead_unread is None and reading.no_dead):
            return []
        letters = f"{queue}.{layout.word}"
        at = round(self._now * 1e6)
        if reading.dead_unread is not None:
            return [unread(letters, at, reading.dead_unread, dead_letter_for=queue)]
        return [dead_sample(layout, letters, queue, reading.dead.get(queue, Dead(0, None)), self._now)]

    def _unread(self, name: str, queues: Iterable[str], why: str) -> list[Sample]:
        at = round(self._now * 1e6)
        return [one for queue in queues for one in self._remembered[name].unread(queue, queue, at, why)]


class _Reading:
    """One layout's statements of one cycle, and what they told; each may be refused for itself."""

    def __init__(self, connection: Connection, layout: Layout, found: Found, most_queues: int) -> None:
        self._connection = connection
        self.layout, self.found, self._most = layout, found, most_queues
        self.queues: dict[str, Queue] = {}
        self.dead: dict[str, Dead] = {}
        self.facts: dict[str, Facts] = {}
        self.unread: dict[str | None, str] = {}  # queue, or None for all → why
        self.dead_unread: str | None = None
        self.no_dead = False  # this version of the library keeps none
        self.consumers: list[tuple[str, int]] | None = None
        self.no_consumers = layout.untold.get("consumers", "the library does not list its consumers")
        self.no_running: str | None = None
        self.no_state = "the library keeps no states of queues"
        self.missing = False

    async def run(self) -> None:
        """Ask for everything."""
        await self._jobs()
        await self._dead()
        await self._others()

    async def _ask(self, statement: str) -> list[Row]:
        try:
            return await self._connection.ask(statement)
        except Refusal as refusal:
            self.missing = self.missing or refusal.missing
            raise

    async def _jobs(self) -> None:
        layout, found = self.layout, self.found
        self.no_running = layout.untold_running(found)
        resolve = layout.resolve(found) if layout.resolve is not None else None
        try:
            parts = layout.jobs(found)
        except Lacking as lacking:
            self.unread[None] = str(lacking)
            return
        for part in parts:
            try:
                rows = await self._ask(count(part.select, self._most, resolve))
            except Refusal as refusal:
                self.unread |= dict.fromkeys(part.queues or (None,), str(refusal))
                self.queues |= {queue: Queue() for queue in part.queues}
            else:
                self.queues |= tallied(rows, found.rules)

    async def _dead(self) -> None:
        if self.layout.dead is None:
            return
        try:
            select = self.layout.dead(self.found)
            if select is None:
                self.no_dead = True
                return
            self.dead = dead_of(await self._ask(count_dead(select, self._most)))
        except (Lacking, Refusal) as reason:
            self.dead_unread = str(reason)

    async def _others(self) -> None:
        layout, found = self.layout, self.found
        if layout.queues is not None and (select := layout.queues(found)) is not None:
            try:
                rows = await self._ask(f"SELECT * FROM ({select}) AS q LIMIT {self._most}")
            except Refusal as refusal:
                self.no_state = f"its queues cannot be listed: {refusal}"
            else:
                self.facts = {str(queue): Facts(paused, letters) for queue, paused, letters in rows}
        if layout.consumers is not None and (select := layout.consumers(found)) is not None:
            try:
                self.consumers = [(str(queue), number) for queue, number in await self._ask(select)]
            except Refusal as refusal:
                self.no_consumers = str(refusal)
