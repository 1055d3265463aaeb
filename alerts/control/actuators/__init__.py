"""Who puts limits in force: the limits API, and whatever actuators the settings name.

Each is told all that shall hold, never a difference: telling twice is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actuators.undo_log import News
from alerts.control.active_limit import ActiveLimit, Place, Target

#: The actuator that is there without being named in the settings: what `sojourn.Limits` asks.
LIMITS_API = "limits_api"


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one tenant's limit: why it is not in force, if it is not, and what the journal is to keep."""

    error: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


class Enforcer(Protocol):
    """What puts limits in force somewhere."""

    @property
    def shows_in_arrivals(self) -> bool:
        """Whether arrivals follow its limits: they do not where what it holds back has arrived before."""
        ...

    def enforce(self, active_limits: Sequence[ActiveLimit]) -> Mapping[Target, Told]:
        """Make exactly ``active_limits`` hold, and nothing else of ours. SojournError if that failed for all."""
        ...

    def news(self) -> Sequence[News]:
        """What became of limits since, without anybody's telling; each is told once."""
        ...


@dataclass(frozen=True, slots=True)
class Enforced:
    """What all enforcers told at once; ``failed``: those that failed for all tenants."""

    failed: Mapping[str, str]
    told: Mapping[Place, Told]

    def failure(self, target: Target, actuator: str) -> str | None:
        """Why that limit is not in force; None where it is."""
        return self.failed.get(actuator) or self._of(target, actuator).error

    def facts(self, target: Target, actuator: str) -> Mapping[str, str]:
        """What the journal is to keep of it."""
        return self._of(target, actuator).facts

    def _of(self, target: Target, actuator: str) -> Told:
        return self.told.get((target, actuator), Told())
