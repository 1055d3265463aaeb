"""What receivers have been told, what is on its way to them, and what they refused: three different things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alerts.notify.plan import Entry, Group, Refusal


@dataclass(frozen=True, slots=True)
class Settled:
    """A notification that has left the outbox: delivered, or given up. ``entry`` is what it said."""

    id: str
    group: Group
    entry: Entry
    delivered: bool


class Told:
    """The log of deliveries beside the notifications under way. It changes nothing that is stored."""

    def __init__(self, log: Mapping[Group, Entry], pending: Iterable[tuple[str, Group, Entry]]) -> None:
        self.log = dict(log)
        self.refusals: dict[Group, Refusal] = {}
        self._pending: dict[Group, dict[str, Entry]] = {}  # oldest first
        for id, group, entry in pending:
            self.sent(id, group, entry)

    def sent(self, id: str, group: Group, entry: Entry) -> None:
        """A notification that says ``entry`` is on its way."""
        self._pending.setdefault(group, {})[id] = entry

    def settle(self, settled: Settled) -> None:
        """It has arrived, or has been given up: then it told nothing."""
        group = settled.group
        pending = self._pending.get(group, {})
        pending.pop(settled.id, None)
        if not pending:
            self._pending.pop(group, None)
        if settled.delivered:
            self.log[group] = settled.entry
            self.refusals.pop(group, None)
        else:
            self.refusals[group] = Refusal.of(settled.entry, self.refusals.get(group))

    def is_pending(self, group: Group) -> bool:
        """Whether something is on its way."""
        return group in self._pending

    def expected(self) -> dict[Group, Entry]:
        """What each group's receiver will have been told once everything has arrived that is on its way."""
        return self.log | {group: next(reversed(pending.values())) for group, pending in self._pending.items()}

    def believed(self, receivers: Iterable[str]) -> set[str]:
        """The fingerprints that any of ``receivers`` was told, or is being told, to fire, and nothing else since."""
        names = {*receivers}
        entries = [*self.log.items(), *((group, one) for group, sent in self._pending.items() for one in sent.values())]
        return {fingerprint for group, entry in entries if group[0] in names for fingerprint in entry.firing}
