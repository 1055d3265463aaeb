"""What laws remember of each tenant between two looks, and the law that decides: of shares, or one of its own."""

from __future__ import annotations

from collections.abc import Collection

from alerts.control.active_limit import Key
from alerts.laws import signalled, throttle
from alerts.laws.limits import Alert, Harm, Limit, Terms, Verdict
from alerts.laws.observation import Observation
from alerts.laws.signalled import Memory


class Minds:
    """Belongs to one thread. After a restart nothing is remembered: laws go on from the limit alone."""

    def __init__(self) -> None:
        #: Whom quiet tenants were seen to suffer from, and who is not limited: harm is believed at the second look.
        self._harm: dict[Key, Harm] = {}
        self._memories: dict[Key, Memory] = {}

    def decide(
        self, key: Key, terms: Terms, seen: Observation | None, limit: Limit | None, alert: Alert, now: float
    ) -> Verdict:
        """What the law of ``terms`` says about the tenant of ``key`` at ``now`` (seconds)."""
        if terms.own is None:
            verdict = throttle.decide(terms, seen, limit, alert, now, self._harm.pop(key, None))
        else:
            verdict = signalled.decide(terms, seen, limit, alert, now, self._memories.pop(key, None))
        if verdict.harm is not None:
            self._harm[key] = verdict.harm
        if verdict.memory is not None:
            self._memories[key] = verdict.memory
        return verdict

    def keep(self, current: Collection[Key]) -> None:
        """Forget all but ``current``."""
        self._harm = {key: harm for key, harm in self._harm.items() if key in current}
        self._memories = {key: memory for key, memory in self._memories.items() if key in current}
