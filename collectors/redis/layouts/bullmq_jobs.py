"""What BullMQ's jobs say of themselves, and what it makes of a queue: pure functions over what Redis answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from brokers.redis.resp import Answer
from brokers.tenants import Message, Rule
from brokers.texts import loads
from collectors.redis.layouts.base import UNREADABLE, UNTOLD_ANYWHERE, age
from collectors.samples import Sample, status_of
from collectors.tenants import Shares

_UNTOLD = UNTOLD_ANYWHERE | {
    "delivered_total": "BullMQ does not count attempts by queue",
    "redelivered_total": "BullMQ does not count attempts by queue",
    "lost_total": "BullMQ does not count what is removed",
}
_NO_TIME = "a job that may be the oldest does not tell when it was added"


@dataclass(frozen=True, slots=True)
class Job:
    """One job; times in microseconds since 1970. ``since``: when it was first due."""

    id: str
    place: str  # waiting, due, delayed or active
    since: float | None
    began: float | None
    attempted: bool
    document: Any = None


@dataclass(slots=True)
class Found:
    """What is known of one queue."""

    name: str
    waiting: int = 0
    delayed: int = 0  # of the sorted set, what is due among them
    due: int = 0
    parents: int = 0
    active: int = 0
    failed: int = 0
    grouped: int | None = None
    published: bytes | None = None
    acked: bytes | None = None
    paused: bool = False
    concurrency: bytes | None = None
    whole: bool = True  # whether every job was looked into
    held_back: int = 0  # active jobs that were not looked into
    unlocked: int = 0
    failed_since: float | None = None
    unsure: str | None = None  # why what was looked into may not hold the oldest
    unread_groups: str | None = None
    untold_tenants: str | None = None
    rules: Sequence[Rule] = ()
    due_times: list[float] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)


class Workers(Protocol):
    """Who is connected."""

    workers: dict[str, int]
    unread_workers: str | None


def job_of(id: str, place: str, told: Sequence[Answer], data: bytes | None) -> Job:
    """A job of its hash: times in milliseconds, opts and data in JSON; what is absent is unknown."""
    timestamp, processed, opts, started, made, stalled = told
    since, began = _millis(timestamp), _millis(processed)
    delay = _read(opts)
    planned = delay.get("delay") if isinstance(delay, dict) else None
    if since is not None and isinstance(planned, (int, float)) and 0 < planned < 1e12:
        since += planned * 1e3
    attempted = any(_count(number) for number in (started, made, stalled))
    return Job(id, place, since, began, attempted, _read(data))


def _millis(raw: bytes | None) -> float | None:
    try:
        value = float(raw) if raw is not None else 0.0
    except ValueError:
        return None
    return value * 1e3 if 0 < value < 1e14 else None


def _count(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() else 0


def _read(raw: bytes | None) -> Any:
    try:
        return loads(raw) if raw else None
    except UNREADABLE:
        return None


def sample_of(found: Found, name: str, workers: Workers, now: int) -> list[Sample]:
    """The queue's row, and that of its failed jobs; ``name`` is PREFIX:QUEUE, by which workers are counted."""
    missing = dict(_UNTOLD)
    waiting = [job for job in found.jobs if job.place in ("waiting", "due")]
    active = [job for job in found.jobs if job.place == "active"]
    depth: int | None = found.waiting + found.due
    if found.unread_groups:
        depth, missing["depth"] = None, found.unread_groups
    sample = Sample(
        found.name,
        now,
        depth=depth,
        in_flight=found.active,
        delayed=found.delayed - found.due + found.parents,
        queue_type="list",
        tenants=_shares(found, now, missing),
        **_ages(found, waiting, active, now, missing),
        **_counted(found, name, workers, missing),
        unavailable=missing,
    )
    return [sample, _failed(found, now)]


