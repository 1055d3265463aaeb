"""Reading every queue of one server, or cluster, once a cycle: many queues' commands in one batch, layout by layout."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from brokers.redis.resp import Refusal
from collectors.redis.layouts import chosen
from collectors.redis.layouts.base import UNREADABLE, Layout, Preparing, Read, Reading
from collectors.redis.scan import Scanner
from collectors.redis.server import Server
from collectors.redis.settings import RedisBroker
from collectors.remembered import Remembered
from collectors.samples import Sample

#: Queues whose commands are sent at once: some thousand commands, which the server answers in milliseconds.
_AT_ONCE = 500
#: Seconds that the first cycle may spend on finding the queues.
_FIRST_LOOK = 2.0


class RedisSource:
    """Samples of every queue, in every layout that the broker's settings choose."""

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker
        self._server = Server(broker)
        self._layouts = chosen(broker)
        self._scanners = {
            name: Scanner(search, broker.discover_every)
            for name, layout in self._layouts.items()
            if (search := layout.search()) is not None
        }
        self._remembered = {name: Remembered() for name in self._layouts}

    async def open(self) -> None:
        """Connect."""
        await self._server.open()

    async def read(self) -> list[Sample]:
        """Every queue once, at the server's time."""
        await self._server.synchronise()
        await self._discover()
        samples: list[Sample] = []
        told: set[tuple[str, str | None]] = set()
        for name, layout in self._layouts.items():
            found = await self._read_layout(name, layout)
            shared = {sample.queue for sample in found if (sample.queue, sample.subscriber) in told}
            for sample in found:
                key = sample.queue, sample.subscriber
                if key in told:  # two libraries' queues of one name
                    sample = replace(sample, queue=f"{name}:{sample.queue}")
                told.add(key)
                samples.append(replace(sample, dead_letter_for=_apart(sample.dead_letter_for, name, shared)))
        return samples

    async def close(self) -> None:
        """Disconnect."""
        await self._server.close()

    async def _discover(self) -> None:
        """Search on; at first until each search has seen the whole database, if that takes no longer than it may."""
        started = time.monotonic()
        for name, scanner in self._scanners.items():
            budget = max(1, self._broker.scan_budget // len(self._scanners))
            while True:
                await scanner.advance(self._server, budget, time.monotonic())
                if scanner.passes or time.monotonic() - started > _FIRST_LOOK:
                    break
            self._layouts[name].take(scanner.known, self._server.now())

    async def _read_layout(self, name: str, layout: Layout) -> list[Sample]:
        samples: list[Sample] = []
        try:
            await self._prepare(layout.prepare(self._server.now()))
        except (Refusal, *UNREADABLE) as error:
            why = str(error) if isinstance(error, Refusal) else f"what is kept cannot be read: {type(error).__name__}"
            searched = getattr(self._broker, name) is None
            if searched:
                why += f" (name the layouts that this server holds, and {name} is left alone)"
            known = [queue for queue, _ in layout.queues()] or [name]
            if known == [name] and searched and isinstance(error, Refusal) and error.code == "NODEDOWN":
                return []  # nobody said that the library is used here: there is nothing to be unknown
            now = self._server.now()
            return [sample for queue in known for sample in self._remembered[name].unread(queue, queue, now, why)]
        queues = list(layout.queues())
        self._remembered[name].keep({queue for queue, _ in queues})
        for some in _batches(queues, _AT_ONCE):
            samples += await self._read_batch(some, self._remembered[name])
        return samples

    async def _prepare(self, preparing: Preparing) -> None:
        commands = next(preparing, None)
        while commands is not None:
            answers = await self._server.ask(commands)
            try:
                commands = preparing.send(answers)
            except StopIteration:
                return

    async def _read_batch(self, queues: list[tuple[str, Read]], remembered: Remembered) -> list[Sample]:
        """Drive the readings in step: each round's commands of all of them are one batch."""
        now = self._server.now()
        samples: list[Sample] = []
        waiting: list[tuple[str, Reading, list[Any]]] = []

        def go_on(name: str, reading: Reading, answers: list[Any] | None) -> None:
            try:
                commands = next(reading) if answers is None else reading.send(answers)
            except StopIteration as ended:
                remembered.told(name, ended.value)
                samples.extend(ended.value)
            except Refusal as refusal:
                samples.extend(remembered.unread(name, name, now, str(refusal)))
            except UNREADABLE as error:
                why = f"the server's answer cannot be read: {type(error).__name__}"
                samples.extend(remembered.unread(name, name, now, why))
            else:
                waiting.append((name, reading, commands))

        for name, read in queues:
            go_on(name, read(now), None)
        while waiting:
            asked, waiting = waiting, []
            commands = [command for _, _, commands in asked for command in commands]
            answers = iter(await self._server.ask(commands) if commands else ())
            for name, reading, commands in asked:
                go_on(name, reading, list(islice(answers, len(commands))))
        return samples


def _apart(serves: str | None, layout: str, shared: Collection[str]) -> str | None:
    """The queues whose dead letters these are; names ``shared`` with another library by what tells them apart."""
    if serves is None or not shared:
        return serves
    return ",".join(f"{layout}:{queue}" if queue in shared else queue for queue in serves.split(","))


def _batches(queues: Iterable[tuple[str, Read]], size: int) -> Iterator[list[tuple[str, Read]]]:
    remaining = iter(queues)
    while some := list(islice(remaining, size)):
        yield some
