"""RQ: a list of job ids for each queue, registries beside it, a hash for each job.

A job is taken from ``rq:queue:<name>`` through its intermediate list and then registered in ``rq:wip:<name>``, once for
each execution. Scheduled jobs, retries after an interval among them, and jobs that wait for others are delayed. The
registry of failed jobs is the queue's dead-letter queue, reported as ``<name>.failed``. ``enqueued_at`` is stamped anew
whenever a job enters the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from brokers.redis.resp import Refusal, checked
from collectors.redis.layouts.base import UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.scan import Search
from collectors.redis.settings import RqLayout
from collectors.samples import Sample
from collectors.timestamps import unix_microseconds

_QUEUE = "rq:queue:"
_UNTOLD = UNTOLD_ANYWHERE | {
    "published_total": "RQ does not count",
    "delivered_total": "RQ does not count",
    "acked_total": "RQ counts by worker, not by queue",
    "redelivered_total": "RQ does not count",
}
_NO_TIME = "no job that waits or is at work tells when it was enqueued"


class Rq:
    """The listed queues, or those that RQ has registered."""

    def __init__(self, settings: RqLayout) -> None:
        self._settings = settings
        self._names = list(settings.queues)

    def search(self) -> Search | None:
        """Nothing: RQ keeps a set of its queues."""
        return None

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """Nothing was searched for."""

    def prepare(self, now: int) -> Preparing:
        """The set of queues; where it cannot be read, those that are known are all the same."""
        if not self._settings.queues:
            (members,) = yield [("SMEMBERS", "rq:queues")]
            if isinstance(members, Refusal) and self._names:
                return
            (members,) = checked([members])
            self._names = sorted(text(member).removeprefix(_QUEUE) for member in members)

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue with its registries."""
        return [(name, partial(read, name, self._settings.read_at_most)) for name in self._names]


def read(name: str, window: int, now: int) -> Reading:
    """One queue, and its dead letters."""
    waiting, scheduled, deferred, failed, executions, workers, heads, at_work, taken, oldest_failed = checked(
        (
            yield [
                ("LLEN", f"{_QUEUE}{name}"),
                ("ZCARD", f"rq:scheduled:{name}"),
                ("ZCARD", f"rq:deferred:{name}"),
                ("ZCARD", f"rq:failed:{name}"),
                ("ZCARD", f"rq:wip:{name}"),
                ("SCARD", f"rq:workers:{name}"),
                ("LINDEX", f"{_QUEUE}{name}", 0),
                ("ZRANGE", f"rq:wip:{name}", 0, window - 1),
                ("LRANGE", f"{_QUEUE}{name}:intermediate", 0, window - 1),
                ("ZRANGE", f"rq:failed:{name}", 0, 0),
            ]
        )
    )
    started = {execution.rpartition(b":")[0] or execution for execution in at_work}  # job:execution, or job of old
    handed = [job for job in taken if job not in started]
    jobs = [*filter(None, [heads]), *started, *handed]
    times = yield [("HGET", b"rq:job:" + job, "enqueued_at") for job in [*jobs, *oldest_failed]]
    checked(times)
    in_flight = executions + len(handed)
    since = [read for answer in times[: len(jobs)] if (read := _moment(answer)) is not None]
    missing = dict(_UNTOLD)
    oldest = age(now, min(since)) if since else None
    if oldest is None and not (waiting or in_flight):
        oldest = 0.0
    elif oldest is None:
        missing["oldest_age_seconds"] = _NO_TIME
    queue = Sample(
        name,
        now,
        depth=waiting,
        in_flight=in_flight,
        delayed=scheduled + deferred,
        consumers=workers,
        oldest_age_seconds=oldest,
        queue_type="list",
        unavailable=missing,
    )
    return [queue, _dead_letters(name, now, failed, times[len(jobs) :])]


def _dead_letters(name: str, now: int, failed: int, times: list[Any]) -> Sample:
    missing = dict(_UNTOLD)
    since = _moment(times[0]) if times else None
    oldest = age(now, since) if since is not None else None
    if oldest is None and failed:
        missing["oldest_age_seconds"] = "the failed job does not tell when it was enqueued"
    return Sample(
        f"{name}.failed",
        now,
        depth=failed,
        in_flight=0,
        delayed=0,
        consumers=0,
        oldest_age_seconds=oldest if failed else 0.0,
        dead_letter_for=name,
        queue_type="sorted set",
        unavailable=missing,
    )


def _moment(answer: bytes | None) -> float | None:
    return unix_microseconds(text(answer)) if answer else None
