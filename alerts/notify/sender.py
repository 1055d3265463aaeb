"""Delivers messages in a thread of its own, so that a slow receiver delays neither evaluations nor other receivers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import httpx

from alerts.notify.lane import Lane, Receiver, Refresh
from alerts.notify.recorder import Recorder
from alerts.notify.settings import ReceiverSettings
from alerts.store.database import Store, connect
from alerts.store.outbox import Delivery, Outbox
from lake.clock import Clock

log = logging.getLogger(__name__)
# It would log each request with its url, which may hold a receiver's key.
logging.getLogger("httpx").setLevel(logging.WARNING)

#: How long stopping waits for attempts under way; what is not answered by then is sent again, with the same id.
GRACE_SECONDS = 2.0


class Sender:
    """The delivering thread. ``start``, then ``wake`` whenever there is something new, then ``stop``.

    ``refresh`` writes each body anew at each attempt; it runs in the thread's event loop.
    """

    def __init__(
        self,
        store: Store,
        receivers: Iterable[ReceiverSettings],
        clock: Clock | None = None,
        refresh: Refresh | None = None,
    ) -> None:
        self._refresh = refresh
        #: How often attempts ended how: by receiver and outcome, since the start.
        self.attempts: Counter[tuple[str, str]] = Counter()
        self._store = store
        self._clock = clock or Clock()
        self._receivers = [Receiver(settings) for settings in receivers]
        self._thread = threading.Thread(target=self._run, name="alert-sender", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._lanes: list[Lane] = []

    def start(self) -> None:
        """Begin to deliver; messages that an earlier process left are taken up first."""
        self._thread.start()
        self._ready.wait()

    def wake(self) -> None:
        """There may be something to send: look at once."""
        self._tell(lambda lane: lane.wake())

    def stop(self, *, finish: bool = False, timeout: float = GRACE_SECONDS) -> None:
        """End; with ``finish`` everything that is due is tried once before."""
        self._tell(lambda lane: lane.stop(finish=finish), end=True)
        self._thread.join(timeout + (15 if finish else 1))

    @property
    def alive(self) -> bool:
        """Whether the thread still runs; if it died, the process should end and be started again."""
        return self._thread.is_alive()

    def _tell(self, what: Callable[[Lane], None], *, end: bool = False) -> None:
        def tell() -> None:
            for lane in self._lanes:
                what(lane)
            if end and self._ended is not None:
                self._ended.set()

        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(tell)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("the sender cannot go on; what it has not delivered stays in the outbox")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        database = connect(self._store)
        outbox = Outbox(database)
        for message in outbox.orphans([receiver.settings.name for receiver in self._receivers]):
            gone = Delivery(self._clock.wall(), "refused", None, "the receiver is no longer configured", None)
            outbox.record(message, gone, None, now=self._clock.now())
        recorder = Recorder(outbox, self.attempts)
        tls = httpx.create_ssl_context(trust_env=False)
        self._lanes = [
            Lane(receiver, outbox, recorder, tls, self._clock, self._refresh) for receiver in self._receivers
        ]
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ended.wait())  # without receivers, too
            for lane in self._lanes:
                group.create_task(lane.run(GRACE_SECONDS))
        database.close()
