"""Redrives of one queue: where its dead letters are, and what was brought back, as the journal tells it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard.services.keys import QueueKey, Row, concerns
from dashboard.services.say import UNKNOWN, ago, count, instant

COLUMNS = ("State", "Back", "Dead again", "From", "Last change", "Why")


@dataclass(frozen=True, slots=True)
class Under:
    """One redrive; ``cells`` by :data:`COLUMNS`, ``over``: nothing more happens by itself."""

    id: str
    over: bool
    cells: tuple[str, ...]


def sources(health: Iterable[Row], key: QueueKey) -> dict[str, int | None]:
    """The dead-letter queues of one queue, by the broker's names, with what each holds: those with the most first."""
    found = {
        row["queue"]: row["depth"]
        for row in health
        if row["broker"] == key.broker
        and key.queue in [one.strip() for one in (row["dead_letter_for"] or "").split(",")]
    }
    return dict(sorted(found.items(), key=lambda item: (-(item[1] or 0), item[0])))


def redrives(actions: Iterable[Row], key: QueueKey, now: datetime) -> Sequence[Under]:
    """The redrives to one queue that the journal has, the newest first."""
    newest: dict[str, Row] = {}
    for row in sorted(actions, key=lambda row: row["at"]):
        if row["policy"] == "redrive" and concerns(row, key):
            newest[row["action_id"]] = row
    return [_under(row, now) for row in sorted(newest.values(), key=lambda row: row["at"], reverse=True)]


def _under(row: Row, now: datetime) -> Under:
    inputs = dict(row["inputs"] or {})
    over = row["after"] is None
    return Under(
        row["action_id"],
        over,
        (
            "over" if over else "under way",
            _count(inputs.get("moved")),
            _count(inputs.get("died")),
            inputs.get("source", UNKNOWN),
            f"{instant(row['at'], now, seconds=True)}, {ago(row['at'], now)}",
            row["reason"],
        ),
    )


def _count(text: str | None) -> str:
    return count(int(text)) if text is not None and text.isdecimal() else UNKNOWN
