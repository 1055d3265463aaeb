"""Reads CloudWatch beside the queues, at its own slower pace: it never delays a sample nor fails one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from brokers.sqs import client
from brokers.sqs.answers import Refusal, content
from brokers.sqs.client import Channel, Unanswered
from collectors.sqs.cloudwatch import Asked, Told, Totals, queries, results, window
from collectors.sqs.settings import SqsBroker
from collectors.thread import Threads
from lake.errors import SojournError

log = logging.getLogger(__name__)

#: Pages of one call that are followed, and tries where CloudWatch is busy.
_PAGES = 100
_ATTEMPTS = 4
_PAUSE = 0.5
#: Readings after which what was told last counts as unknown.
_KEPT = 3


class _Refused(Exception):
    """CloudWatch answered, and not with values."""


class Watch:
    """Keeps what CloudWatch tells of ``queues``, which its owner replaces as they change, in ``totals``."""

    def __init__(self, broker: SqsBroker, credentials: Callable[[], Any], totals: Totals) -> None:
        self.queues: Sequence[str] = ()
        self._broker = broker
        self._settings = broker.cloudwatch
        service = client.service(broker, broker.cloudwatch_url, "monitoring", "GraniteServiceVersion20100801")
        self._channel = Channel(service, credentials)
        self._threads = Threads(f"cloudwatch-{broker.name}")
        self._totals = totals
        self._read_at: float | None = None
        self._trouble = "CloudWatch was not read yet"
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self._keep_reading(), name=f"cloudwatch-{self._broker.name}")

    async def stop(self) -> None:
        """End at once; a request under way is cut off."""
        self._stopped = True
        self._channel.abort()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._threads.close()

    def told(self, queue: str) -> Told:
        """CloudWatch's part of a queue's sample; unknown once CloudWatch has not been read for a while."""
        interval = max(self._settings.interval, 1.0)
        if self._read_at is None or time.monotonic() - self._read_at > _KEPT * interval + self._broker.cycle_timeout:
            return Told(reason=self._trouble)
        return self._totals.told(queue, self._settings.metrics)

    async def _keep_reading(self) -> None:
        while True:
            begun = time.monotonic()
            queues = tuple(self.queues)
            if queues:
                try:
                    await self._threads.do(partial(self._read, queues))
                except (_Refused, Unanswered, SojournError) as error:
                    self._note(f"CloudWatch: {error}", denied=isinstance(error, _Refused))
                except Exception as error:
                    log.exception("cloudwatch-%s", self._broker.name)
                    self._note(f"CloudWatch could not be read: {type(error).__name__}", denied=False)
                else:
                    self._read_at, self._trouble = time.monotonic(), ""
            wait = self._settings.interval if queues else min(1.0, self._settings.interval)
            await asyncio.sleep(max(0.0, begun + wait - time.monotonic()))

    def _note(self, trouble: str, *, denied: bool) -> None:
        if trouble != self._trouble:
            log.warning("cloudwatch-%s: %s", self._broker.name, trouble)
        self._trouble = trouble
        if denied:
            self._read_at = None

    def _read(self, queues: Sequence[str]) -> None:
        begin, end = window(time.time(), self._settings.interval)
        self._totals.keep(queues)
        for asked in queries(queues, self._settings.metrics, begin, end):
            self._call(asked, begin)

    def _call(self, asked: Asked, begin: int) -> None:
        body = asked.body
        for _ in range(_PAGES):
            answer = self._answer(body)
            for key, status, points in results(answer):
                if key in asked.meant:
                    queue, metric = asked.meant[key]
                    self._totals.take(queue, metric, status, points, begin)
            token = answer.get("NextToken")
            if not isinstance(token, str) or not token:
                return
            body = asked.body | {"NextToken": token}

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        reason = ""
        for attempt in range(_ATTEMPTS):
            if self._stopped:
                raise Unanswered("stopped")
            time.sleep(_PAUSE * 2**attempt if attempt else 0)
            answer = content(self._channel.ask("GetMetricData", body))
            if not isinstance(answer, Refusal):
                return answer
            if answer.kind not in ("throttled", "busy"):
                raise _Refused(answer.reason)
            reason = answer.reason
        raise Unanswered(f"too busy: {reason}")