def _ages(
    found: Found, waiting: Sequence[Job], active: Sequence[Job], now: int, missing: dict[str, str]
) -> dict[str, Any]:
    for column in ("retrying", "oldest_first_attempt_age_seconds", "oldest_in_flight_age_seconds"):
        missing.pop(column, None)
    partly = (
        found.unsure or found.unread_groups or ("Pro's groups are counted, not looked into" if found.grouped else None)
    )
    partly = partly or (f"{found.held_back} active jobs are not looked into" if found.held_back else None)
    told: dict[str, Any] = {}

    def tell(column: str, value: float | None, why: str | None) -> None:
        told[column] = value if why is None else None
        if told[column] is None:
            missing[column] = why or _NO_TIME

    due = [job for job in waiting if job.place == "due"]
    told_or_due = _oldest(now, [*(job.since for job in (*waiting, *active)), *(found.due_times if not due else ())])
    tell("oldest_age_seconds", told_or_due, partly)
    never = [job for job in waiting if not job.attempted]
    unseen = (
        None if found.whole else "not every job that waits is looked into, and those that are were attempted before"
    )
    sure = found.whole or (
        never and _oldest(now, [job.since for job in waiting]) == _oldest(now, [job.since for job in never])
    )
    tell(
        "oldest_first_attempt_age_seconds",
        _oldest(now, [job.since for job in never]),
        partly or (None if sure else unseen),
    )
    tell("oldest_in_flight_age_seconds", _oldest(now, [job.began for job in active]), None)
    retrying = sum(job.attempted for job in found.jobs if job.place != "active")
    tell("retrying", retrying, partly or (None if found.whole else "not every job is looked into for its attempts"))
    return told


def _oldest(now: int, times: Sequence[float | None]) -> float | None:
    """The age of the earliest; 0 of none at all, None where one of them is unknown."""
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    return age(now, min(known)) if known else 0.0


def _counted(found: Found, name: str, workers: Workers, missing: dict[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {}

    def tell(column: str, value: Any, why: str) -> None:
        told[column] = value
        if value is None:
            missing[column] = why
        else:
            missing.pop(column, None)

    attached = workers.workers.get(name, 0) if workers.unread_workers is None else None
    tell("consumers", attached, workers.unread_workers or "")
    tell("published_total", int(found.published) if found.published else None, "no job was added yet")
    tell("acked_total", int(found.acked) if found.acked else None, "counted where a worker has its metrics enabled")
    tell("in_flight_limit", int(found.concurrency) if found.concurrency else None, "each worker chooses its own")
    tell("state", "paused" if found.paused else "stalled" if found.unlocked else "running", "")
    told["status"] = status_of(told["state"], missing)
    return told


def _shares(found: Found, now: int, missing: dict[str, str]) -> Any:
    if found.untold_tenants:
        missing["tenants"] = found.untold_tenants
    if not found.rules:
        return None
    shares = Shares(found.rules)
    for job in found.jobs:
        message = Message(queue=found.name, key=job.id, document=job.document)
        if job.place == "delayed":
            shares.add(message, "delayed")
        else:
            shares.add(message, "in_flight" if job.place == "active" else "depth", job.since)
    return shares.told(now)


def _failed(found: Found, now: int) -> Sample:
    """The jobs that failed for good, scored by when, in milliseconds."""
    missing = dict(_UNTOLD)
    missing |= dict.fromkeys(("published_total", "acked_total"), "BullMQ counts what failed by attempts, not by jobs")
    missing |= dict.fromkeys(("state", "in_flight_limit"), "nothing is taken from it")
    oldest = 0.0 if not found.failed else age(now, found.failed_since) if found.failed_since is not None else None
    if oldest is None:
        missing["oldest_age_seconds"] = "the first failed job is gone again"
    return Sample(
        f"{found.name}.failed",
        now,
        depth=found.failed,
        in_flight=0,
        delayed=0,
        consumers=0,
        oldest_age_seconds=oldest,
        dead_letter_for=found.name,
        queue_type="sorted set",
        unavailable=missing,
    )
