"""Sidekiq: a list of JSON jobs for each queue, and three sorted sets that all queues share: schedule, retry, dead.

A job is pushed on the left and taken from the right, which takes it out of Redis: what is at work is known from what
each process reports every 5 s (6) or 10 s (7, 8), in ``PID:workers`` (6) or ``PID:work`` (7, 8). ``enqueued_at`` is in
seconds up to Sidekiq 7, in whole milliseconds since 8, and is stamped anew whenever a job enters a list, retries too.
What is due in ``schedule`` and ``retry`` waits until a process moves it to its queue's list.

Where the sets hold more than is looked into, nobody can tell whose their jobs are: then they are rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from brokers.redis.resp import Answer, Command, Refusal, checked
from brokers.tenants import Message
from collectors.redis.layouts.base import UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.layouts.bounded import MOST_BYTES, too_large
from collectors.redis.layouts.sidekiq_jobs import Held, Job, Shared, job, process, take_scored, take_work
from collectors.redis.scan import Search
from collectors.redis.settings import SidekiqLayout
from collectors.samples import Sample, status_of
from collectors.tenants import Shares

#: Of the newest dead jobs, those whose queues are looked at.
_DEAD_LOOKED_INTO = 20
_UNTOLD = UNTOLD_ANYWHERE | {
    "published_total": "Sidekiq does not count what is pushed",
    "delivered_total": "Sidekiq counts what was processed in all queues together",
    "acked_total": "Sidekiq counts what was processed in all queues together",
    "redelivered_total": "Sidekiq does not count retries by queue",
    "visibility_timeout_seconds": "Sidekiq has none: what a process holds is lost with it",
    "lost_total": "a process that dies takes its jobs with it, uncounted; Pro's super_fetch has them in private lists, "
    "which are not read",
}
_NO_TIME = "the next job does not tell when it was enqueued"
_TOGETHER = "the set holds jobs of all queues"


class Sidekiq:
    """The listed queues, or those that Sidekiq has registered."""

    def __init__(self, settings: SidekiqLayout) -> None:
        self._settings = settings
        self._prefix = f"{settings.namespace}:" if settings.namespace else ""
        self._names = list(settings.queues)
        self._shared = Shared()
        self._dead: tuple[str, ...] | None = None  # whose jobs died of late; None where there is no such set

    def search(self) -> Search | None:
        """Nothing: Sidekiq keeps sets of its queues and processes."""
        return None

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """Nothing was searched for."""

    def prepare(self, now: int) -> Preparing:
        """The queues, the processes and what they do, and the sorted sets."""
        key, most, shared = self._key, 10 * self._settings.read_at_most, Shared()
        names, processes, paused, *sets = yield [
            ("SMEMBERS", key("queues")),
            ("SMEMBERS", key("processes")),
            ("SMEMBERS", key("paused")),
            *(command for name in ("schedule", "retry") for command in _sizes(key(name))),
        ]
        if not self._settings.queues and not (isinstance(names, Refusal) and self._names):
            (names,) = checked([names])
            self._names = sorted(map(text, names))
        shared.paused = frozenset() if isinstance(paused, Refusal) else frozenset(map(text, paused))
        if isinstance(processes, Refusal):
            shared.unread_processes = shared.unread_work = str(processes)
        elif len(processes) > most:
            shared.unread_processes = shared.unread_work = f"{len(processes)} processes: too many to look at each"
        elif processes:
            yield from self._read_processes(shared, list(processes), now)
        for name, (held, usage) in zip(("schedule", "retry"), (sets[:2], sets[2:]), strict=True):
            yield from self._read_set(shared, name, held, usage, now)
        self._shared = shared

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _read_processes(self, shared: Shared, identities: list[bytes], now: int) -> Preparing:
        prefix, commands = self._prefix.encode(), list[Command]()
        for identity in identities:
            hash_ = prefix + identity
            commands.append(("HMGET", hash_, "info", "concurrency", "quiet", "beat"))
            commands += [("MEMORY", "USAGE", hash_ + b":work"), ("MEMORY", "USAGE", hash_ + b":workers")]
        answers = yield commands
        keys, most = list[bytes](), 0
        for number, identity in enumerate(identities):
            told, *usages = answers[3 * number : 3 * number + 3]
            one = process(told, now)
            if one is None:
                if isinstance(told, Refusal):
                    shared.unread_processes = shared.unread_work = str(told)
                continue
            shared.processes.append(one)
            for name, usage in zip((b":work", b":workers"), usages, strict=True):
                if usage is not None:
                    keys.append(prefix + identity + name)
                    most += usage if isinstance(usage, int) else 0
        if most > MOST_BYTES:
            shared.unread_work = f"what processes work on takes about {most >> 20} MiB: too much to look into"
        elif keys:
            for entries in (yield [("HVALS", working) for working in keys]):
                if isinstance(entries, Refusal):
                    shared.unread_work = str(entries)
                    continue
                for entry in entries:
                    take_work(shared, entry)

    def _read_set(self, shared: Shared, name: str, held: Answer, usage: Answer, now: int) -> Preparing:
        """Each job of ``schedule`` or ``retry``, at its queue; why not, where that cannot be told."""
        most = 10 * self._settings.read_at_most
        if isinstance(held, Refusal):
            shared.unread_sets[name] = str(held)
            return
        why = f"{_TOGETHER}, {held} of them: too many to look into each" if held > most else None
        why = why or too_large(usage, held, most)
        if why is None and held:
            (members,) = yield [("ZRANGE", self._key(name), 0, -1, "WITHSCORES")]
            if isinstance(members, Refusal):
                why = str(members)
            else:
                why = take_scored(shared, name, members, now)
        if why is not None:
            shared.unread_sets[name] = f"{self._key(name)!r}: {why}"

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue; the sets that cannot be told by queue; the dead."""
        shared, key = self._shared, self._key
        found: list[tuple[str, Read]] = [
            (name, partial(read, name, key(f"queue:{name}"), self._settings, shared)) for name in self._names
        ]
        if self._names or shared.processes:
            found += [
                (f"sidekiq.{name}", partial(read_together, name, key(name), shared)) for name in shared.unread_sets
            ]
            found.append(("sidekiq.dead", partial(read_dead, key("dead"), tuple(self._names))))
        return found


