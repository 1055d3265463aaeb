"""What the headings and labels of the pages mean: in plain words, by the views' own definitions, and the SQL behind.

The definitions are those of :mod:`lake.views`: they stand there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lake.tables import TABLES
from lake.views import VIEWS, Column


@dataclass(frozen=True, slots=True)
class Meaning:
    """One metric: ``words`` for who has never heard of it; ``columns`` of ``view``, or of a table, have it in the rows
    ``where`` that holds."""

    words: str
    view: str
    columns: tuple[str, ...]
    where: str = ""

    @property
    def defined(self) -> tuple[Column, ...]:
        """Its columns, with their definitions; a table's have none."""
        return tuple(column for column in self._columns if column.name in self.columns)

    @property
    def sql(self) -> str:
        """What anybody can ask to have the same numbers."""
        names = [column.name for column in self._columns] or TABLES[self.view].schema.names
        keys = [name for name in ("broker", "queue", "subscriber", "tenant") if name in names]
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {', '.join((*keys, *self.columns))} FROM {self.view}{where}"

    @property
    def _columns(self) -> tuple[Column, ...]:
        return VIEWS[self.view].columns if self.view in VIEWS else ()


_HEALTH, _TENANTS, _WORK, _AGES = "queue_health_now", "tenant_backlog_now", "concurrency_now", "attempt_age_now"
_OLDEST = Meaning(
    "How long the message has waited that has waited longest. A burst of one tenant does not hide in a mean.",
    _HEALTH,
    ("oldest_age_seconds",),
)
_QUIET = Meaning(
    "How long the oldest message of those tenants waits who take no more than their share: what everybody else feels.",
    _HEALTH,
    ("quiet_oldest_age_seconds",),
)
_DEAD = Meaning(
    "Messages that the queue has given up, after too many attempts or because a consumer refused them.",
    "partials",
    ("dead_lettered",),
    "dead_lettered > 0",
)
_BURN = Meaning(
    "How fast the budget for late messages is spent: 1 × spends it in just the objective's period. It is the part of "
    "attempts that were late ÷ the part that may be.",
    "attempt_age",
    ("kind", "count", "histogram"),
)

#: By heading or label as viewers read it, or what it begins with.
MEANINGS: Mapping[str, Meaning] = {
    "Mode": Meaning(
        "Fast: messages begin within the target. Backlogged: the oldest waits beyond it, and the queue works on stale "
        "messages until it has caught up.",
        _HEALTH,
        ("mode", "mode_since"),
    ),
    "Oldest": _OLDEST,
    "Oldest, quiet": _QUIET,
    "Backlog": Meaning(
        "Messages that were sent and are not finished: those that wait, those that are worked on, those that are "
        "delayed.",
        _TENANTS,
        ("backlog", "reconciled_backlog"),
    ),
    "Share of backlog": Meaning("Whose backlog it is.", _TENANTS, ("share",)),
    "Share of arrivals": Meaning("Who sends, of all that comes in.", _TENANTS, ("arrival_rate",)),
    "Ready": Meaning("Messages that a consumer could take now.", _TENANTS, ("ready",)),
    "In → out": Meaning(
        "Messages a second that come in and that leave. More in than out: it grows.",
        _TENANTS,
        ("arrival_rate", "completion_rate"),
    ),
    "Drained": Meaning(
        "When the backlog is gone if all goes on as in the last window; never, where as much comes in as leaves.",
        _HEALTH,
        ("drain_state", "drain_eta_seconds"),
    ),
    "In flight": Meaning(
        "Messages that consumers have and have not finished.", _HEALTH, ("in_flight", "in_flight_limit")
    ),
    "Coverage": Meaning(
        "Whether events tell of as many messages as the broker counts: 100 % means that both agree, less that events "
        "are missing.",
        _HEALTH,
        ("coverage",),
    ),
    "Broker's own count": Meaning("How many messages wait, as the broker says itself.", _HEALTH, ("depth",)),
    "Sampled": Meaning("When the broker was last asked.", _HEALTH, ("staleness_seconds",)),
    "First attempt": Meaning(
        "How long messages waited until somebody first tried to work on them, retries left out; 99 of 100 waited no "
        "longer than the p99.",
        _AGES,
        ("p50_seconds", "p99_seconds", "count"),
        "kind = 'first_attempt'",
    ),
    "In the system": Meaning(
        "How long messages took from being sent until they were finished, with all waits and retries.",
        _AGES,
        ("p50_seconds", "p99_seconds", "count"),
        "kind = 'completion'",
    ),
    "Work": Meaning(
        "How many attempts are at work at once by Little's law: how much of the consumers a tenant has.",
        _WORK,
        ("littles_law", "start_rate", "mean_processing_seconds"),
    ),
    "At work": Meaning(
        "How many attempts the pace of work explains, by Little's law, beside those that are in flight. Many more in "
        "flight: slots leaked, or nobody works on them.",
        _WORK,
        ("littles_law", "in_flight"),
    ),
    "Of its limit": Meaning(
        "How much of what the broker lets a consumer hold is in use. At 100 % it hands out nothing more.",
        _WORK,
        ("saturation", "concurrency_limit"),
    ),
    "Empty polls": Meaning(
        "How often a consumer asked and got nothing. None for long means no headroom.", _HEALTH, ("empty_poll_ratio",)
    ),
    "Retries": Meaning("How many of the attempts were not the first of their message.", _HEALTH, ("retry_ratio",)),
    "Processing": Meaning(
        "How long an attempt works; of the time after which the broker hands the message out again.",
        _WORK,
        ("mean_processing_seconds", "p99_processing_seconds"),
    ),
    "Prefetch": Meaning(
        "How many messages a consumer is handed ahead. More than (round trip + processing) ÷ processing only keeps "
        "them from others.",
        _HEALTH,
        ("prefetch",),
    ),
    "Consumers": Meaning("How many consumers the broker counts, and what is wrong.", _HEALTH, ("consumers", "status")),
    "Limit": Meaning("At most so many messages a second of this tenant, for now.", "limits", ("rate", "valid_until")),
    "In the last day": _DEAD,
    "Of all finished": _DEAD,
    "In the last minute": Meaning("The same, of late.", _HEALTH, ("dead_lettered",)),
    "In dead-letter queues": Meaning("What was given up and waits for somebody.", _HEALTH, ("dlq_depth",)),
    "Budget left": _BURN,
    "Late in": _BURN,
    "Burn": _BURN,
    "Spent in": _BURN,
}


def meaning(heading: str) -> tuple[str, Meaning] | None:
    """What ``heading`` means and the name it goes by here, the longest that it begins with; None where it says it
    itself."""
    named = [name for name in MEANINGS if heading == name or heading.startswith((f"{name},", f"{name} "))]
    return (found := max(named, key=len), MEANINGS[found]) if named else None
