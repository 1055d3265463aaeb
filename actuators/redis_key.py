"""``kind = "redis_key"``: a key for each limit, with the lease as its time to live, for programs that ask Redis."""

from __future__ import annotations

import math
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


class RedisKeySettings(ActuatorSettings, RedisServer):
    """Where the keys are: ``<prefix><broker>:<queue>:<tenant>``, each part percent-encoded; values are JSON."""

    kind: Literal["redis_key"] = "redis_key"
    prefix: str = Field(default="sojourn:limit:", min_length=1, description="what the keys begin with")


class RedisKey:
    """Sets keys that Redis deletes when their lease is over."""

    ends_by_itself: ClassVar[bool] = True

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
        found = self._asked("GET", place)
        return None if found is None else found.decode("utf-8", "replace")

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Set the key for so long."""
        if value is None:
            self._asked("DEL", place)
        else:
            self._asked("SET", place, value, "PX", max(1, math.ceil(seconds * 1000)))

    def _asked(self, *command: str | int) -> bytes | None:
        try:
            with Link(self._settings) as link:
                answer = link.demand(*command)
        except Refusal as refusal:
            if refusal.code in _REFUSALS:
                raise Refused(f"Redis {self._settings.name!r} refuses {command[0]}: {refusal}") from None
            raise SojournError(f"Redis {self._settings.name!r} refuses {command[0]}: {refusal}") from None
        return answer if isinstance(answer, bytes) else None
