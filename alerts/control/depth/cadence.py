"""Which queue is asked next, and when: hurried ones ten times a second, calm ones twice, within the broker's bound.

A flood that begins while all is calm is seen half a second later at most: 70 messages a second too many are 35 by then,
a third of a second of what twelve workers of 0.1 s do. Once anything waits the queue is asked ten times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

#: Seconds between two questions about one queue.
CALM_SECONDS, HURRIED_SECONDS = 0.5, 0.1
#: After a failure a broker is not asked anything for so long (seconds): by then glances have ceased to count.
REST_SECONDS = 2.0


@dataclass(slots=True)
class Cadence:
    """The queues of one broker, which is asked ``per_second`` questions a second at most. Times are seconds."""

    queues: Iterable[str]
    per_second: float
    asked_at: dict[str, float] = field(init=False)
    _last: float = field(init=False, default=float("-inf"))
    _not_before: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self.asked_at = dict.fromkeys(self.queues, float("-inf"))

    def next(self, now: float, hurried: Callable[[str], bool]) -> tuple[str, float]:
        """The queue to ask next, and in how many seconds: the one that is overdue for the longest."""
        due = {queue: at + (HURRIED_SECONDS if hurried(queue) else CALM_SECONDS) for queue, at in self.asked_at.items()}
        queue = min(due, key=lambda name: due[name])
        return queue, max(0.0, due[queue] - now, self._last + 1 / self.per_second - now, self._not_before - now)

    def asked(self, queue: str, now: float) -> None:
        """It was asked at ``now``."""
        self.asked_at[queue] = self._last = now

    def rest(self, now: float) -> None:
        """The broker did not answer."""
        self._not_before = now + REST_SECONDS
