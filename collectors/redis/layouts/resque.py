"""Resque: a list of JSON jobs for each queue, one of failures for all of them, a key for each worker's job.

A job is pushed on the right and taken from the left. It carries no time of its own; Rails' ActiveJob writes one into
its argument (``enqueued_at``, ISO 8601), and that is read. Key names are those of Resque 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from brokers.redis.resp import Refusal, checked
from brokers.tenants import Message
from brokers.texts import loads
from collectors.redis.layouts.base import UNREADABLE, UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.layouts.bounded import too_large
from collectors.redis.scan import Search
from collectors.redis.settings import ResqueLayout
from collectors.samples import Sample
from collectors.tenants import Shares
from collectors.timestamps import unix_microseconds

_UNTOLD = UNTOLD_ANYWHERE | {
    "delayed": "Resque has none; resque-scheduler's are not read",
    "retrying": "Resque does not retry by itself",
    "published_total": "Resque does not count what is pushed",
    "delivered_total": "Resque counts what was processed in all queues together",
    "acked_total": "Resque counts what was processed in all queues together",
    "redelivered_total": "Resque does not retry by itself",
}
_NO_TIME = "a Resque job carries no time, unless ActiveJob wrote its enqueued_at"


@dataclass(slots=True)
class Workers:
    """Who is registered, for which queues, and what each works on."""

    queues: list[frozenset[str]] = field(default_factory=list)
    working: list[tuple[str, float | None, Any]] = field(default_factory=list)  # queue, microseconds since, job
    unread: str | None = None


class Resque:
    """The listed queues, or those that Resque has registered."""

    def __init__(self, settings: ResqueLayout) -> None:
        self._settings = settings
        self._prefix = f"{settings.namespace}:" if settings.namespace else ""
        self._names = list(settings.queues)
        self._workers = Workers()

    def search(self) -> Search | None:
        """Nothing: Resque keeps sets of its queues and workers."""
        return None

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """Nothing was searched for."""

    def prepare(self, now: int) -> Preparing:
        """The queues and the workers."""
        workers = Workers()
        names, members = yield [("SMEMBERS", f"{self._prefix}queues"), ("SMEMBERS", f"{self._prefix}workers")]
        if not self._settings.queues and not (isinstance(names, Refusal) and self._names):
            (names,) = checked([names])
            self._names = sorted(map(text, names))
        if isinstance(members, Refusal):
            workers.unread = str(members)
        elif len(members) > 10 * self._settings.read_at_most:
            workers.unread = f"{len(members)} workers: too many to look at each"
        elif members:
            # host:pid:queue,queue
            workers.queues = [frozenset(text(one).split(":")[-1].split(",")) for one in members]
            for told in (yield [("GET", f"{self._prefix}worker:".encode() + one) for one in members]):
                _take(workers, told)
        self._workers = workers

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue, and what failed."""
        found: list[tuple[str, Read]] = [
            (name, partial(read, name, f"{self._prefix}queue:{name}", self._settings, self._workers))
            for name in self._names
        ]
        if self._names:
            found.append(("resque.failed", partial(read_failed, f"{self._prefix}failed", self._names)))
        return found


def _take(workers: Workers, told: Any) -> None:
    """What one worker works on: {"queue", "run_at", "payload"}; nothing where it is idle."""
    if told is None:
        return
    try:
        work = loads(told) if not isinstance(told, Refusal) else None
        if work is None:
            workers.unread = str(told)
        else:
            workers.working.append((str(work["queue"]), unix_microseconds(work.get("run_at")), work.get("payload")))
    except UNREADABLE:
        workers.unread = "what a worker works on cannot be read"


def _since(job: Any) -> float | None:
    """When ActiveJob enqueued the job, in microseconds since 1970."""
    try:
        return unix_microseconds(job["args"][0]["enqueued_at"])
    except UNREADABLE:
        return None


def _job(raw: bytes) -> Any:
    try:
        return loads(raw)
    except UNREADABLE:
        return None


def read(name: str, key: str, settings: ResqueLayout, workers: Workers, now: int) -> Reading:
    """One queue: its list, and what workers do of it."""
    window = settings.read_at_most if settings.tenant else 1
    length, usage = yield [("LLEN", key), ("MEMORY", "USAGE", key)]
    checked([length])
    jobs, why = list[Any](), too_large(usage, length, window)
    if length and why is None:
        (raw,) = checked((yield [("LRANGE", key, 0, window - 1)]))
        jobs = [_job(each) for each in raw]  # the first is the next to be taken
    working = [(began, job) for queue, began, job in workers.working if queue == name]
    missing, known = dict(_UNTOLD), workers.unread is None
    for column in ("oldest_in_flight_age_seconds", "oldest_first_attempt_age_seconds"):
        missing.pop(column)
    times = [*(_since(job) for job in jobs[:1]), *([None] if length and not jobs else [])]
    oldest = _oldest(now, [*times, *(_since(job) for _, job in working)])
    first = _oldest(now, times)
    if oldest is None:
        missing["oldest_age_seconds"] = why or _NO_TIME
    if first is None:
        missing["oldest_first_attempt_age_seconds"] = why or _NO_TIME
    began = _oldest(now, [since for since, _ in working]) if known else None
    if began is None:
        missing["oldest_in_flight_age_seconds"] = workers.unread or "the worker does not tell since when"
    if not known:
        missing |= dict.fromkeys(("in_flight", "consumers"), workers.unread or "")
    tenants = None
    if settings.tenant and (len(jobs) < length or not known):
        missing["tenants"] = workers.unread or f"of {length} jobs that wait {len(jobs)} were looked into"
    elif settings.tenant:
        shares = Shares(settings.tenant)
        for job in jobs:
            shares.add(Message(queue=name, document=job), "depth", _since(job))
        for _, job in working:
            shares.add(Message(queue=name, document=job), "in_flight", _since(job))
        tenants = shares.told(now)
    return [
        Sample(
            name,
            now,
            depth=length,
            in_flight=len(working) if known else None,
            consumers=sum(bool({name, "*"} & queues) for queues in workers.queues) if known else None,
            oldest_age_seconds=oldest,
            oldest_first_attempt_age_seconds=first,
            oldest_in_flight_age_seconds=began,
            queue_type="list",
            tenants=tenants,
            unavailable=missing,
        )
    ]


def _oldest(now: int, times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    return age(now, min(known)) if known else 0.0


def read_failed(key: str, names: Sequence[str], now: int) -> Reading:
    """The list of failures, the oldest first: {"failed_at", "queue", …}, written in the worker's own zone."""
    length, usage = yield [("LLEN", key), ("MEMORY", "USAGE", key)]
    checked([length])
    first: list[Any] = []
    if length and too_large(usage, length, 1) is None:
        (raw,) = checked((yield [("LRANGE", key, 0, 0)]))
        first = [_job(each) for each in raw]
    missing = _UNTOLD | {"state": "nothing is taken from it", "delayed": "a list of failures has none"}
    since = unix_microseconds(first[0].get("failed_at")) if first and isinstance(first[0], dict) else None
    oldest = age(now, since) if since is not None else None if length else 0.0
    if oldest is None:
        missing["oldest_age_seconds"] = "the first failure does not tell when, in a way that names its zone"
    return [
        Sample(
            "resque.failed",
            now,
            depth=length,
            in_flight=0,
            consumers=0,
            oldest_age_seconds=oldest,
            dead_letter_for=",".join(names[:20]),
            queue_type="list",
            unavailable=missing,
        )
    ]
