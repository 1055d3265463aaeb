"""What a queue may go through, as the records that collectors would write, and what rules see of it.

Each situation is a broker of its own. What the views hold of it is what the reference counts, which the views are held
to; so rules are tried on rows as they come, and not on rows that somebody thought of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.rules.expression import schema_of
from tests.reference.reference import Reference

Row = dict[str, Any]

#: Every situation is watched for so many seconds: closely at first, then at longer intervals.
LENGTH = 1800
INSTANTS = (*range(5, 60, 10), *range(60, LENGTH, 240))
#: Data older than this is stale.
STALE_AFTER = 30
_VIEWS = ("tenant_backlog", "queue_health", "attempt_age", "concurrency")


@dataclass
class Situation:
    """A broker's records; every instant is in seconds since ``START``."""

    name: str
    events: list[Row]
    samples: list[Row]
    start: datetime

    def event(self, event_type: str, message: object, at: float, *, enqueued: float = 0, **more: Any) -> None:
        """``message`` was ``event_type`` at ``at``."""
        row = {
            "event_type": event_type,
            "broker": self.name,
            "queue": "orders",
            "subscriber": None,
            "tenant": "acme",
            "message_id": str(message),
            "enqueued_at": self.start + timedelta(seconds=enqueued),
            "occurred_at": self.start + timedelta(seconds=at),
        }
        self.events.append({**row, **more})

    def job(self, message: object, at: float, *, wait: float = 0.1, takes: float | None = 0.1) -> None:
        """A message enqueued at ``at``, begun ``wait`` later, and done if it ``takes`` a known time."""
        self.event("enqueued", message, at, enqueued=at)
        self.event("received", message, at + wait, enqueued=at, attempt=1)
        if takes is not None:
            self.event("completed", message, at + wait + takes, enqueued=at, attempt=1, processing_seconds=takes)

    def sample(self, at: float, queue: str = "orders", **more: Any) -> None:
        """The broker was read at ``at``."""
        row = {"sampled_at": self.start + timedelta(seconds=at), "broker": self.name, "queue": queue}
        self.samples.append({**row, "subscriber": None, "source": "sampler", **more})

    def sampled(self, until: int = LENGTH, **more: Any) -> None:
        """The broker was read every ten seconds; what is given as a function depends on the time."""
        for at in range(0, until, 10):
            self.sample(at, **{name: value(at) if callable(value) else value for name, value in more.items()})

    def rows(self, at: int) -> dict[str, list[Row]]:
        """What the engine and the four views show at ``at``."""
        now = self.start + timedelta(seconds=at)
        events = [event for event in self.events if event["occurred_at"] <= now]
        samples = [sample for sample in self.samples if sample["sampled_at"] <= now]
        instants = [event["occurred_at"] for event in events] + [sample["sampled_at"] for sample in samples]
        if not instants:
            return {}
        age = (now - max(instants)).total_seconds()
        freshness = {"broker": self.name, "as_of": max(instants), "age_seconds": age}
        reference = Reference(events, samples)
        views = {f"{view}_now": getattr(reference, view)(now=True) for view in _VIEWS}
        newest = samples[-1:] if samples and samples[-1].get("tenants") else []
        views["sampled_tenants"] = [{**sample, **share} for sample in newest for share in sample["tenants"]]
        return views | {"data_freshness": [freshness | {"stale": age > STALE_AFTER, "sampled": bool(samples)}]}


def table(view: str, rows: list[Row]) -> pa.Table:
    """``rows`` of the reference as the view has them."""
    schema = schema_of(view)
    names = [name for name in schema.names if name != "histogram"]
    flat = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], schema=flat)


Story = Callable[[Situation], None]
CALM: dict[str, Story] = {}
TROUBLE: dict[str, tuple[Story, frozenset[str]]] = {}


def calm(story: Story) -> Story:
    """Nothing that anybody must be woken for."""
    CALM[story.__name__] = story
    return story


def trouble(*alerts: str) -> Callable[[Story], Story]:
    """What must fire ``alerts`` in the end."""

    def noted(story: Story) -> Story:
        TROUBLE[story.__name__] = story, frozenset(alerts)
        return story

    return noted
