"""``kind = "redis"``: how long a list or sorted set is, or how far a stream's slowest group is behind.

Source: Redis commands ``TYPE``, ``LLEN``, ``ZCARD``, ``XINFO GROUPS`` (its ``lag``, Redis 7.0).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from pydantic import Field

from alerts.control.depth.base import DepthSettings, Unknown
from brokers.errors import ConnectionLost
from brokers.redis.link import Link
from brokers.redis.settings import RedisServer

_COUNTS = {b"list": "LLEN", b"zset": "ZCARD"}


class RedisDepthSettings(DepthSettings, RedisServer):
    """Where it is; ``names`` are keys, ``queue:orders`` say."""

    kind: Literal["redis"] = "redis"
    timeout: float = Field(default=1.0, gt=0, le=60, description="seconds in which the server must answer")


class RedisDepth:
    """Asks through a connection of its own."""

    def __init__(self, settings: RedisDepthSettings) -> None:
        self._settings = settings
        self._link: Link | None = None
        self._kinds: dict[str, bytes] = {}  # as they were seen: Redis deletes a list that is empty

    def open(self) -> None:
        """Connect."""
        self.close()
        self._link = Link(self._settings)

    def waiting(self, queue: str) -> float:
        """What the key holds that nobody has taken. One that is not there is empty only if it was seen before."""
        if self._link is None:
            raise ConnectionLost(f"Redis {self._settings.name!r} is not connected")
        kind = self._link.demand("TYPE", queue)
        if kind == b"none" and self._kinds.get(queue) in _COUNTS:
            return 0.0
        self._kinds[queue] = kind
        if kind in _COUNTS:
            return float(self._link.demand(_COUNTS[kind], queue))
        if kind != b"stream":
            raise Unknown(f"the key {queue!r} holds no queue ({bytes(kind).decode(errors='replace')})")
        lags = [group.get(b"lag") for group in map(_fields, self._link.demand("XINFO", "GROUPS", queue))]
        known = [lag for lag in lags if isinstance(lag, int)]
        if not known or len(known) < len(lags):
            raise Unknown(f"how far the groups of {queue!r} are behind is not told")
        return float(max(known))

    def close(self) -> None:
        """Disconnect."""
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                link.close()


def _fields(group: list[Any]) -> dict[bytes, Any]:
    return dict(zip(group[::2], group[1::2], strict=True))
