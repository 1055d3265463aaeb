"""What is in force, for whom and why: the controller's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from alerts.laws.limits import Limit
from alerts.laws.shadow import Shadow

#: What the limits of one place are told apart by: whom they limit, by which actuator.
Place = tuple["Target", str]


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """One tenant of one queue: all that an action ever touches."""

    broker: str
    queue: str
    tenant: str


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A policy and the tenant it acts on; each pair stands alone."""

    policy: str
    target: Target


@dataclass(frozen=True, slots=True, order=True)
class RuleKey:
    """What identifies a rule: two groups may each have one of the same name."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class ActiveLimit:
    """A limit in force, or one that would be: in a ``dry_run``, or until an operator approves it.

    ``action_id`` names the whole intervention, from its throttle to its release: what an operator approves or revokes.
    ``in_hand``: what is limited is not a rate, but how many messages are in hand at once.
    ``shadow`` is what it would have done so far, where it is not in force; ``proposed``: it waits for an operator.
    """

    key: Key
    action_id: str
    rule: RuleKey
    actuator: str
    dry_run: bool
    burst: float
    limit: Limit
    reason: str
    shadow: Shadow | None = None
    proposed: bool = False
    in_hand: bool = False

    @property
    def valid_until(self) -> datetime:
        """When the lease ends."""
        return datetime.fromtimestamp(self.limit.valid_until, UTC)


def strictest(active_limits: Iterable[ActiveLimit]) -> dict[Place, ActiveLimit]:
    """Which limit counts where several policies limit one tenant by one actuator: the lowest rate, then burst."""
    found: dict[Place, ActiveLimit] = {}
    for item in sorted(active_limits, key=lambda item: item.key):
        place = (item.key.target, item.actuator)
        other = found.get(place)
        if other is None or (item.limit.rate, item.burst) < (other.limit.rate, other.burst):
            found[place] = item
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: see the ``actions`` table."""

    at: datetime
    action_id: str
    idempotency_key: str
    rule: str  # its name; the group is among the inputs
    policy: str
    actuator: str
    broker: str
    queue: str
    tenant: str | None
    decision: str
    dry_run: bool
    before: float | None
    after: float | None
    valid_until: datetime | None
    inputs: dict[str, str]
    reason: str
    outcome: str
