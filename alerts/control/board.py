"""The board on which stands what producers must know, for whoever serves it; those who wait are woken by a change."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

#: Changes that are remembered to answer what came since a version: so many, and with so many items in all.
MOST_CHANGES, MOST_CHANGED = 1_000, 200_000

#: What an item on the board is about: its kind, broker, queue, and tenant ("" for a whole queue).
ItemKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class ServedLimit:
    """One limit as producers get it: ``rate`` in messages/s, ``burst`` in messages."""

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float
    valid_until: datetime
    reason: str
    action_id: str

    @property
    def key(self) -> ItemKey:
        """What it is about."""
        return "limit", self.broker, self.queue, self.tenant


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a tenant may send whatever happens: ``rate`` in messages/s, ``burst`` in messages.

    It binds only while its queue is congested. ``tenant`` "*" is everybody who has none of his own.
    """

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float

    @property
    def key(self) -> ItemKey:
        """What it is about."""
        return "entitled", self.broker, self.queue, self.tenant


@dataclass(frozen=True, slots=True)
class Congestion:
    """A queue whose entitlements bind, until its lease ends."""

    broker: str
    queue: str
    valid_until: datetime
    reason: str

    @property
    def key(self) -> ItemKey:
        """What it is about."""
        return "congested", self.broker, self.queue, ""


Item = ServedLimit | Entitlement | Congestion


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that stands at one version. Versions grow, over restarts as well."""

    version: int
    items: Mapping[ItemKey, Item]

    @property
    def limits(self) -> tuple[ServedLimit, ...]:
        """The limits in force."""
        return tuple(item for item in self.items.values() if isinstance(item, ServedLimit))


@dataclass(frozen=True, slots=True)
class Change:
    """What came, or came to be otherwise, and what is gone, up to ``version``."""

    version: int
    items: Mapping[ItemKey, Item]
    gone: frozenset[ItemKey]


class Board:
    """Holds the newest :class:`Snapshot`. ``publish`` may come from any thread, waiting is for asyncio."""

    def __init__(self, max_waiters: int = 1000) -> None:
        self._lock = threading.Lock()
        self._max_waiters = max_waiters
        self._waiters: dict[asyncio.AbstractEventLoop, set[asyncio.Event]] = {}
        self._snapshot = Snapshot(time.time_ns() // 1000, {})
        #: The newest last; the first is of the version after ``_complete_since``.
        self._changes: deque[Change] = deque()
        self._complete_since = self._snapshot.version
        self.closed = False

    @property
    def snapshot(self) -> Snapshot:
        """What stands now."""
        return self._snapshot

    @property
    def waiting(self) -> int:
        """How many wait for a change."""
        with self._lock:
            return sum(map(len, self._waiters.values()))

    def publish(self, limits: Iterable[ServedLimit]) -> None:
        """Put ``limits`` in place of all limits before."""
        self._replace("limit", limits)

    def publish_entitlements(self, entitlements: Iterable[Entitlement]) -> None:
        """Put ``entitlements`` in place of all before."""
        self._replace("entitled", entitlements)

    def publish_congestion(self, congested: Iterable[Congestion]) -> None:
        """Say which queues are congested now, in place of all before."""
        self._replace("congested", congested)

    def since(self, version: int) -> Change | None:
        """What changed after ``version``; None where that is not known any more, or never was."""
        with self._lock:
            if not self._complete_since <= version <= self._snapshot.version:
                return None
            later = [change for change in self._changes if change.version > version]
            newest = self._snapshot.version
        items: dict[ItemKey, Item] = {}
        gone: set[ItemKey] = set()
        for change in later:
            items.update(change.items)
            gone -= change.items.keys()
            gone |= change.gone
            for key in change.gone:
                items.pop(key, None)
        return Change(newest, items, frozenset(gone))

    async def changed(self, version: int, seconds: float) -> bool:
        """Wait until the version is another than ``version``, at most ``seconds``.

        False at once where too many wait already: the caller should come back later.
        """
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._snapshot.version != version or self.closed:
                return True
            if sum(map(len, self._waiters.values())) >= self._max_waiters:
                return False
            self._waiters.setdefault(loop, set()).add(event)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        finally:
            with self._lock:
                there = self._waiters.get(loop, set())
                there.discard(event)
                if not there:
                    self._waiters.pop(loop, None)
        return True

    def close(self) -> None:
        """Let all who wait go: a server that stops must not wait for them."""
        with self._lock:
            self.closed = True
            self._wake()

    def _replace(self, kind: str, items: Iterable[Item]) -> None:
        wanted = {item.key: item for item in items}
        with self._lock:
            before = self._snapshot.items
            changed = {key: item for key, item in wanted.items() if before.get(key) != item}
            gone = frozenset(key for key in before if key[0] == kind and key not in wanted)
            if not changed and not gone:
                return
            kept = {key: item for key, item in before.items() if key[0] != kind}
            version = max(self._snapshot.version + 1, time.time_ns() // 1000)
            self._snapshot = Snapshot(version, kept | wanted)
            self._remember(Change(version, changed, gone))
            self._wake()

    def _remember(self, change: Change) -> None:
        self._changes.append(change)
        size = sum(len(one.items) + len(one.gone) for one in self._changes)
        while self._changes and (len(self._changes) > MOST_CHANGES or size > MOST_CHANGED):
            oldest = self._changes.popleft()
            size -= len(oldest.items) + len(oldest.gone)
            self._complete_since = oldest.version

    def _wake(self) -> None:
        for loop, events in self._waiters.items():
            waiting = list(events)

            def set_all(waiting: list[asyncio.Event] = waiting) -> None:
                for event in waiting:
                    event.set()

            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(set_all)
