"""``kind = "redis_key"``: a key for each limit, with the lease as its time to live, for programs that ask Redis.

Beside them ``<prefix>index``, a sorted set of the keys with when they end, and ``<prefix>version``, which each change
raises: so that who follows all limits need not look through a whole server (``sojourn.Limits("redis://…")``).
"""

from __future__ import annotations

import math
import time
from typing import ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from actuators.base import ActuatorSettings, Demand, Refused, refuse_other
from brokers.redis.link import Link
from brokers.redis.resp import Refusal
from brokers.redis.settings import RedisServer
from lake.errors import SojournError

#: Answers that will be the same whenever it is tried again.
_REFUSALS = frozenset({"NOPERM", "READONLY", "WRONGTYPE", "MOVED"})
#: The index forgets keys that ended so long ago, the version itself after so long without a change (seconds).
_FORGET = 3600


class RedisKeySettings(ActuatorSettings, RedisServer):
    """Where the keys are: ``<prefix><broker>:<queue>:<tenant>``, each part percent-encoded; values are JSON."""

    kind: Literal["redis_key"] = "redis_key"
    prefix: str = Field(default="sojourn:limit:", min_length=1, description="what the keys begin with")


class RedisKey:
    """Sets keys that Redis deletes when their lease is over."""

    ends_by_itself: ClassVar[bool] = True
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: RedisKeySettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The key."""
        parts = (quote(part, safe="") for part in (demand.broker, demand.queue, demand.tenant))
        return self._settings.prefix + ":".join(parts)

    def value(self, demand: Demand) -> str:
        """The limit as JSON."""
        return demand.document()

    def read(self, place: str) -> str | None:
        """The key's value."""
        found = self._asked(("GET", place))
        return None if found is None else found.decode("utf-8", "replace")

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Set the key for so long."""
        index, version = self._settings.prefix + "index", self._settings.prefix + "version"
        now = time.time()
        told: list[tuple[str | int, ...]]
        if value is None:
            told = [("DEL", place), ("ZREM", index, place)]
        else:
            told = [("SET", place, value, "PX", max(1, math.ceil(seconds * 1000)))]
            told += [("ZADD", index, math.ceil(now + seconds), place)]
        told += [("ZREMRANGEBYSCORE", index, "-inf", math.floor(now - _FORGET))]
        told += [("INCR", version), ("EXPIRE", version, 24 * _FORGET)]
        self._asked(*told)

    def _asked(self, *commands: tuple[str | int, ...]) -> bytes | None:
        """The first's answer; Refused, or SojournError, where one is refused."""
        try:
            with Link(self._settings) as link:
                answers = link.ask(commands)
        except Refusal as refusal:
            raise self._refusal("AUTH", refusal) from None
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Refusal):
                error = self._refusal(str(command[0]), answer)
                # Refused means that nothing was changed: by a later one's refusal something was.
                raise error if command is commands[0] else SojournError(str(error))
        return answers[0] if isinstance(answers[0], bytes) else None

    def _refusal(self, command: str, refusal: Refusal) -> SojournError:
        kind = Refused if refusal.code in _REFUSALS else SojournError
        return kind(f"Redis {self._settings.name!r} refuses {command}: {refusal}")
