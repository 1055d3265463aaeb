"""Consumers' spans that came before their producer's: held for a while, so that they find its enqueue time and tenant.

Exporters send every few seconds, each process at its own time: of a message that is worked on at once, the consumer's
span comes first as often as not. Its sender is answered as soon as it is durable, like any other: here, in a journal on
the disk, which a restarted receiver reads. It is told as it is, its enqueue time unknown, when the time is up.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.receive.lean import DecodeError, LeanRequest
from collectors.receive.told import MessagingSpan

#: Queues whose producers do not report here are not waited for: after so many in vain, one of so many is tried.
_IN_VAIN, _TRIED = 200, 50
_MOST_QUEUES = 10_000
_LENGTH = 4  # bytes before each record


@dataclass(slots=True)
class _Held:
    span: MessagingSpan
    deadline: float
    journal: int


class Waiting:
    """At most ``most`` spans, each for ``seconds``; changes with :meth:`commit` alone. Times are of any one clock."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds, self._most = seconds, most
        self._held: deque[_Held] = deque()  # by deadline
        self._in_vain: dict[tuple[str, str], int] = {}
        self._tried = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def oldest_journal(self) -> int | None:
        """The first journal that still has a span that waits."""
        return self._held[0].journal if self._held else None

    def takes(self, span: MessagingSpan, more: int) -> bool:
        """Whether ``span`` is to wait, ``more`` others of its group with it."""
        if not self._seconds or len(self._held) + more >= self._most:
            return False
        if self._in_vain.get(_queue(span), 0) < _IN_VAIN:
            return True
        self._tried += 1
        return self._tried % _TRIED == 0

    def is_due(self, now: float) -> bool:
        """Whether the time of one is up."""
        return bool(self._held) and self._held[0].deadline <= now

    def ready(self, now: float, known: Callable[[MessagingSpan], bool]) -> list[MessagingSpan]:
        """Those whose producer is ``known`` now, or whose time is up, as they came."""
        return [one.span for one in self._held if one.deadline <= now or known(one.span)]

    def commit(
        self, released: Sequence[MessagingSpan], added: Sequence[MessagingSpan], journal: int, now: float
    ) -> None:
        """``released`` are in bronze, ``added`` in ``journal``."""
        if released:
            gone = {id(span) for span in released}
            for one in self._held:
                if id(one.span) in gone:
                    self._count(_queue(one.span), in_vain=one.deadline <= now)
            self._held = deque(one for one in self._held if id(one.span) not in gone)
        self._held += (_Held(span, now + self._seconds, journal) for span in added)

    def _count(self, queue: tuple[str, str], *, in_vain: bool) -> None:
        if not in_vain:
            self._in_vain.pop(queue, None)
            return
        if len(self._in_vain) >= _MOST_QUEUES:
            self._in_vain.clear()
        self._in_vain[queue] = self._in_vain.get(queue, 0) + 1


def _queue(span: MessagingSpan) -> tuple[str, str]:
    return span.route.broker, span.route.queue


class Journal:
    """Spans that wait, on the disk: one file for each while, removed when none of its spans waits any more."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._number, self._begun = 0, float("-inf")

    @property
    def number(self) -> int:
        """The file that is written to."""
        return self._number

    def append(self, spans: Sequence[MessagingSpan], now: float) -> None:
        """Write ``spans`` durably; OSError."""
        if not spans:
            return
        if now >= self._begun + self._seconds:
            self._number, self._begun = self._number + 1, now
        records = bytearray()
        for span in spans:
            body = span.encoded()
            records += len(body).to_bytes(_LENGTH, "big") + body
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / str(self._number)
        is_new = not path.exists()
        with open(path, "ab", opener=_private) as file:
            file.write(records)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _sync_folder(self._folder)

    def prune(self, oldest: int | None) -> None:
        """Remove the files before ``oldest``, or all where nothing waits."""
        for number, path in self._files():
            if oldest is None or number < oldest:
                path.unlink(missing_ok=True)
        if oldest is None:
            self._begun = float("-inf")

    def read(self) -> Iterator[Any]:
        """Every request that stands in the files, oldest first; then a new file is begun.

        A record that was cut off was never answered: what follows it is not read.
        """
        for number, path in self._files():
            self._number = max(self._number, number)
            content = path.read_bytes()
            at = 0
            while at + _LENGTH <= len(content):
                end = at + _LENGTH + int.from_bytes(content[at : at + _LENGTH], "big")
                if end > len(content):
                    break
                try:
                    yield LeanRequest.FromString(content[at + _LENGTH : end])
                except DecodeError:
                    break
                at = end

    def _files(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        return sorted((int(path.name), path) for path in self._folder.iterdir() if path.name.isdecimal())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
