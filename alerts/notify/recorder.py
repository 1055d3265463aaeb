"""Writes attempts down together: to force each to the disk by itself would take longer than to make it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime

from alerts.store.outbox import Attempt, Delivery, Outbox, OutboxMessage

#: What ends within so many seconds is one transaction, up to so many attempts.
TOGETHER_SECONDS, MOST_TOGETHER = 0.01, 200


class Recorder:
    """Takes attempts of all lanes. Belongs to the sender's event loop.

    A process that is killed before they are written down makes those attempts again, with the same ids.
    """

    def __init__(self, outbox: Outbox, counts: Counter[tuple[str, str]]) -> None:
        self._outbox, self._counts = outbox, counts
        self._waiting: list[tuple[Attempt, asyncio.Future[None]]] = []
        self._due: asyncio.TimerHandle | None = None

    async def record(
        self, message: OutboxMessage, delivery: Delivery, retry_at: datetime | None, *, now: datetime
    ) -> None:
        """As :meth:`Outbox.record`; returns once it is on the disk."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._waiting.append((Attempt(message, delivery, retry_at, now), written))
        if len(self._waiting) >= MOST_TOGETHER:
            self._write()
        elif self._due is None:
            self._due = loop.call_later(TOGETHER_SECONDS, self._write)
        await written

    def _write(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due, waiting, self._waiting = None, self._waiting, []
        try:
            self._outbox.record_all([attempt for attempt, _ in waiting])
        except Exception as error:
            for _, written in waiting:
                if not written.done():
                    written.set_exception(error)
            return
        self._counts.update((one.message.receiver, one.delivery.outcome) for one, _ in waiting)
        for _, written in waiting:
            if not written.done():
                written.set_result(None)
