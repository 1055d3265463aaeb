"""What a mirror is to ``Limits``, and what sources that are no HTTP have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Protocol
from urllib.parse import urlsplit

from sojourn.client.poller import Answer, Unreachable

#: How often a mirror is looked at (seconds).
LOOK_SECONDS = 0.5
#: How long a server of a mirror may take for one answer (seconds).
TIMEOUT_SECONDS = 5.0

#: Scheme of an address → where its mirror is.
SCHEMES = {
    "file": ("sojourn.client.mirrors.file", "FileMirror"),
    "redis": ("sojourn.client.mirrors.redis", "RedisMirror"),
    "rediss": ("sojourn.client.mirrors.redis", "RedisMirror"),
    "nats": ("sojourn.client.mirrors.nats", "NatsMirror"),
    "tls": ("sojourn.client.mirrors.nats", "NatsMirror"),
    "kafka": ("sojourn.client.mirrors.confluent_kafka", "KafkaMirror"),
}


class Source(Protocol):
    """Where limits come from. Used by one thread, except for :meth:`close`."""

    def poll(self) -> Answer:
        """What is new. Raises Unreachable, or MalformedAnswer."""
        ...

    def close(self) -> None:
        """Disconnect; a poll under way may end with Unreachable."""
        ...


class Mirror(Protocol):
    """A place where limits stand; it is asked for a source again after a fork."""

    def source(self, clock: Callable[[], float]) -> Source:
        """A source that has not connected yet; leases count on ``clock`` (seconds)."""
        ...


def mirror_of(url: str) -> Mirror | None:
    """The mirror at ``url``; None where its scheme is of none. ValueError for an address that names no place."""
    place = SCHEMES.get(urlsplit(url).scheme)
    if place is None:
        return None
    found: Mirror = getattr(import_module(place[0]), place[1]).at(url)
    return found


class Connected:
    """A source over a connection that one thread at a time may use, which whoever closes it must wait for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False

    def poll(self) -> Answer:
        """What is new."""
        with self._lock:
            try:
                if self._closed:
                    raise Unreachable("closed")
                return self._look()
            except Exception as error:
                self._disconnect()
                if isinstance(error, (Unreachable, ValueError)):
                    raise
                raise Unreachable(f"{type(error).__name__}: {error}") from error
            finally:
                if self._closed:
                    self._disconnect()

    def close(self) -> None:
        """Disconnect, or leave it to a poll that takes long."""
        self._closed = True
        if self._lock.acquire(timeout=1.0):
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def _look(self) -> Answer:
        raise NotImplementedError

    def _disconnect(self) -> None:
        raise NotImplementedError
