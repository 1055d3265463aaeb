"""One queue's messages by tenant: so many are told apart, the rest is ``other``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from brokers.tenants import Message, Rule, tenant_of
from collectors.samples import TenantShare

#: Tenants of one queue that are told apart; the rest is ``other``.
MOST = 100
#: Messages that name none, and those of the tenants beyond :data:`MOST`.
UNKNOWN, OTHER = "unknown", "other"
#: Where a message is, as the fields of :class:`collectors.samples.TenantShare` call it.
Where = Literal["depth", "in_flight", "delayed"]


class Shares:
    """Counts one queue's messages by tenant, until it is asked for the shares."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._counts: dict[str, Counter[str]] = {}
        self._since: dict[str, float] = {}

    def add(self, message: Message, where: Where, since: float | None = None) -> None:
        """Count ``message``; ``since``: when its age began, in microseconds since 1970, where it has one."""
        if not self._rules:
            return
        tenant = tenant_of(self._rules, message) or UNKNOWN
        self._counts.setdefault(tenant, Counter())[where] += 1
        if since is not None:
            self._since[tenant] = min(since, self._since.get(tenant, since))

    def told(self, now: int) -> tuple[TenantShare, ...] | None:
        """Each tenant's share at ``now`` (microseconds), the largest first; None without rules.

        Beyond :data:`MOST` tenants, the smaller ones are one: ``other``.
        """
        if not self._rules:
            return None
        largest = sorted(self._counts, key=lambda tenant: (-self._counts[tenant].total(), tenant))
        if len(largest) > MOST:
            largest, rest = largest[: MOST - 1], largest[MOST - 1 :]
            self._counts[OTHER] = sum((self._counts[tenant] for tenant in rest), Counter())
            times = [self._since[tenant] for tenant in rest if tenant in self._since]
            if times:
                self._since[OTHER] = min(times)
            largest.append(OTHER)
        return tuple(self._share(tenant, now) for tenant in largest)

    def _share(self, tenant: str, now: int) -> TenantShare:
        counts, since = self._counts[tenant], self._since.get(tenant)
        oldest = max(0.0, (now - since) / 1e6) if since is not None else None
        if oldest is None and not counts["depth"] and not counts["in_flight"]:
            oldest = 0.0
        return TenantShare(tenant, counts["depth"], counts["in_flight"], counts["delayed"], oldest)
