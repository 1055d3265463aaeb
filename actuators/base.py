"""What every actuator is: the place of a setting, its value for a limit, how to read it and how to write it.

An actuator does I/O and judges nothing. What was there before, whether what stands there is still ours, when the lease
is over: that is :mod:`actuators.leased`'s, the same for all.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from pydantic import Field

from brokers.settings import Settings
from lake.errors import SojournError


class Refused(SojournError):
    """The limit cannot be made to hold there, now or ever; nothing was changed."""


class Unverified(SojournError):
    """What was written is not what is read back."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A limit to hold until ``valid_until`` of the wall clock; ``rate`` in messages/s, ``burst`` in messages.

    ``in_hand``: ``rate`` is how many messages may be in hand at once instead.
    """

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float
    valid_until: datetime
    reason: str
    action_id: str
    in_hand: bool = False

    def document(self) -> str:
        """Itself as JSON, the form of one limit in ``GET /v1/limits``; equal demands give equal texts."""
        found = asdict(self) | {"valid_until": self.valid_until.isoformat()}
        if not self.in_hand:
            del found["in_hand"]
        return json.dumps(found, sort_keys=True)

    @staticmethod
    def of(document: str) -> Demand:
        """The demand that gave ``document``."""
        found = json.loads(document)
        return Demand(**found | {"valid_until": datetime.fromisoformat(found["valid_until"])})

    def check(self) -> None:
        """Refused where it is no limit: a rate of zero, or below, would stop the tenant for good."""
        if not (math.isfinite(self.rate) and self.rate > 0 and math.isfinite(self.burst) and self.burst >= 0):
            raise Refused(f"a limit of {self.rate:g}/s with a burst of {self.burst:g} is none")


class ActuatorSettings(Settings):
    """What the settings of all actuators have in common. ``name`` is what policies call it in ``actuator``."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="what policies call it in `actuator`")
    broker: str | None = Field(
        default=None, description="acts on queues of this broker alone, as the collector names it"
    )
    timeout: float = Field(default=3.0, gt=0, le=60, description="seconds in which the server must answer")


class Actuator(Protocol):
    """One actuator. Its methods block, and are called by one thread at a time; SojournError where something fails."""

    #: Whether the server itself ends what was written after its ``seconds``. What it does not end needs the reaper.
    ends_by_itself: ClassVar[bool]

    @property
    def slows_consumers(self) -> bool:
        """Whether it slows down who reads a tenant's messages, so that what it holds back waits in the queue."""
        ...

    def place(self, demand: Demand) -> str:
        """Where the setting of this tenant is; no two tenants have the same. Refused where it has none."""
        ...

    def value(self, demand: Demand) -> str:
        """What makes ``demand`` hold, as :meth:`read` would tell it. Refused where nothing does."""
        ...

    def read(self, place: str) -> str | None:
        """What is set there now; None = nothing."""
        ...

    def check(self, before: str | None, value: str) -> None:
        """Refused where ``value`` must not take the place of ``before``, which stood there when we came: because it is
        somebody else's, or stricter."""
        ...

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Set it; None takes it away. ``seconds`` of the lease are left. Refused where nothing was changed."""
        ...


def refuse_other(before: str | None) -> None:
    """Refused where something stood there when we came: places of ours hold nothing but what we put there."""
    if before is not None:
        raise Refused(f"there is something already, and not by us: {before[:200]}")


def filled(template: str, demand: Demand, encode: Any = str) -> str:
    """``template`` with ``{broker}``, ``{queue}`` and ``{tenant}`` replaced by what ``encode`` makes of them."""
    found = template
    parts = {name: encode(getattr(demand, name)) for name in ("broker", "queue", "tenant")}
    pieces = []
    while "{" in found:
        head, _, rest = found.partition("{")
        name, closed, found = rest.partition("}")
        pieces += [head, parts[name] if closed and name in parts else "{" + name + closed]
    return "".join([*pieces, found])
