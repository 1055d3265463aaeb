"""First attempts over all subscribers where history was rolled up, by brute force: one value a message."""

from __future__ import annotations

from collections.abc import Callable

from tests.reference.lives import SECOND, Event, Queue, Row, age_columns, moment, named
from tests.reference.reference import Reference

KIND = "first_subscriber_first_attempt"


def first_receipts(reference: Reference, width: Callable[[str, int], int]) -> list[Row]:
    """The rows of `attempt_age` of this kind; ``width``: broker, unix second → seconds of the bucket that holds it."""
    earliest: dict[tuple[str, str, str], Event] = {}
    for event in reference.receipts:
        if event.type == "received" and event.attempt == 1:
            message = (event.queue.broker, event.queue.queue, event.message)
            if message not in earliest or event.at < earliest[message].at:
                earliest[message] = event
    buckets: dict[tuple[Queue, str, int, int], list[int]] = {}
    for event in earliest.values():
        if event.age is not None:
            seconds = width(event.queue.broker, event.second)
            start = event.second // seconds * seconds
            buckets.setdefault((event.queue._replace(subscriber=""), event.tenant, start, seconds), []).append(
                event.age
            )
    return [
        {
            "bucket_start": moment(start * SECOND),
            "bucket_seconds": seconds,
            **named(queue),
            "tenant": tenant,
            "kind": KIND,
            **age_columns(ages),
        }
        for (queue, tenant, start, seconds), ages in buckets.items()
    ]
