"""What glances tell of themselves, for the alert process' metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from alerts.control.depth.looker import Looker
from alerts.control.entitler import Entitler

Family = tuple[str, str, str, list[tuple[dict[str, str], float]]]
_ENDS = ("told", "unknown", "failed", "late")


def families(lookers: Sequence[Looker], entitler: Entitler, now: datetime) -> Iterator[Family]:
    """Families of samples, for brokers that are asked at all. What was never told has no sample."""
    asking = [looker for looker in lookers if looker.queues]
    if not asking:
        return
    yield (
        "depth_questions_total",
        "counter",
        "Questions to brokers how many messages wait, by how they ended.",
        [({"broker": one.name, "outcome": end}, float(one.asked[end])) for one in asking for end in _ENDS],
    )
    told = [({"broker": one.name, "queue": queue}, last) for one in asking for queue, last in sorted(one.told.items())]
    yield (
        "depth_messages",
        "gauge",
        "Messages that waited when the broker was asked last.",
        [(labels, waiting) for labels, (_, waiting) in told],
    )
    yield (
        "depth_age_seconds",
        "gauge",
        "Since the broker told how many messages wait.",
        [(labels, max(0.0, (now - at).total_seconds())) for labels, (at, _) in told],
    )
    yield (
        "depth_counts",
        "gauge",
        "Whether entitlements heed what the broker tells: it is fresh, and metrics confirm it.",
        [
            ({"broker": one.name, "queue": queue}, float(entitler.counts((one.name, queue), now)))
            for one in asking
            for queue in one.queues
        ],
    )
