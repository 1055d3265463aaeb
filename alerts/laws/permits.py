"""Pulling by permits: a producer sends no more than its consumer has said that it has room for.

Source: reactive streams' ``request(n)`` (reactive-streams.org, specification 1.0.4, rules 1.1 and 3.17), with permits
granted in batches, each batch under an id, so that what a lost grant or a lost message took with it comes back.

At every moment: permits not granted yet + permits granted and not used + messages in hand = the buffer. Nobody sends
what there is no room for, and no room is lost for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation


@dataclass(frozen=True, slots=True)
class Terms:
    """Buffer and least batch in messages; what was granted and not used within ``timeout_seconds`` is lost."""

    buffer: int
    batch: int = 1
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.buffer or self.timeout_seconds <= 0:
            raise ValueError(f"a batch of {self.batch} must be 1 to {self.buffer}, the time-out above 0")


@dataclass(frozen=True, slots=True)
class Grant:
    """``permits`` for the producer under ``id``; each message names the grant that it uses."""

    id: int
    permits: int
    granted_at: float


@dataclass(frozen=True, slots=True)
class State:
    """``pending`` permits are not granted yet, ``granted`` ones not used, ``in_hand`` messages not done."""

    pending: int
    granted: Mapping[int, Grant] = field(default_factory=lambda: MappingProxyType({}))
    in_hand: int = 0
    next_id: int = 1

    @property
    def permits_in_flight(self) -> int:
        """Permits that the producer has, or that are on their way to it or back."""
        return sum(grant.permits for grant in self.granted.values())


def begun(terms: Terms) -> State:
    """The state of a consumer that has granted nothing."""
    return State(terms.buffer)


def grant(terms: Terms, state: State, now: float) -> tuple[State, Grant | None, str]:
    """What to grant now: all that is pending, once that is a batch, or once nothing else is under way."""
    if state.pending < 1 or (state.pending < terms.batch and (state.granted or state.in_hand)):
        return state, None, f"{state.pending} pending, a batch is {terms.batch}"
    new = Grant(state.next_id, state.pending, now)
    granted = MappingProxyType({**state.granted, new.id: new})
    return replace(state, pending=0, granted=granted, next_id=new.id + 1), new, f"room for {new.permits} more"


def received(state: State, grant_id: int) -> tuple[State, bool, str]:
    """A message came that uses grant ``grant_id``; whether it may stay.

    One whose permit was taken back as lost may, if a pending one can stand in for it: it is late, not false.
    """
    used = state.granted.get(grant_id)
    if used is not None:
        left = replace(used, permits=used.permits - 1)
        granted = {**state.granted, grant_id: left}
        if left.permits == 0:
            del granted[grant_id]
        return replace(state, granted=MappingProxyType(granted), in_hand=state.in_hand + 1), True, "permitted"
    if 1 <= grant_id < state.next_id and state.pending > 0:
        return replace(state, pending=state.pending - 1, in_hand=state.in_hand + 1), True, "late, and there is room"
    return state, False, "without a permit, and there is no room"


def done(state: State) -> State:
    """A message in hand is done: its place is free. ValueError where none is in hand."""
    if state.in_hand < 1:
        raise ValueError("no message is in hand")
    return replace(state, pending=state.pending + 1, in_hand=state.in_hand - 1)


def recovered(terms: Terms, state: State, now: float) -> tuple[State, tuple[int, ...]]:
    """The state after what is lost was taken back, and the grants that are void from now on: tell the producer."""
    lost = {key: one for key, one in state.granted.items() if now - one.granted_at >= terms.timeout_seconds}
    back = sum(one.permits for one in lost.values())
    kept = MappingProxyType({key: one for key, one in state.granted.items() if key not in lost})
    return replace(state, pending=state.pending + back, granted=kept), tuple(lost)


@dataclass(frozen=True, slots=True)
class Counted:
    """Permits as counts: ``granted`` ones that were not used, oldest first, each with when; when was looked last."""

    granted: tuple[tuple[float, float], ...] = ()
    at: float = -math.inf

    @property
    def in_flight(self) -> float:
        """PermitsInFlight."""
        return sum(permits for permits, _ in self.granted)


def counted(terms: Terms, state: Counted, used: float, in_hand: float, now: float) -> tuple[Counted, float]:
    """The state after ``used`` permits came back as messages while ``in_hand`` lie in the buffer, and what is pending.

    pending + in flight + in hand = the buffer, unless more than that is in hand: then nothing is granted. Permits that
    nobody used within the time-out are pending again; a batch of them is granted at once.
    """
    left = []
    for permits, at in state.granted:
        taken = min(used, permits)
        used -= taken
        if permits > taken and now - at < terms.timeout_seconds:
            left.append((permits - taken, at))
    held = Counted(tuple(left), now)
    pending = max(0.0, terms.buffer - in_hand - held.in_flight)
    if pending >= terms.batch or (pending >= 1 and not left and in_hand < 1):
        return Counted((*left, (pending, now)), now), 0.0
    return held, pending


@dataclass(frozen=True, slots=True)
class Permits:
    """The law as policies choose it: the tenant's part of the queue is the buffer, and its rate what it has permits
    for.

    What came of the tenant has used permits, what of it is in the backlog is in hand. The rate is such that all that is
    granted is used within the time that a permit lasts. It asks not who is to blame: whom the alert names has a buffer.
    """

    says: ClassVar[str] = "no more of a tenant in the queue than a buffer holds: a permit for each place that is free"
    source: ClassVar[str] = "reactive streams 1.0.4"
    fed_by: ClassVar[str] = "`backlog` of the tenant in `tenant_backlog_now`, `enqueued` of `partials`"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "innocent-large": ("innocents are limited",),
            "outage-large": ("innocents are limited", "less is completed"),
            "sybil": ("innocents are limited",),
        }
    )
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("own_backlog",)
    signal: ClassVar[str] = ""

    buffer: float = option("messages of the tenant that the queue may hold", unit="messages")
    batch: float = option("permits are granted so many at once", 1.0, unit="messages")
    timeout_seconds: float = option("so long a permit lasts; unused, it is granted anew", 5.0, unit="seconds")

    def __post_init__(self) -> None:
        self._terms()

    def _terms(self) -> Terms:
        return Terms(int(self.buffer), int(self.batch), self.timeout_seconds)

    @property
    def window_seconds(self) -> float:
        """Of no signal of its own."""
        return 0.0

    def begin(self, rate: float, now: float) -> Counted:
        """Nothing is granted."""
        return Counted(at=now)

    def look(self, agreed: Agreed, state: Counted, seen: Observation, rate: float, now: float) -> tuple[Counted, Wish]:
        """As much as there are permits for."""
        in_hand = seen.own_backlog or 0.0
        used = seen.arrival_rate * max(0.0, now - state.at)
        state, pending = counted(self._terms(), state, used, in_hand, now)
        wanted = state.in_flight / self.timeout_seconds
        reason = f"{pending:.0f} permits pending + {state.in_flight:.0f} in flight + {in_hand:.0f} in hand"
        return state, Wish(max(agreed.bounds.floor, wanted), f"{reason}, a buffer of {self.buffer:g}")

    def sent(self, seen: Observation) -> float:
        """Arrivals: who sends is to obey."""
        return seen.arrival_rate

    def check(self, agreed: Agreed) -> None:
        """Any bounds do."""
