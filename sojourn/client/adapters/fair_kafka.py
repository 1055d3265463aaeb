"""Kafka in a fair order, through confluent-kafka: what a consumer holds of its partitions is taken by tenant.

Within a partition messages are handled in another order than they lie there, so that a commit must not run ahead: a
partition is committed up to the first message that is not finished (:mod:`sojourn.client.commits`). What was fetched
and not finished when a consumer dies comes again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, as_text
from sojourn.client.commits import Commits
from sojourn.client.fair_consumer import FairConsumer

log = logging.getLogger(__name__)

#: How long a poll waits for the first message, and how often is committed (seconds).
POLL_SECONDS, COMMIT_SECONDS = 0.2, 1.0
#: Messages that one poll brings, at most.
MOST_AT_ONCE = 500
#: So many messages of a partition lie behind one that is not finished, at most: they come again when this dies.
MOST_UNCOMMITTED = 10_000


def tenant_of(message: Any) -> str:
    """The header ``tenant``, else the key."""
    named = dict(message.headers() or ()).get(TENANT)
    return as_text(named if named is not None else message.key()) or "unknown"


class FairKafka(FairConsumer[Any]):
    """Handles the messages of ``topics`` by start-time fair queueing over tenants.

    ``consumer`` is confluent-kafka's ``Consumer`` class, ``config`` its settings: auto-commit is switched off, as this
    commits by itself. A message whose ``handle`` raised is told to ``failed`` and is finished then; without ``failed``,
    nothing behind it is committed: it comes again, with what lies behind it, to whoever has the partition next. Of a
    partition that waits for one message for so long that ``most_uncommitted`` lie behind it, no more is fetched.
    ``options`` are :class:`sojourn.FairConsumer`'s. Keep ``buffer`` below what the workers finish within
    ``max.poll.interval.ms``. A tenant's messages stay in order within a partition with one worker.
    """

    def __init__(
        self,
        consumer: Callable[[dict[str, Any]], Any],
        config: Mapping[str, Any],
        topics: Sequence[str],
        handle: Callable[[Any], object],
        *,
        tenant_of: Callable[[Any], str] = tenant_of,
        failed: Callable[[Any, Exception], object] | None = None,
        most_uncommitted: int = MOST_UNCOMMITTED,
        **options: Any,
    ) -> None:
        self._topics, self._work_on, self._told = list(topics), handle, failed
        self._commits: Commits[Any] = Commits()
        self._most, self._paused = most_uncommitted, set[tuple[str, int]]()
        self._lock = threading.Lock()
        self._committed_at = time.monotonic()
        super().__init__(self._poll, self._finish, tenant_of, failed=self._gave_up, **options)
        self._consumer = consumer(dict(config) | {"enable.auto.commit": False})

    def run(self) -> None:
        """Handle until :meth:`stop`; what is finished is committed at the end, and the consumer closed."""
        self._consumer.subscribe(self._topics, on_revoke=self._revoked, on_lost=self._lost)
        try:
            super().run()
            self._commit(self._due(), wait=True)
        finally:
            self._consumer.close()

    def _poll(self, most: int) -> list[Any]:
        if time.monotonic() - self._committed_at >= COMMIT_SECONDS:
            self._committed_at = time.monotonic()
            self._commit(self._due(), wait=False)
        messages = []
        for message in self._consumer.consume(min(most, MOST_AT_ONCE), POLL_SECONDS):
            if message.error() is not None:
                log.warning("from %s: %s", ", ".join(self._topics), message.error())
                continue
            messages.append(message)
            with self._lock:
                self._commits.fetched(_partition(message), message.offset(), message)
        self._bound()
        return messages

    def _bound(self) -> None:
        """Fetch of no partition more than may lie uncommitted."""
        for one in self._consumer.assignment():
            partition = one.topic, one.partition
            with self._lock:
                full = self._commits.behind(partition) >= self._most
            if full and partition not in self._paused:
                self._consumer.pause([one])
                self._paused.add(partition)
                told = "%s.%d waits: %d messages lie behind one that is not finished"
                log.error(told, *partition, self._most)
            elif not full and partition in self._paused:
                self._consumer.resume([one])
                self._paused.discard(partition)

    def _finish(self, message: Any) -> None:
        with self._lock:  # another consumer has the partition by now, and will have the message
            if not self._commits.holds(_partition(message), message.offset()):
                return
        self._work_on(message)
        self._finished(message)

    def _gave_up(self, message: Any, error: Exception) -> None:
        if self._told is None:
            log.error("%s could not be handled, nothing behind it is committed", _place(message), exc_info=error)
            return
        self._told(message, error)
        self._finished(message)

    def _finished(self, message: Any) -> None:
        with self._lock:
            self._commits.finished(_partition(message), message.offset())

    def _due(self, partitions: Sequence[tuple[str, int]] | None = None) -> list[Any]:
        with self._lock:
            return self._commits.due(partitions)

    def _commit(self, messages: Sequence[Any], *, wait: bool) -> None:
        for message in messages:
            try:
                self._consumer.commit(message=message, asynchronous=not wait)
            except Exception as error:  # they come again: nothing is lost
                log.warning("%s is not committed: %s", _place(message), error)

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        gone = [(one.topic, one.partition) for one in partitions]
        self._commit(self._due(gone), wait=True)
        self._forget(gone)

    def _lost(self, _: Any, partitions: Sequence[Any]) -> None:
        self._forget([(one.topic, one.partition) for one in partitions])

    def _forget(self, partitions: Sequence[tuple[str, int]]) -> None:
        with self._lock:
            for partition in partitions:
                self._commits.forget(partition)
        self._paused.difference_update(partitions)


def _partition(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def _place(message: Any) -> str:
    return f"{message.topic()}.{message.partition()}.{message.offset()}"
