"""What receivers have been told, what is on its way to them, and what they refused: three different things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alerts.models import AlertInstance
from alerts.notify.plan import Entry, Group, Refusal, group_of, ways
from alerts.notify.settings import ReceiverSettings
from alerts.routing.settings import RouteSettings


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

    def holds(self, alert: AlertInstance, receivers: Sequence[ReceiverSettings], route: RouteSettings) -> bool:
        """Whether any receiver was told, or is being told, that ``alert`` fires, and nothing else since."""
        return any(
            alert.fingerprint in entry.firing
            for receiver, way in ways(alert, receivers, route)
            for entry in self._entries(group_of(alert, receiver, way))
        )

    def _entries(self, group: Group) -> Iterable[Entry]:
        if group in self.log:
            yield self.log[group]
        yield from self._pending.get(group, {}).values()
