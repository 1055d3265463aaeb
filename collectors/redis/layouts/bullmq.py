"""BullMQ: lists and sorted sets of job ids under ``PREFIX:QUEUE:…``, a hash for each job.

A job waits in ``wait`` (taken from the right) or, with a priority, in ``prioritized``; ``active`` holds what workers
work on, each under a lock that they renew. ``delayed`` is scored by when a job is due, in milliseconds × 4096: retries
that back off stand there, too. A flow's parent is in ``waiting-children`` until its children are done. Failed jobs
are reported as ``QUEUE.failed``. The key names and scores are those of BullMQ's Lua scripts, versions 4 to 6.

Where a queue holds no more jobs than may be looked into, all of them are, and attempts and tenants are known; else its
ends are: the oldest of a list is at one of them, the oldest of the prioritized the first of some priority.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial

from brokers.redis.resp import Answer, Command, Refusal, checked
from brokers.tenants import needs
from collectors.redis.layouts.base import Preparing, Read, Reading, text
from collectors.redis.layouts.bounded import MOST_EACH, Budget
from collectors.redis.layouts.bullmq_jobs import Found, job_of, sample_of
from collectors.redis.scan import Search
from collectors.redis.settings import BullmqLayout

_META = b":meta"
#: One priority's share of the scores in ``prioritized``; the rest counts the jobs of it.
_PRIORITY = 1 << 32
#: Distinct priorities of one queue whose first jobs are read.
_MOST_PRIORITIES = 16
#: Clients of the server that are listed to count workers.
_MOST_CLIENTS = 5_000
_FIELDS = ("timestamp", "processedOn", "opts", "ats", "atm", "stc")


#: Part of a key → the key.
Key = Callable[[str], bytes]


@dataclass(slots=True)
class Cycle:
    """What all queues of one cycle share: how much may be looked into, and who is connected."""

    budget: Budget
    workers: dict[str, int] = field(default_factory=dict)  # PREFIX:QUEUE → connections of workers
    unread_workers: str | None = None


class Bullmq:
    """The listed queues, or those whose ``meta`` hash is found."""

    def __init__(self, settings: BullmqLayout) -> None:
        self._settings = settings
        prefix = settings.prefix.encode()
        self._bases = [prefix + b":" + name.encode() for name in settings.queues]
        self._cycle = Cycle(Budget(settings.jobs_per_cycle))

    def search(self) -> Search | None:
        """Each queue's settings."""
        if self._settings.queues:
            return None
        literal = "".join(f"\\{letter}" if letter in "*?[]\\^" else letter for letter in self._settings.prefix)
        return Search(f"{literal}:*:meta", "hash")

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """One hash a queue."""
        if not self._settings.queues:
            self._bases = sorted(key.removesuffix(_META) for key in keys)

    def prepare(self, now: int) -> Preparing:
        """The clients of the server: each worker's connection has its queue's name."""
        self._cycle = cycle = Cycle(Budget(self._settings.jobs_per_cycle))
        if not self._bases:
            return
        server, clients = yield [("INFO", "server"), ("INFO", "clients")]
        cycle.unread_workers = _too_many(server, clients)
        if cycle.unread_workers is None:
            (listed,) = yield [("CLIENT", "LIST", "TYPE", "normal")]
            if isinstance(listed, Refusal):
                cycle.unread_workers = str(listed)
            else:
                cycle.workers = _workers(listed)

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue, with its failed jobs."""
        begin = len(self._settings.prefix.encode()) + 1
        return [
            (text(base[begin:]), partial(read, text(base[begin:]), base, self._settings, self._cycle))
            for base in self._bases
        ]


def _too_many(server: Answer, clients: Answer) -> str | None:
    """Why the clients are not listed."""
    for answer in (server, clients):
        if isinstance(answer, Refusal):
            return str(answer)
    if b"redis_mode:cluster" in server:
        return "each node of a cluster knows its own clients alone"
    connected = next((line for line in clients.splitlines() if line.startswith(b"connected_clients:")), b":0")
    number = int(connected.partition(b":")[2])
    return f"the server has {number} clients: too many to list" if number > _MOST_CLIENTS else None


def _workers(listed: bytes) -> dict[str, int]:
    """PREFIX:QUEUE → workers: their connections are named PREFIX:base64(QUEUE), perhaps with :w:NAME behind it."""
    found: dict[str, int] = {}
    for line in listed.splitlines():
        begin = line.find(b" name=")
        name = line[begin + 6 :].split(b" ", 1)[0] if begin >= 0 else b""
        plain, _, _ = name.partition(b":w:")
        prefix, _, encoded = plain.rpartition(b":")
        if not prefix or not encoded:
            continue
        try:
            queue = f"{text(prefix)}:{base64.b64decode(encoded, validate=True).decode()}"
        except ValueError:
            continue
        found[queue] = found.get(queue, 0) + 1
    return found


def read(name: str, base: bytes, settings: BullmqLayout, cycle: Cycle, now: int) -> Reading:
    """One queue, and its failed jobs."""

    def key(part: str) -> bytes:
        return base + b":" + part.encode()

    wait, paused, prioritized, active, delayed, parents, failed, groups, meta, ever, completed = checked(
        (
            yield [
                ("LLEN", key("wait")),
                ("LLEN", key("paused")),
                ("ZCARD", key("prioritized")),
                ("LLEN", key("active")),
                ("ZCARD", key("delayed")),
                ("ZCARD", key("waiting-children")),
                ("ZCARD", key("failed")),
                ("ZCARD", key("groups")),
                ("HMGET", key("meta"), "paused", "concurrency", "version", "opts.maxLenEvents"),
                ("GET", key("id")),
                ("HGET", key("metrics:completed"), "count"),
            ]
        )
    )
    there = (wait, paused, prioritized, active, delayed, parents, failed, groups, ever)
    if not settings.queues and not any(meta) and not any(there):
        return []  # its hash was found, and is gone by now
    found = Found(name, delayed=delayed, parents=parents, failed=failed, active=active, published=ever, acked=completed)
    found.paused, found.concurrency = meta[0] is not None, meta[1]
    if groups:
        yield from _read_groups(found, key("groups"), groups, settings)
    found.waiting = wait + paused + prioritized + (found.grouped or 0)
    total = found.waiting + delayed + active
    found.whole = not groups and total <= settings.read_at_most and cycle.budget.take(total)
    ids = yield from _ids(found, key, (wait, paused, prioritized, active), settings, now)
    yield from _jobs(found, base, ids, settings)
    return sample_of(found, text(base), cycle, now)


def _read_groups(found: Found, key: bytes, groups: int, settings: BullmqLayout) -> Preparing:
    """Pro's groups: a list of jobs for each id in the sorted set ``groups``."""
    if groups > settings.read_at_most:
        found.unread_groups = f"{groups} groups: too many to count each"
        return
    (members,) = checked((yield [("ZRANGE", key, 0, -1)]))
    lengths = checked((yield [("LLEN", key + b":" + member) for member in members])) if members else []
    found.grouped = sum(lengths)


