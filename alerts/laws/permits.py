"""Pulling by permits: a producer sends no more than its consumer has said that it has room for.

Source: reactive streams' ``request(n)`` (reactive-streams.org, specification 1.0.4, rules 1.1 and 3.17), with permits
granted in batches, each batch under an id, so that what a lost grant or a lost message took with it comes back.

At every moment: permits not granted yet + permits granted and not used + messages in hand = the buffer. Nobody sends
what there is no room for, and no room is lost for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


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