def _sizes(key: str) -> list[Command]:
    return [("ZCARD", key), ("MEMORY", "USAGE", key)]


def read(name: str, key: str, settings: SidekiqLayout, shared: Shared, now: int) -> Reading:
    """One queue: its list, what is at work, and what the shared sets hold of it."""
    window = settings.read_at_most if settings.tenant else 1
    length, usage = yield [("LLEN", key), ("MEMORY", "USAGE", key)]
    checked([length])
    jobs, why = [], too_large(usage, length, window)
    if length and why is None:
        (raw,) = checked((yield [("LRANGE", key, -window, -1)]))
        jobs = [job(each) for each in raw]  # the last is the next to be taken
    held, missing = shared.held.get(name) or Held(), dict(_UNTOLD)
    in_flight = len(held.working) if shared.unread_work is None else None
    delayed = len(held.scheduled) + len(held.retrying) if not shared.unread_sets else None
    repeated = sum(1 for _, _, again in held.due if again)
    retrying = len(held.retrying) + repeated if "retry" not in shared.unread_sets else None
    if in_flight is None:
        missing |= dict.fromkeys(("in_flight", "oldest_in_flight_age_seconds"), shared.unread_work or "")
    else:
        del missing["oldest_in_flight_age_seconds"]
    for column in ("delayed", "retrying"):
        missing.pop(column, None)
    together = "; ".join(shared.unread_sets.values())
    if delayed is None:
        missing["delayed"] = together
    if retrying is None:
        missing["retrying"] = shared.unread_sets["retry"]
    sample = Sample(
        name,
        now,
        depth=length + len(held.due),
        in_flight=in_flight,
        delayed=delayed,
        retrying=retrying,
        oldest_in_flight_age_seconds=_oldest(now, [began for _, began in held.working])
        if in_flight is not None
        else None,
        queue_type="list",
        **_ages(now, length, jobs, held, why, missing),
        **_attached(name, shared, now, missing),
        **_shares(name, settings, shared, length, jobs, held, now, missing),
        unavailable=missing,
    )
    if sample.in_flight is not None and held.working and sample.oldest_in_flight_age_seconds is None:
        missing["oldest_in_flight_age_seconds"] = "the processes do not tell since when"
    return [sample]


def _oldest(now: int, times: Iterable[float | None]) -> float | None:
    """The age of the earliest; 0 of none at all, None where there are some and none of them is known."""
    all_of_them = list(times)
    known = [time for time in all_of_them if time is not None]
    if known:
        return age(now, min(known))
    return None if all_of_them else 0.0


def _ages(
    now: int, length: int, jobs: Sequence[Job], held: Held, why: str | None, missing: dict[str, str]
) -> dict[str, Any]:
    """Ages of the queue as a whole and of first attempts; ``jobs`` are the end of its list, the next one last."""
    head = jobs[-1:]
    unread: list[float | None] = [None] if length and not head else []
    waiting = [*(one.since for one in head), *unread, *(due for _, due, _ in held.due)]
    oldest = _oldest(now, [*waiting, *(one.since for one, _ in held.working)])
    if length and (not head or head[0].since is None):
        oldest = None
    if oldest is None:
        missing["oldest_age_seconds"] = why or _NO_TIME
    missing.pop("oldest_first_attempt_age_seconds", None)
    first = [one.since for one in reversed(jobs) if not one.retried][:1]
    scheduled = [due for _, due, again in held.due if not again]
    never: float | None = None
    if first or len(jobs) == length:
        never = _oldest(now, [*first, *scheduled])
    if never is None:
        missing["oldest_first_attempt_age_seconds"] = why or (
            _NO_TIME if first else "the next job is a retry, and those behind it are not looked into"
        )
    return {"oldest_age_seconds": oldest, "oldest_first_attempt_age_seconds": never}


