"""CoDel for consumers: what to put aside so that the wait, and not the length, of a queue stays near a target.

Source: RFC 8289 (Nichols, Jacobson, McGregor, Iyengar, 2018), sections 3 and 5, with its resumption of the drop rate.
For packets target and interval are 5 and 100 ms; for messages take them from the workload: the target is the wait
that is harmless, the interval about as long as producers take to react.

A burst that drains within an interval is left alone; a queue that stands is thinned ever faster, as 1 ÷ √count, until
it does not stand: n seconds on, n ÷ (2 × interval²) a second go. What "drop" is, the caller decides: requeue with a
delay, sideline, dead-letter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from sojourn.client.clock import running

#: A drop rate is resumed where the last spell ended less than this many intervals ago.
RESUMED_WITHIN = 16


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds."""

    target: float = 0.005
    interval: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.target < self.interval < math.inf:
            raise ValueError(f"target {self.target} must be above 0 and below the interval {self.interval}")


@dataclass(frozen=True, slots=True)
class State:
    """``above_until``: when the wait will have been above target for an interval (None: it is not above)."""

    above_until: float | None = None
    dropping: bool = False
    next_drop: float = 0.0
    count: int = 0
    last_count: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to drop the message that was just taken, and why."""

    drop: bool
    state: State
    reason: str


def step(terms: Terms, state: State, waited: float, left: int, now: float) -> Decision:
    """What to do with a message that waited ``waited`` seconds; ``left`` others wait behind it.

    After a drop call again for the next message, at the same ``now``.
    """
    if waited < terms.target or left < 1:
        return Decision(False, replace(state, above_until=None, dropping=False), f"waited {waited:.3g} s: harmless")
    if state.above_until is None:
        waiting = replace(state, above_until=now + terms.interval, dropping=False)
        return Decision(False, waiting, f"waited {waited:.3g} s: above target since now")
    if now < state.above_until:
        return Decision(False, replace(state, dropping=False), f"waited {waited:.3g} s: above target, not for long yet")
    if not state.dropping:
        since = state.count - state.last_count
        recent = now - state.next_drop < RESUMED_WITHIN * terms.interval
        count = since if recent and since > 1 else 1
        begun = replace(state, dropping=True, count=count, last_count=count, next_drop=after(terms, now, count))
        return Decision(True, begun, f"waited {waited:.3g} s, above target for {terms.interval:g} s")
    if now < state.next_drop:
        return Decision(False, state, f"the next goes in {state.next_drop - now:.3g} s")
    count = state.count + 1
    going = replace(state, count=count, next_drop=after(terms, state.next_drop, count))
    return Decision(True, going, f"waited {waited:.3g} s, still above target: number {count}")


def after(terms: Terms, instant: float, count: int) -> float:
    """The control law: when the drop after the ``count``-th comes, which came at ``instant``."""
    return instant + terms.interval / math.sqrt(count)


class CoDel:
    """Says of each message that a consumer has taken whether it should be put aside instead of handled.

    One for each queue; any thread may ask. ``target`` is the wait that is harmless; a queue whose messages wait longer
    than that for all of ``interval`` stands, and is thinned (seconds, the target below the interval)::

        codel = sojourn.CoDel(target=5.0, interval=60.0)
        for message in consumer:
            if codel.drops(waited=time.time() - message.enqueued_at):
                consumer.dead_letter(message)  # or requeue it with a delay
            else:
                handle(message)

    It puts nothing aside by itself, and never the last of a queue. Whose messages it thins is left to chance: of a
    flood most, because most are the flood's.
    """

    def __init__(self, target: float, interval: float, *, clock: Callable[[], float] = running) -> None:
        self._terms = Terms(target, interval)
        self._clock = clock
        self._lock = threading.Lock()
        self._state = State()

    def drops(self, waited: float, *, left: int = 1) -> bool:
        """Whether the message that was just taken, and has waited so long (seconds), should be put aside.

        ``left`` is how many others wait behind it, where that is known.
        """
        return self.decide(waited, left=left).drop

    def decide(self, waited: float, *, left: int = 1) -> Decision:
        """As :meth:`drops`, with the reason. A wait that is no number is harmless."""
        with self._lock:
            decision = step(self._terms, self._state, waited if math.isfinite(waited) else 0.0, left, self._clock())
            self._state = decision.state
        return decision
