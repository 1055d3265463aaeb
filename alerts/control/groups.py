"""Who counts as one tenant to rules and policies: declared groups, and names that began together."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa

from alerts.control.active_limit import ActiveLimit, Target
from alerts.control.actuators import LIMITS_API, Told
from alerts.control.settings import GroupSettings
from alerts.control.statements import of_queues
from alerts.rules.expression import ENGINE_VIEWS
from sojourn.client.groups import Onsets, Patterns

Query = Callable[[str], pa.Table]
Place = tuple[str, str]  # broker, queue

_ROWS = """
    SELECT broker, queue, tenant, CAST(MAX(arrival_rate) AS DOUBLE) AS rate
    FROM tenant_backlog_now {only} GROUP BY broker, queue, tenant"""


class Groups:
    """The groups of the queues that ``settings`` name. :meth:`table` belongs to one thread, the rest to any."""

    def __init__(self, settings: Sequence[GroupSettings]) -> None:
        self._patterns = {(one.broker, one.queue): Patterns(one.names) for one in settings}
        self._onsets: dict[Place, Onsets] = {(one.broker, one.queue): Onsets() for one in settings if one.together}
        #: Replaced whole.
        self.members: Mapping[Target, frozenset[str]] = MappingProxyType({})

    def table(self, query: Query, now: datetime) -> pa.Table:
        """A look at who is there at ``now``: the rows of ``tenant_groups``. SojournError where the query fails."""
        schema = ENGINE_VIEWS["tenant_groups"]
        if not self._patterns:
            return schema.empty_table()
        rows = query(_ROWS.format(only=of_queues({queue for _, queue in self._patterns}))).to_pylist()
        at = now.timestamp()
        for row in rows:
            onsets = self._onsets.get((row["broker"], row["queue"]))
            if onsets is not None and (row["rate"] or 0.0) > 0 and row["tenant"] is not None:
                onsets.came(row["tenant"], at)
        found: dict[Target, set[str]] = defaultdict(set)
        told = []
        for row in rows:
            broker, queue, tenant = row["broker"], row["queue"], row["tenant"]
            patterns = self._patterns.get((broker, queue))
            if patterns is None or tenant is None:
                continue
            declared = patterns.of(tenant)
            onsets = self._onsets.get((broker, queue))
            group = declared or (onsets.of(tenant, at) if onsets is not None else None)
            if group is not None:
                found[Target(broker, queue, group)].add(tenant)
                told.append(
                    {"broker": broker, "queue": queue, "tenant": tenant, "tenant_group": group}
                    | {"declared": declared is not None}
                )
        self.members = MappingProxyType({target: frozenset(names) for target, names in found.items()})
        return pa.Table.from_pylist(told, schema=schema)

    def parts(self, item: ActiveLimit) -> list[ActiveLimit]:
        """What puts ``item`` in force: itself; of a group, one limit for all where its pattern can be told, or an equal
        part for each member – what one leaves, another has no way to know."""
        target = item.key.target
        names = self.members.get(target)
        if names is None or (item.actuator == LIMITS_API and self._declared(target)):
            return [item]
        limit = dataclasses.replace(item.limit, rate=item.limit.rate / len(names))
        return [
            dataclasses.replace(
                item,
                key=dataclasses.replace(item.key, target=dataclasses.replace(target, tenant=name)),
                limit=limit,
                burst=max(1.0, item.burst / len(names)),
            )
            for name in sorted(names)
        ]

    def _declared(self, target: Target) -> bool:
        patterns = self._patterns.get((target.broker, target.queue))
        return patterns is not None and patterns.of(target.tenant) == target.tenant


def together(parts: Sequence[ActiveLimit], told: Mapping[Target, Told]) -> Told:
    """What became of a limit that was put in force by ``parts``: the first failure, and of how many it was made."""
    each = [told.get(part.key.target, Told()) for part in parts]
    failure = next((one.error for one in each if one.error is not None), None)
    facts = each[0].facts if len(each) == 1 else {"members": str(len(each))}
    return Told(failure, facts)
