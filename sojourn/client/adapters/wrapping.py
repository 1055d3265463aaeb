"""What all adapters share: passing everything else on, and remembering the deliveries that are not settled yet."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from sojourn.client.events import Instant
from sojourn.client.recorder import Recorder

#: Unsettled deliveries that are remembered; of more, the oldest are forgotten: their end goes untold.
MOST_DELIVERIES = 100_000
#: The header, field or attribute that names the tenant unless the application says otherwise.
TENANT = "tenant"


class Wrapped:
    """Stands in for ``inner``: whatever the wrapper does not define is the wrapped object's own."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not there yet: copying, unpickling
            raise AttributeError(name)
        return getattr(self._inner, name)


class Delivery(NamedTuple):
    """One message that a consumer has; ``since`` is when it got it, on the monotonic clock."""

    broker: str
    queue: str
    message_id: str
    subscriber: str | None
    tenant: str | None
    attempt: int | None
    enqueued_at: Instant | None
    since: float

    def details(self) -> dict[str, Any]:
        """What every event of the delivery tells."""
        return {
            "broker": self.broker,
            "subscriber": self.subscriber,
            "tenant": self.tenant,
            "attempt": self.attempt,
            "enqueued_at": self.enqueued_at,
        }


class Deliveries:
    """Received and not yet settled, by what the broker's client settles them with."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: dict[Hashable, Delivery] = {}
        self.unlock()
        _LIVING.add(self)

    def unlock(self) -> None:
        """A fresh lock, for the child of a fork, which may go on with what its parent received."""
        self._lock = threading.Lock()

    def received(self, key: Hashable, delivery: Delivery) -> None:
        """Record that ``delivery`` arrived, and remember it under ``key``."""
        self._recorder.received(delivery.queue, delivery.message_id, **delivery.details())
        with self._lock:
            self._open[key] = delivery
            if len(self._open) > MOST_DELIVERIES:
                del self._open[next(iter(self._open))]

    def get(self, key: Hashable) -> Delivery | None:
        """The delivery remembered under ``key``."""
        return self._open.get(key)

    def ended(self, key: Hashable, event_type: str, reason: str | None = None) -> None:
        """Record how the delivery under ``key`` ended; nothing where it is not known, or has ended before."""
        with self._lock:
            delivery = self._open.pop(key, None)
        if delivery is None:
            return
        details = delivery.details()
        if event_type in ("completed", "failed"):
            details["processing_seconds"] = time.monotonic() - delivery.since
        getattr(self._recorder, event_type)(delivery.queue, delivery.message_id, reason=reason, **details)

    def keys(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """The keys that are ``wanted``, oldest first."""
        with self._lock:
            return [key for key in self._open if wanted(key)]

    def forget(self, wanted: Callable[[Any], bool]) -> None:
        """Forget deliveries that will be received again."""
        with self._lock:
            for key in [key for key in self._open if wanted(key)]:
                del self._open[key]


_LIVING: weakref.WeakSet[Deliveries] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for deliveries in list(_LIVING):
        deliveries.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def as_text(value: object) -> str | None:
    """A header or field as text."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
