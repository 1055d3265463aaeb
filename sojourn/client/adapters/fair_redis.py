"""Redis Streams in a fair order, through redis-py: what a consumer of a group holds is taken by tenant."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, as_text
from sojourn.client.fair_consumer import FairConsumer

#: How long a read waits for the first entry (milliseconds).
BLOCK_MILLISECONDS = 200

Entry = tuple[Any, dict[Any, Any]]


def tenant_of(entry: Entry) -> str:
    """The field ``tenant``."""
    fields = entry[1]
    return as_text(fields.get(TENANT, fields.get(TENANT.encode()))) or "unknown"


class FairRedis(FairConsumer[Entry]):
    """Handles a stream's entries, (id, fields), by start-time fair queueing over tenants, and acknowledges them.

    What this ``consumer`` of the ``group`` had before and did not acknowledge comes first: after a crash it goes on
    under its name. What others have held for ``idle_seconds`` is claimed, at the start and then at each half of it:
    keep it above the time that an entry may wait in a buffer and be worked on. What is in the buffer when it stops
    others may claim at once. An entry whose ``handle`` raised is told to ``failed``, and comes again by that.
    ``options`` are :class:`sojourn.FairConsumer`'s.
    """

    def __init__(
        self,
        redis: Any,
        stream: str,
        group: str,
        consumer: str,
        handle: Callable[[Entry], object],
        *,
        idle_seconds: float = 300.0,
        tenant_of: Callable[[Entry], str] = tenant_of,
        **options: Any,
    ) -> None:
        self._redis, self._stream, self._group, self._consumer = redis, stream, group, consumer
        self._work_on, self._idle_seconds = handle, idle_seconds
        self._pending_after: Any = "0"  # of our own from before; None once they are read
        self._claimed_at = -math.inf
        self._held: set[Any] = set()
        self._lock = threading.Lock()
        super().__init__(self._read, self._finish, tenant_of, release=self._let_go, **options)

    def _read(self, most: int) -> list[Entry]:
        if self._pending_after is not None:
            found = self._from_group(self._pending_after, most)
            self._pending_after = found[-1][0] if found else None
        elif time.monotonic() - self._claimed_at >= self._idle_seconds / 2:
            self._claimed_at = time.monotonic()
            idle = int(self._idle_seconds * 1000)
            found = self._redis.xautoclaim(self._stream, self._group, self._consumer, idle, count=most)[1]
        else:
            found = self._from_group(">", most)
        return [entry for entry in found if self._take(entry)]

    def _from_group(self, after: Any, most: int) -> list[Entry]:
        found = self._redis.xreadgroup(
            self._group, self._consumer, {self._stream: after}, count=most, block=BLOCK_MILLISECONDS
        )
        streams = found.items() if isinstance(found, dict) else found or ()
        entries: list[Entry] = []
        for _, of_stream in streams:
            # RESP 3 wraps each stream's entries in a list of its own.
            entries += of_stream[0] if of_stream and isinstance(of_stream[0], list) else of_stream
        return entries

    def _take(self, entry: Entry) -> bool:
        """Whether to handle it: not what is in the buffer anyhow, nor what was deleted from the stream meanwhile."""
        number, fields = entry
        if not fields:
            self._redis.xack(self._stream, self._group, number)
            return False
        with self._lock:
            known = number in self._held
            self._held.add(number)
        return not known

    def _let_go(self, entry: Entry) -> None:
        """It stays pending, as idle as whoever claims it wants: whoever starts next does not wait for that."""
        idle = int(self._idle_seconds * 1000)
        self._redis.xclaim(self._stream, self._group, self._consumer, 0, [entry[0]], idle=idle, justid=True)

    def _finish(self, entry: Entry) -> None:
        try:
            self._work_on(entry)
            self._redis.xack(self._stream, self._group, entry[0])
        finally:
            with self._lock:
                self._held.discard(entry[0])
