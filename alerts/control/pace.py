"""How often metrics are looked at for what alerts name: once a second, and sooner while an alert is new; and how often
somebody looks at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from alerts.control.active_limit import Key
from alerts.control.candidates import Candidate

#: Metrics are looked at no more often than this, except for an alert that is new (seconds).
OBSERVE_EVERY = 1.0
#: For so long after an alert came, policies that are ``early`` look as often as this (seconds), at data that are newer.
NEW_SECONDS, OBSERVE_NEW = 10.0, 0.2
#: Where a policy is ``early``, no more time passes without a look (seconds): history grows by three commits a second,
#: and a look that finds a minute of them takes half a second longer.
REHEARSE_EVERY = 20.0


class Pace:
    """When to look next, where policies of these names are ``early``. Belongs to one thread."""

    def __init__(self, early: Collection[str]) -> None:
        self._early = early
        self._looked_at = -math.inf
        self._saw: datetime | None = None
        #: Since when an early policy has had each before it that no limit holds.
        self._met: dict[Key, float] = {}
        #: Whether one of them came a short while ago.
        self.hurried = False

    def due(
        self,
        candidates: Sequence[Candidate],
        limited: Mapping[Key, object],
        refused: Mapping[Key, object],
        now: float,
        as_of: datetime | None,
    ) -> bool:
        """Whether to look at ``candidates`` ``now`` (seconds), when data reach to ``as_of``: which of them are
        ``limited``, and which were ``refused`` when they were looked at last."""
        early = (item.key for item in candidates if item.key.policy in self._early)
        met, self._met = self._met, {key: self._met.get(key, now) for key in early if key not in limited}
        self.hurried = any(0 <= now - since < NEW_SECONDS for since in self._met.values())
        known = limited.keys() | refused.keys() | met.keys()
        new = any(item.key not in known for item in candidates)
        every = OBSERVE_NEW if self.hurried and as_of != self._saw else OBSERVE_EVERY
        if not candidates or (not new and 0 <= now - self._looked_at < every):
            return False
        self._looked_at, self._saw = now, as_of
        return True

    def rehearses(self, now: float) -> bool:
        """Whether nobody has looked for so long that a look is to be rehearsed ``now``."""
        if not self._early or now - self._looked_at < REHEARSE_EVERY:
            return False
        self._looked_at = now
        return True

    def forget(self) -> None:
        """There was nothing to look at."""
        self._looked_at = -math.inf
