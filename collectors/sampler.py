"""The sampler of every kind of broker: reads all queues once a cycle, writes what they said, and shows it.

A kind of broker brings a :class:`Source`: its client (only I/O) and a pure function from the answers to samples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from brokers.errors import ConnectionLost
from collectors.cadence import Cadence
from collectors.context import Context
from collectors.isolate import append_rejected, append_sifted, sifted
from collectors.records import Rejected
from collectors.samples import Sample, samples_table, unread, was_read
from lake.errors import SojournError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
#: Why a queue, or a subscriber, of which the broker told before is unknown.
_GONE = "the broker has it no more"


class Source(Protocol):
    """How one kind of broker is read. All three raise ConnectionLost or CredentialsRefused as they find it."""

    async def open(self) -> None:
        """Connect; may be called again after a lost connection."""
        ...

    async def read(self) -> Sequence[Sample]:
        """Every queue once. One that cannot be read is :func:`collectors.samples.unread`, and never an exception;
        one that is gone is left out."""
        ...

    async def close(self) -> None:
        """Disconnect; never raises for a broker that is gone."""
        ...


class Sampler:
    """A collector of samples of one broker."""

    def __init__(self, kind: str, broker: str, source: Source, context: Context, interval: float | None = None) -> None:
        self.name = f"{kind}-sampler:{broker}"
        self._cadence = Cadence(interval or context.settings.sample_interval)
        self.source = source
        self._broker = broker
        self._writer = context.writer
        self._metrics = context.metrics
        self._board = context.board
        self._puzzled = ""
        self._told: dict[tuple[str, str | None], str | None] = {}  # each row of the last reading → whose dead letters

    @property
    def interval(self) -> float:
        """Seconds from one reading to the next: longer than was wanted where a reading takes longer."""
        return self._cadence.interval

    async def open(self) -> None:
        """Connect."""
        await self._guarded(self.source.open)

    async def step(self) -> None:
        """Read every queue once; show and write what was read."""
        began = time.monotonic()
        await self._step()
        took = self._cadence.took(time.monotonic() - began)
        if took is not None:
            log.warning("%s: a cycle takes %.1f s: sampling each %g s from now on", self.name, took, self.interval)
        self._metrics.interval.labels(self.name).set(self.interval)

    async def _step(self) -> None:
        try:
            samples, table, bad = await self._guarded(self._read)
        except BaseException:
            self._board.forget(self.name)  # a number that nobody reads any more must not look alive
            raise
        self._puzzled = ""
        self._board.show(self.name, self._broker, samples)
        self._metrics.queues.labels(self.name).set(len(samples))
        self._metrics.unread_queues.labels(self.name).set(sum(not was_read(sample) for sample in samples))
        if table.num_rows:
            unwritten = await self._writer.do(lambda bronze: append_sifted(bronze, "queue_samples", table))
            self._metrics.records.labels(self.name).inc(table.num_rows - len(unwritten))
            bad += unwritten
        self._told = {(one.queue, one.subscriber): one.dead_letter_for for one in samples}
        if bad:
            await self._writer.do(lambda bronze: append_rejected(bronze, bad, self.name))
            self._metrics.rejected.labels(self.name).inc(len(bad))

    async def _read(self) -> tuple[Sequence[Sample], pa.Table, list[Rejected]]:
        """What was read, as rows, and what no row can be made of: one queue's, and no other's fault."""
        samples = await self.source.read()
        gone = self._gone(samples)
        try:
            return samples, self._rows([*samples, *gone]), []
        except (ArithmeticError, TypeError, ValueError):
            good, bad = sifted(samples, self._rows)
        return good, self._rows([*good, *gone]), bad

    def _gone(self, samples: Sequence[Sample]) -> list[Sample]:
        """What was told before and is not there any more, as unknown: at its last values it would look alive, and its
        age would grow for ever."""
        missing = self._told.keys() - {(one.queue, one.subscriber) for one in samples}
        if not missing:
            return []
        at = max((one.sampled_at for one in samples), default=time.time_ns() // 1000)
        return [
            unread(queue, at, _GONE, subscriber=subscriber, dead_letter_for=self._told[queue, subscriber])
            for queue, subscriber in sorted(missing, key=str)
        ]

    def _rows(self, samples: Sequence[Sample]) -> pa.Table:
        return samples_table(samples, self._broker, self.name, self.interval)

    async def close(self) -> None:
        """Disconnect."""
        self._board.forget(self.name)
        await self.source.close()

    async def _guarded(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """What ``work`` returns; an answer that nobody foresaw is this broker's trouble and ends no other collector."""
        try:
            return await work()
        except SojournError:
            raise
        except Exception as error:
            what = type(error).__name__  # its words may be the broker's, and different each time
            if what != self._puzzled:
                self._puzzled = what
                log.exception("%s: an answer that cannot be read", self.name)
            raise ConnectionLost(f"broker {self._broker!r} gave an answer that cannot be read ({what})") from None
