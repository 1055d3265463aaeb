"""Which queue a row, an alert or an address means: broker, queue and subscriber, and the short names for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class QueueKey:
    """One queue as one subscriber sees it; ``subscriber`` '' is the queue's only consumer (null in the views)."""

    broker: str
    queue: str
    subscriber: str = ""

    @classmethod
    def of(cls, row: Row) -> QueueKey:
        """The key of a row of any view."""
        return cls(row["broker"], row["queue"], row.get("subscriber") or "")

    @property
    def full(self) -> str:
        """The name that is never ambiguous: ``nats/orders`` or ``nats/orders/billing``."""
        return f"{self.broker}/{self.queue}" + (f"/{self.subscriber}" if self.subscriber else "")


def short_names(keys: Iterable[QueueKey]) -> dict[QueueKey, str]:
    """For each key the shortest name that only it has: ``orders``, else the full one."""
    keys = list(keys)
    sharing = Counter(key.queue for key in keys)
    full_names = {key.full for key in keys}
    return {key: key.queue if sharing[key.queue] == 1 and key.queue not in full_names else key.full for key in keys}


def resolve(name: str, names: Mapping[QueueKey, str]) -> QueueKey | None:
    """The key that ``name`` (from an address or a label) means: short, full, or a queue's plain name."""
    for key, short in names.items():
        if name in (short, key.full):
            return key
    same_queue = sorted(key for key in names if name in (key.queue, f"{key.broker}/{key.queue}"))
    return same_queue[0] if same_queue else None


def concerns(labels: Row, key: QueueKey) -> bool:
    """Whether an alert's labels or an action's row are about this queue; a label that is absent says nothing."""
    return labels.get("queue") == key.queue and all(
        not labels.get(name) or labels[name] == mine
        for name, mine in (("broker", key.broker), ("subscriber", key.subscriber))
    )
