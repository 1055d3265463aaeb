"""Running collectors: one event loop, each collector on its own schedule, none waiting for another."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.ahead import AheadFilter
from collectors.base import Collector
from collectors.board import Board
from collectors.context import Context
from collectors.exposition import Exposition
from collectors.lean import keep_some_memory
from collectors.registry import factory
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.tally import Tally
from collectors.transport import LakeBehind, chosen_bronze
from collectors.writer import Writer
from lake.clock import Clock
from lake.errors import SojournError, UserError
from lake.files import only_one
from lake.store import Lake
from sojourn.client.backoff import doubled

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: How often the end is looked for: each look goes through all collectors.
_STOP_POLL = 0.25


def run(settings: CollectSettings, lake_root: Path, stop: threading.Event) -> None:
    """Collect until ``stop`` is set, then write what is held.

    UserError where the settings are wrong, another process collects the same brokers, no broker could be reached
    within ``connect_grace`` seconds from the start, or each of them needs the user. One of several that fails, at the
    start or later, is tried again for ever while the others go on.
    """
    if not settings.brokers and not settings.receive.enabled:
        raise UserError("there is no broker to collect from", "list one in [[collect.brokers]]")
    makers = {broker.name: factory(broker.kind) for broker in settings.brokers}
    lake = Lake(lake_root)
    lake.create()
    metrics, board, clock = SelfMetrics(), Board(), Clock()
    with ExitStack() as held:
        for broker in settings.brokers:
            lock = lake.state_path("locks", f"collect-{_file_name(broker.name)}.lock")
            held.enter_context(only_one(lock, f"a collector of broker {broker.name!r}"))
        if settings.receive.enabled:
            lock = lake.state_path("locks", f"receive-{_file_name(settings.receive.name)}.lock")
            held.enter_context(only_one(lock, f"a receiver {settings.receive.name!r}"))
        if settings.metrics_port is not None:
            metrics.registry.register(Exposition(board))
            metrics.serve(settings.metrics_host, settings.metrics_port)
        bronze = Tally(chosen_bronze(settings.transport, lake), metrics.messages, settings.metrics_series)
        writer = Writer(AheadFilter(bronze, clock, metrics))
        held.callback(writer.close)
        context = Context(settings, writer, metrics, board, clock)
        collectors = [collector for broker in settings.brokers for collector in makers[broker.name](broker, context)]
        if settings.receive.enabled:
            collectors.append(_receiver(context))
        asyncio.run(collect(collectors, stop, metrics, grace=settings.connect_grace))


def _receiver(context: Context) -> Collector:
    try:
        from collectors.receive.receiver import Receiver
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name!r} is missing", "pip install 'sojourn[collectors]'") from None
    keep_some_memory()
    return Receiver(context)


async def collect(
    collectors: Sequence[Collector], stop: threading.Event, metrics: SelfMetrics, *, grace: float
) -> None:
    """Run ``collectors`` side by side until ``stop`` is set."""
    stopping = asyncio.Event()
    keepers = [_Keeper(collector, metrics, stopping) for collector in collectors]
    tasks = [asyncio.create_task(keeper.keep(), name=keeper.collector.name) for keeper in keepers]
    started = time.monotonic()
    try:
        while not stop.is_set():
            done, _ = await asyncio.wait(tasks, timeout=_STOP_POLL, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()  # raises what is a fault of ours
            if any(keeper.connected for keeper in keepers):
                grace = float("inf")
            # What only waits for the analytics has found its broker.
            troubles = [one.trouble for one in keepers if one.trouble and not isinstance(one.trouble, LakeBehind)]
            if troubles and (time.monotonic() - started > grace or _only_to_mend(keepers)):
                raise _hopeless(troubles)
    finally:
        stopping.set()
        await asyncio.gather(*tasks, return_exceptions=True)


def _only_to_mend(keepers: Sequence[_Keeper]) -> bool:
    """Whether nothing has begun, and each collector waits for its user: credentials alone may be renewed meanwhile."""
    return all(
        isinstance(one.trouble, UserError) and not isinstance(one.trouble, CredentialsRefused) and not one.connected
        for one in keepers
    )


def _hopeless(troubles: Sequence[SojournError]) -> SojournError:
    """What ends a run that reached nothing: what the user must fix, before what may only be away."""
    return next(
        (trouble for trouble in troubles if isinstance(trouble, UserError)),
        UserError(str(troubles[0]), "start it, or fix its url in [[collect.brokers]]"),
    )


class _Keeper:
    """Keeps one collector going."""

    def __init__(self, collector: Collector, metrics: SelfMetrics, stopping: asyncio.Event) -> None:
        self.collector = collector
        self.connected = False
        self.trouble: SojournError | None = None
        self._metrics = metrics
        self._stopping = stopping
        self._failures = 0

    async def keep(self) -> None:
        """Open the collector and let it step; after a lost connection pause, ever longer, and open it again."""
        try:
            while not self._stopping.is_set():
                try:
                    await self.collector.open()
                    await self._steps()
                except SojournError as error:  # even what only the user can fix: the other brokers' collection goes on
                    self._report(error)
                    self._failures += 1
                    pause = doubled(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
                    await self._wait(pause * random.uniform(0.7, 1.3))
        finally:
            await self.collector.close()

    async def _steps(self) -> None:
        """Step on a fixed schedule: a late step shifts none after it, and those that it covers are left out."""
        name, due = self.collector.name, time.monotonic()
        while not self._stopping.is_set():
            with self._metrics.timed(name):
                try:
                    await self.collector.step()
                except (ConnectionLost, CredentialsRefused):
                    raise  # a secret may have been renewed meanwhile: it is read again where we connect
                except SojournError as error:
                    # The lake, or one request: the collector itself is sound, the next step tries again.
                    self._report(error)
                    await self._wait(_FIRST_PAUSE)
                else:
                    self._recovered()
            interval = self.collector.interval  # a collector may lengthen its own
            if interval > 0:
                cycles = max(1, -(-(time.monotonic() - due) // interval))
                self._metrics.skipped_cycles.labels(name).inc(cycles - 1)
                due += interval * cycles
                await self._wait(due - time.monotonic())

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.info("%s: works again", self.collector.name)
        self.connected, self.trouble, self._failures = True, None, 0

    def _report(self, error: SojournError) -> None:
        if self.trouble is None or str(self.trouble) != str(error):
            log.warning("%s: %s", self.collector.name, error)
        self.trouble = error
        self._metrics.success.labels(self.collector.name).set(0)

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            try:
                await asyncio.wait_for(self._stopping.wait(), seconds)
            except TimeoutError:
                return


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
