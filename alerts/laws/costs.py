"""What a message of each tenant costs in seconds of work: shares are of consumers' time, not of messages.

A tenant whose messages take twenty times as long as others' would get twenty times its part if messages were counted.
Few messages say little: a tenant's mean is drawn towards the queue's, as if it had sent :data:`PRIOR` average ones (the
posterior mean under a conjugate prior).
"""

from __future__ import annotations

from collections.abc import Mapping

#: How fast what was seen is forgotten, a look; and average messages that each tenant is taken to have sent.
FORGOTTEN, PRIOR = 0.985, 10.0


def relative(own: tuple[float, float], whole: tuple[float, float]) -> float:
    """What a message of one tenant costs beside the queue's mean one, each (seconds of work, messages finished).

    1 where the queue's is not known; drawn towards 1 as :class:`Costs` does it.
    """
    if whole[0] <= 0 or whole[1] <= 0:
        return 1.0
    mean = whole[0] / whole[1]
    return (own[0] / mean + PRIOR) / (own[1] + PRIOR)


class Costs:
    """Costs of one queue, learnt look by look. Until any work is known, each message costs 1."""

    def __init__(self) -> None:
        self._tenants: dict[str, tuple[float, float]] = {}  # work, messages: the older the lighter
        self._work = self._messages = 0.0
        self._weight = 1.0  # of what comes next: growing weights forget without touching what is there

    @property
    def mean(self) -> float:
        """Seconds of work for a message of the queue, on average over what was finished."""
        return self._work / self._messages if self._work > 0 and self._messages > 0 else 1.0

    @property
    def known(self) -> bool:
        """Whether costs are seconds of work."""
        return self._work > 0 and self._messages > 0

    def look(self, work: Mapping[str, float], finished: Mapping[str, float]) -> None:
        """Count what tenants' ``finished`` messages, and attempts that failed, took: ``work`` in seconds.

        Messages of whose work nothing is told are not counted.
        """
        for name in (name for name, seconds in work.items() if seconds > 0):
            seconds, messages = self._weight * work[name], self._weight * finished.get(name, 0.0)
            before = self._tenants.get(name, (0.0, 0.0))
            self._tenants[name] = before[0] + seconds, before[1] + messages
            self._work += seconds
            self._messages += messages
        self._weight /= FORGOTTEN
        if self._weight > 1e12:
            self._rescale()

    def of(self, tenant: str) -> float:
        """Seconds of work for a message of ``tenant``; the queue's mean for one that was never seen."""
        if not self.known:
            return 1.0
        work, messages = self._tenants.get(tenant, (0.0, 0.0))
        prior = PRIOR * self._weight
        return (work + prior * self.mean) / (messages + prior)

    def _rescale(self) -> None:
        """Begin with weights of 1 again, and without those who count for nothing any more."""
        by = self._weight
        self._tenants = {
            name: (work / by, messages / by)
            for name, (work, messages) in self._tenants.items()
            if messages / by > 1e-6 or work / by > 1e-6
        }
        self._work, self._messages, self._weight = self._work / by, self._messages / by, 1.0