def _ids(
    found: Found, key: Key, sizes: tuple[int, ...], settings: BullmqLayout, now: int
) -> Generator[list[Command], list[Answer], list[tuple[bytes, str]]]:
    """(id, where it stands) of the jobs that are looked into."""
    wait, paused, prioritized, active = sizes
    due = (now // 1000) * 4096 + 4095
    ends = [(0, -1)] if found.whole else [(0, 0), (-1, -1)]
    commands: list[Command] = [("LRANGE", key("active"), -settings.read_at_most, -1)]
    commands.append(("ZRANGE", key("failed"), 0, 0, "WITHSCORES"))
    commands.append(("ZCOUNT", key("delayed"), "-inf", due))
    if found.whole:
        commands.append(("ZRANGE", key("delayed"), 0, -1, "WITHSCORES"))
    else:
        commands.append(("ZRANGE", key("delayed"), 0, 0, "WITHSCORES"))
    lists = [name for name, length in (("wait", wait), ("paused", paused)) if length]
    commands += [("LRANGE", key(name), *end) for name in lists for end in ends]
    if found.whole and prioritized:
        commands.append(("ZRANGE", key("prioritized"), 0, -1))
    at_work, first_failed, found.due, scored, *waiting = checked((yield commands))
    if first_failed:
        found.failed_since = float(first_failed[1]) * 1e3
    ids = [(one, "active") for one in at_work]
    found.held_back = active - len(at_work)
    for one, score in zip(scored[::2], scored[1::2], strict=True):
        at = float(score) // 4096 * 1e3
        if float(score) <= due:
            found.due_times.append(at)
            ids.append((one, "due"))
        elif found.whole:
            ids.append((one, "delayed"))
    markers = {one for some in waiting for one in some if one.startswith(b"0:")}  # of version 4: no jobs
    found.waiting -= len(markers)
    ids += [(one, "waiting") for one in dict.fromkeys(one for some in waiting for one in some) if one not in markers]
    if prioritized and not found.whole:
        ids += [(one, "waiting") for one in (yield from _first_of_each_priority(found, key("prioritized")))]
    return ids


def _first_of_each_priority(found: Found, key: bytes) -> Generator[list[Command], list[Answer], list[bytes]]:
    firsts: list[bytes] = []
    least: int | str = "-inf"
    for _ in range(_MOST_PRIORITIES):
        (told,) = checked((yield [("ZRANGEBYSCORE", key, least, "+inf", "WITHSCORES", "LIMIT", 0, 1)]))
        if not told:
            return firsts
        firsts.append(told[0])
        least = (int(float(told[1])) // _PRIORITY + 1) * _PRIORITY
    found.unsure = f"more than {_MOST_PRIORITIES} priorities wait, and the first of each is not looked into"
    return firsts


def _jobs(found: Found, base: bytes, ids: list[tuple[bytes, str]], settings: BullmqLayout) -> Preparing:
    """The hashes of ``ids``; whether each that is active is locked; with a rule that needs it, each one's data."""
    if not ids:
        return
    hashes = [base + b":" + one for one, _ in ids]
    locked = [one + b":lock" for one, (_, place) in zip(hashes, ids, strict=True) if place == "active"]
    wants = needs(settings.tenant, "json") and found.whole
    answers = yield [
        *(("HMGET", one, *_FIELDS) for one in hashes),
        *(("EXISTS", one) for one in locked),
        *(("HSTRLEN", one, "data") for one in hashes if wants),
    ]
    checked(answers)
    found.unlocked = sum(not held for held in answers[len(ids) : len(ids) + len(locked)])
    data: dict[bytes, bytes | None] = {}
    if wants:
        sizes = answers[len(ids) + len(locked) :]
        small = [one for one, size in zip(hashes, sizes, strict=True) if 0 < size <= MOST_EACH]
        data = dict(zip(small, checked((yield [("HGET", one, "data") for one in small])), strict=True)) if small else {}
    for (one, place), key, told in zip(ids, hashes, answers, strict=False):
        found.jobs.append(job_of(text(one), place, told, data.get(key)))
    if settings.tenant and found.whole:
        found.rules = settings.tenant
    elif settings.tenant:
        found.untold_tenants = f"{found.waiting + found.delayed + found.active} jobs: more than are looked into"
