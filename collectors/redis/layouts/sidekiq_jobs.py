"""What Sidekiq's jobs and processes say of themselves, sorted by queue: pure functions over what Redis answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brokers.redis.resp import Answer, Refusal
from brokers.texts import loads
from collectors.redis.layouts.base import UNREADABLE

#: Seconds after which a process that reports nothing is gone, as Sidekiq has it: its hash expires.
GONE_AFTER = 60
#: A larger number is in milliseconds: as seconds it lies in the year 5138.
_MILLISECONDS = 1e11


@dataclass(frozen=True, slots=True)
class Job:
    """What one job says of itself; ``since``: when it was enqueued, in microseconds since 1970."""

    queue: str | None
    since: float | None
    retried: bool
    document: Any


@dataclass(frozen=True, slots=True)
class Process:
    """One Sidekiq process that reports."""

    queues: frozenset[str]
    concurrency: int | None
    quiet: bool
    beat: float


@dataclass(slots=True)
class Held:
    """One queue's jobs outside its list, at work or in the shared sets, and since when in microseconds."""

    working: list[tuple[Job, float | None]] = field(default_factory=list)
    due: list[tuple[Job, float, bool]] = field(default_factory=list)  # the last: whether it is a retry
    scheduled: list[Job] = field(default_factory=list)
    retrying: list[Job] = field(default_factory=list)


@dataclass(slots=True)
class Shared:
    """What is read once for all queues, and why what could not be read is unknown."""

    held: dict[str, Held] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    paused: frozenset[str] = frozenset()
    unread_processes: str | None = None
    unread_work: str | None = None
    unread_sets: dict[str, str] = field(default_factory=dict)  # name of the set → why

    def of(self, queue: str) -> Held:
        """The queue's own, to add to."""
        return self.held.setdefault(queue, Held())


def job(raw: bytes | str) -> Job:
    """What one job says; what is no JSON object says nothing."""
    try:
        told = loads(raw)
    except UNREADABLE:
        told = None
    if not isinstance(told, dict):
        return Job(None, None, False, None)
    queue = told.get("queue")
    since = _micros(told.get("enqueued_at"))
    return Job(queue if isinstance(queue, str) else None, since, told.get("retry_count") is not None, told)


def _micros(value: Any) -> float | None:
    """Microseconds since 1970 from seconds (up to Sidekiq 7), or milliseconds (since 8)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
        return None
    return value * (1e3 if value >= _MILLISECONDS else 1e6)


def process(told: Answer, now: int) -> Process | None:
    """One process' hash; None where it is gone, or was never whole."""
    if isinstance(told, Refusal) or not isinstance(told, list) or told[0] is None or told[3] is None:
        return None
    try:
        info, beat = loads(told[0]), float(told[3]) * 1e6
        concurrency = told[1] if told[1] is not None else info.get("concurrency")
        queues = info.get("queues") or [
            name for capsule in info.get("capsules", {}).values() for name in capsule["weights"]
        ]
        return (
            Process(
                frozenset(map(str, queues)),
                int(concurrency) if concurrency is not None else None,
                told[2] == b"true",
                beat,
            )
            if now - beat < GONE_AFTER * 1e6
            else None
        )
    except UNREADABLE:
        return None


def take_work(shared: Shared, entry: bytes) -> None:
    """One job at work: {"queue", "payload", "run_at"}; the payload is JSON in JSON, an object before Sidekiq 6."""
    try:
        told = loads(entry)
        payload, began = told["payload"], _micros(told.get("run_at"))
        one = job(payload) if isinstance(payload, str) else Job(None, None, False, payload)
        shared.of(str(told["queue"])).working.append((one, began))
    except UNREADABLE:
        shared.unread_work = "what a process says of its work cannot be read"


def take_scored(shared: Shared, name: str, members: Sequence[bytes], now: int) -> str | None:
    """Sort jobs and scores (seconds) by queue; why not, where one does not say whose it is."""
    found: list[tuple[Job, float]] = []
    for raw, score in zip(members[::2], members[1::2], strict=True):
        one = job(raw)
        if one.queue is None:
            return "a job there does not say whose it is"
        found.append((one, float(score) * 1e6))
    for one, due in found:
        held = shared.of(one.queue or "")
        if due <= now:
            held.due.append((one, due, name == "retry"))
        elif name == "retry":
            held.retrying.append(one)
        else:
            held.scheduled.append(one)
    return None
