"""What a law is that a policy may choose by name, beside those of :mod:`alerts.laws.throttle`.

A law is a frozen dataclass of its options – each declared with :func:`option` – and two pure methods: ``begin`` makes
its state, ``look`` takes a state, a measurement and ``now`` to the next state and a :class:`Wish`. What it wishes is
held to bounds, largest step, cooldown and lease by :mod:`alerts.laws.signalled`, the same for all. To add one: a file,
a line in :mod:`alerts.laws.registry`; the contract suite then runs over it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from alerts.laws.bounds import Bounds
from alerts.laws.observation import Observation


@dataclass(frozen=True, slots=True)
class Wish:
    """The rate (messages/s) that a law would allow now, and why.

    None: nothing can be said, what is in force stays. Infinite: let go at once. A law that judges now and then says
    whether it ``judged`` now, or this is what it found before; None: it judges at each look.
    """

    rate: float | None
    reason: str
    judged: bool | None = None


@dataclass(frozen=True, slots=True)
class Agreed:
    """What of a policy a law must know: the bounds of its limit, and the priority of what it limits."""

    bounds: Bounds
    priority: str = "P2"


class Law(Protocol):
    """One law with its options."""

    #: What it says, in a sentence, who published it, and which columns feed it: the reference page has them.
    says: ClassVar[str]
    source: ClassVar[str]
    fed_by: ClassVar[str]
    #: Scenarios of the lab in which it is worse than doing nothing, and in what: it is told, and no default.
    worse: ClassVar[Mapping[str, tuple[str, ...]]]
    #: Whether its wish is a number of messages in hand at once, not a rate: an actuator must know how to bound that.
    counts: ClassVar[bool]
    #: What of an observation it is judged by: where one of them is unknown nothing changes.
    needs: ClassVar[tuple[str, ...]]
    #: Which measurement has them (:data:`alerts.control.signals.SIGNALS`); "" is what is observed anyway.
    signal: ClassVar[str]

    @property
    def window_seconds(self) -> float:
        """Over how long its signal is measured."""
        ...

    def begin(self, rate: float, now: float) -> Any:
        """The state of a tenant that sends ``rate`` messages/s, or is limited to it."""
        ...

    def look(self, agreed: Agreed, state: Any, seen: Observation, rate: float, now: float) -> tuple[Any, Wish]:
        """The state after a look at ``now``; ``rate`` is in force, or sent where no limit is."""
        ...

    def sent(self, seen: Observation) -> float:
        """What its limit is compared with, messages/s: what those send who are to obey it."""
        ...

    def check(self, agreed: Agreed) -> None:
        """ValueError where these bounds make no sense for it."""
        ...


def in_hand(agreed: Agreed) -> None:
    """ValueError where these bounds cannot be of messages in hand, of which there are no parts."""
    if agreed.bounds.floor < 1 or math.ceil(agreed.bounds.floor) > math.floor(agreed.bounds.ceiling):
        raise ValueError("floor and ceiling are messages in hand: at least 1")


def option(says: str, default: float | None = None, *, unit: str = "") -> Any:
    """One option of a law: what it is, its default (None: it must be given), its unit."""
    metadata = {"says": says, "unit": unit}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)