def _attached(name: str, shared: Shared, now: int, missing: dict[str, str]) -> dict[str, Any]:
    """Who works on the queue: processes that are not quiet, and their threads."""
    for column in ("consumers", "in_flight_limit", "state"):
        missing.pop(column, None)
    if shared.unread_processes is not None:
        missing |= dict.fromkeys(("consumers", "in_flight_limit", "state"), shared.unread_processes)
        return {"staleness_seconds": 0.0}
    mine = [process for process in shared.processes if name in process.queues]
    active = [process for process in mine if not process.quiet]
    threads = [process.concurrency for process in active]
    limit = None if None in threads else sum(filter(None, threads))
    if limit is None:
        missing["in_flight_limit"] = "a process does not tell its concurrency"
    state = "paused" if name in shared.paused else "running" if active else "quiet" if mine else "no process"
    stale = max((age(now, process.beat) for process in mine), default=0.0)
    told = {"state": state, "status": status_of(state, missing)}
    return {"consumers": len(active), "in_flight_limit": limit, "staleness_seconds": stale, **told}


def _shares(
    name: str,
    settings: SidekiqLayout,
    shared: Shared,
    length: int,
    jobs: Sequence[Job],
    held: Held,
    now: int,
    missing: dict[str, str],
) -> dict[str, Any]:
    """The queue's tenants, where every job of it was looked into."""
    if not settings.tenant:
        return {}
    together = "; ".join(shared.unread_sets.values())
    why = shared.unread_work or together
    if len(jobs) < length:
        why = f"of {length} jobs that wait {len(jobs)} were looked into"
    if why:
        missing["tenants"] = why
        return {}
    shares = Shares(settings.tenant)

    def message(one: Job) -> Message:
        return Message(queue=name, document=one.document)

    for one in jobs:
        shares.add(message(one), "depth", one.since)
    for one, due, _ in held.due:
        shares.add(message(one), "depth", due)
    for one, _ in held.working:
        shares.add(message(one), "in_flight", one.since)
    for one in (*held.scheduled, *held.retrying):
        shares.add(message(one), "delayed")
    return {"tenants": shares.told(now)}


def read_together(name: str, key: str, shared: Shared, now: int) -> Reading:
    """``schedule`` or ``retry`` as a row of its own: jobs of all queues, by when they are due (seconds)."""
    seconds = now / 1e6
    total, due, usage = checked((yield [("ZCARD", key), ("ZCOUNT", key, "-inf", f"{seconds:.6f}"), *_sizes(key)[1:]]))
    missing = dict(_UNTOLD)
    oldest: float | None = 0.0
    if due and too_large(usage, total, 1) is None:
        (first,) = checked((yield [("ZRANGE", key, 0, 0, "WITHSCORES")]))
        oldest = age(now, float(first[1]) * 1e6) if first else 0.0
    elif due:
        oldest, missing["oldest_age_seconds"] = None, "the first job is too large to be read"
    retrying = None
    if name == "retry":
        retrying = total
        missing.pop("retrying", None)
    missing |= {"state": shared.unread_sets[name], "in_flight_limit": "its jobs go to their queues"}
    return [
        Sample(
            f"sidekiq.{name}",
            now,
            depth=due,
            in_flight=0,
            delayed=total - due,
            retrying=retrying,
            oldest_age_seconds=oldest,
            queue_type="sorted set",
            **_pollers(shared, missing),
            unavailable=missing,
        )
    ]


def _pollers(shared: Shared, missing: dict[str, str]) -> dict[str, Any]:
    """Who moves jobs of the shared sets to their queues: every process that is not quiet."""
    if shared.unread_processes is not None:
        missing["consumers"] = shared.unread_processes
        return {}
    return {"consumers": sum(not process.quiet for process in shared.processes)}


def read_dead(key: str, names: Sequence[str], now: int) -> Reading:
    """The dead set, scored by when each job died: dead letters of the queues whose jobs are the newest there."""
    total, usage = yield _sizes(key)
    checked([total])
    missing, served, oldest = dict(_UNTOLD), dict[str, None](), 0.0 if not total else None
    if total and too_large(usage, total, 1 + _DEAD_LOOKED_INTO) is None:
        first, newest = checked((yield [("ZRANGE", key, 0, 0, "WITHSCORES"), ("ZRANGE", key, -_DEAD_LOOKED_INTO, -1)]))
        oldest = age(now, float(first[1]) * 1e6) if first else 0.0
        served = dict.fromkeys(filter(None, (job(raw).queue for raw in newest)))
    if oldest is None:
        missing["oldest_age_seconds"] = "the dead jobs are too large to be read"
    missing |= dict.fromkeys(("state", "in_flight_limit"), "nothing is taken from it")
    return [
        Sample(
            "sidekiq.dead",
            now,
            depth=total,
            in_flight=0,
            delayed=0,
            consumers=0,
            oldest_age_seconds=oldest,
            dead_letter_for=",".join(_few(sorted(served or names))) or "sidekiq",
            queue_type="sorted set",
            unavailable=missing,
        )
    ]


def _few(names: Sequence[str]) -> Iterator[str]:
    yield from names[:_DEAD_LOOKED_INTO]
