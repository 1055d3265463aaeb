"""Keys of a Redis server, as the actuator ``redis_key`` writes them: needs ``redis``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sojourn.client.mirrors.base import LOOK_SECONDS, TIMEOUT_SECONDS, Connected
from sojourn.client.poller import Answer, Unreachable
from sojourn.client.wire import MalformedAnswer, Update, WireLimit, limit_of

#: Keys that are asked for at once.
_PAGE = 1000


@dataclass(frozen=True)
class RedisMirror:
    """The limits below ``prefix``; ``options`` are those of ``redis.Redis.from_url``, as ``username`` and ``password``.

    Two short questions a second; where something has changed, all limits are asked for. Leases are the keys' times to
    live, by the server's clock alone.
    """

    url: str
    prefix: str = "sojourn:limit:"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str) -> RedisMirror:
        """Of ``redis://host:6379/0``."""
        if not urlsplit(url).hostname:
            raise ValueError(f"{url!r} names no Redis server: redis://host:6379/0")
        return cls(url)

    def source(self, clock: Callable[[], float]) -> RedisSource:
        """See :class:`sojourn.client.mirrors.base.Mirror`. ImportError without the library."""
        import redis  # noqa: F401 – whoever lacks it is to hear of it at once

        return RedisSource(self, clock)


class RedisSource(Connected):
    """Asks for the version that each change raises, and for the limits where it is another."""

    def __init__(self, mirror: RedisMirror, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._mirror = mirror
        self._client: Any = None
        self._version: bytes | None = None
        self._known = False

    def _look(self) -> Answer:
        import redis

        if self._client is None:
            timeouts = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
            self._client = redis.Redis.from_url(self._mirror.url, **(timeouts | dict(self._mirror.options)))
        asked_at, prefix = self._clock(), self._mirror.prefix
        try:
            version = self._client.get(f"{prefix}version")
            if self._known and version == self._version:
                return Answer(None, LOOK_SECONDS, asked_at)
            limits = self._limits(prefix)
        except redis.RedisError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        self._version, self._known = version, True
        return Answer(Update(None, whole=True, limits=limits), LOOK_SECONDS, asked_at)

    def _limits(self, prefix: str) -> list[WireLimit]:
        names = self._client.zrange(f"{prefix}index", 0, -1)
        found = []
        for at in range(0, len(names), _PAGE):
            asking = self._client.pipeline(transaction=False)
            for name in names[at : at + _PAGE]:
                asking.get(name)
                asking.pttl(name)
            answers = asking.execute(raise_on_error=False)
            for value, left in zip(answers[::2], answers[1::2], strict=True):
                if isinstance(value, bytes) and isinstance(left, int) and left > 0:
                    found += _read(value, left / 1000)
        return found

    def _disconnect(self) -> None:
        client, self._client, self._known = self._client, None, False
        if client is not None:
            client.close()


def _read(value: bytes, lease_seconds: float) -> list[WireLimit]:
    """The limit that ``value`` tells; none where it is nonsense: one bad key limits nobody, and hides no other."""
    try:
        return [limit_of(json.loads(value), lease_seconds)]
    except (MalformedAnswer, ValueError, RecursionError):
        return []
