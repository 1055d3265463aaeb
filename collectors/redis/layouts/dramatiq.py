"""Dramatiq on Redis: a list of message ids for each queue, its messages in a hash beside it; ``.DQ`` and ``.XQ``.

A worker pops ids from the left of ``NAMESPACE:QUEUE`` into a set ``__acks__.WORKER.QUEUE``; the message stays in
``QUEUE.msgs`` until it is acknowledged. Delayed messages, retries that back off among them, stand in ``QUEUE.DQ`` and
are held by workers until their ETA. ``QUEUE.XQ`` has dead letters by when they died. Key names are those of Dramatiq's
dispatch.lua. Redis is told of no queue: one is known from the first message that is seen, for ``forget_after``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from brokers.redis.resp import Answer, Command, Refusal, checked
from brokers.tenants import Message
from brokers.texts import loads
from collectors.redis.layouts.base import UNREADABLE, UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.layouts.bounded import too_large
from collectors.redis.scan import Search
from collectors.redis.settings import DramatiqLayout
from collectors.samples import Sample
from collectors.tenants import Shares

#: Milliseconds without a sign of life after which Dramatiq takes a worker for dead.
_DEAD_AFTER = 60_000
#: Workers whose unacknowledged messages are looked at.
_MOST_WORKERS = 100
_UNTOLD = UNTOLD_ANYWHERE | {
    "consumers": "producers give the same signs of life as workers",
    "published_total": "Dramatiq does not count in Redis",
    "delivered_total": "Dramatiq does not count in Redis",
    "acked_total": "Dramatiq does not count in Redis",
    "redelivered_total": "Dramatiq does not count in Redis",
    "oldest_in_flight_age_seconds": "Dramatiq does not note when a worker took a message",
}
_NO_TIME = "a message that may be the oldest does not tell when it was sent: Dramatiq's JSON alone is read"


@dataclass(frozen=True, slots=True)
class Told:
    """What one message says; ``since`` is when it was due first, in microseconds since 1970."""

    since: float | None
    retried: bool
    document: Any = None


@dataclass(slots=True)
class Beats:
    """Whoever gave a sign of life: identity → milliseconds since 1970."""

    workers: dict[bytes, float] = field(default_factory=dict)
    unread: str | None = None


class Dramatiq:
    """The listed queues, or those of which a message was seen."""

    def __init__(self, settings: DramatiqLayout) -> None:
        self._settings = settings
        self._prefix = settings.namespace.encode() + b":"
        self._seen: dict[bytes, int] = dict.fromkeys((name.encode() for name in settings.queues), 0)
        self._beats = Beats()

    def search(self) -> Search | None:
        """The hashes of messages."""
        return None if self._settings.queues else Search(f"{self._settings.namespace}:*.msgs", "hash")

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """A queue has up to three hashes."""
        if self._settings.queues:
            return
        for key in keys:
            name = key.removeprefix(self._prefix).removesuffix(b".msgs")
            self._seen[name.removesuffix(b".DQ").removesuffix(b".XQ")] = now
        forget = now - self._settings.forget_after * 1e6
        self._seen = {name: seen for name, seen in self._seen.items() if seen >= forget}

    def prepare(self, now: int) -> Preparing:
        """Who gave signs of life."""
        self._beats = beats = Beats()
        if not self._seen:
            return
        key = self._prefix + b"__heartbeats__"
        (number,) = yield [("ZCARD", key)]
        if isinstance(number, Refusal):
            beats.unread = str(number)
        elif number > _MOST_WORKERS:
            beats.unread = f"{number} workers and producers: too many to look at each"
        elif number:
            (told,) = yield [("ZRANGE", key, 0, -1, "WITHSCORES")]
            if isinstance(told, Refusal):
                beats.unread = str(told)
            else:
                beats.workers = {who: float(at) for who, at in zip(told[::2], told[1::2], strict=True)}

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue, with its dead letters."""
        return [
            (text(name), partial(read, text(name), self._prefix, name, self._settings, self._beats))
            for name in sorted(self._seen)
        ]


def told_by(raw: bytes | None) -> Told:
    """A message as Dramatiq's JSON encoder writes it: times in milliseconds; another encoder's tells nothing."""
    try:
        message = loads(raw) if raw else None
        options = message["options"] if isinstance(message, dict) else {}
        times = [_millis(message.get("message_timestamp")), _millis(options.get("eta"))] if message else []
        known = [time for time in times if time is not None]
        return Told(max(known) if known else None, bool(options.get("retries")), message)
    except UNREADABLE:
        return Told(None, False)


def _millis(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value * 1e3 if number and 0 < value < 1e14 else None


def read(name: str, prefix: bytes, raw: bytes, settings: DramatiqLayout, beats: Beats, now: int) -> Reading:
    """One queue with its delayed messages, and its dead letters."""
    key, most = prefix + raw, settings.read_at_most
    waiting, kept, usage, delayed, later_usage, dead, first_dead = checked_but_sizes(
        (
            yield [
                ("LLEN", key),
                ("HLEN", key + b".msgs"),
                ("MEMORY", "USAGE", key + b".msgs"),
                ("HLEN", key + b".DQ.msgs"),
                ("MEMORY", "USAGE", key + b".DQ.msgs"),
                ("ZCARD", key + b".XQ"),
                ("ZRANGE", key + b".XQ", 0, 0, "WITHSCORES"),
            ]
        )
    )
    missing = dict(_UNTOLD)
    for column in ("state", "retrying", "oldest_first_attempt_age_seconds"):
        missing.pop(column, None)
    taken, stale = yield from _unacknowledged(raw, prefix, beats, now)
    ends = [(0, -1)] if waiting <= most else [(0, 0), (-1, -1)]
    whole, large = waiting <= most, too_large(usage, kept, 2 + len(taken))
    ids = [each for some in checked((yield [("LRANGE", key, *end) for end in ends])) for each in some]
    messages, held = list[Told](), list[Told]()
    if large is None and (ids or taken):
        (bodies,) = checked((yield [("HMGET", key + b".msgs", *ids, *taken)]))
        messages = [told_by(body) for body in bodies[: len(ids)]]
        held = [told_by(body) for body in bodies[len(ids) :]]
    later, later_why = yield from _delayed(key + b".DQ.msgs", delayed, later_usage, 10 * most)
    due = [one for one in later if one.since is not None and one.since <= now]
    sample = Sample(
        name,
        now,
        depth=waiting + len(due),
        in_flight=len(taken) if beats.unread is None else max(0, kept - waiting),
        delayed=delayed - len(due) if later_why is None else None,
        retrying=sum(one.retried for one in (*messages, *later)) if whole and not large and not later_why else None,
        state="stalled" if stale else "running",
        queue_type="list",
        **_ages(now, messages, held, due, large or (beats.unread if kept > waiting else None), whole, missing),
        tenants=_shares(name, settings, messages, held, due, later, large or later_why, whole, now, missing),
        unavailable=missing,
    )
    if later_why is not None:
        missing["delayed"] = later_why
    if sample.retrying is None:
        missing["retrying"] = large or later_why or f"{waiting} messages wait: not each is looked into"
    return [sample, _dead(name, now, dead, first_dead)]


def checked_but_sizes(answers: Sequence[Answer]) -> Sequence[Answer]:
    """``answers``; a refusal is raised, unless it is of MEMORY USAGE, without which sizes are not looked at."""
    checked([answer for place, answer in enumerate(answers) if place not in (2, 4)])
    return answers


def _unacknowledged(
    name: bytes, prefix: bytes, beats: Beats, now: int
) -> Generator[list[Command], list[Answer], tuple[list[bytes], bool]]:
    """Ids that workers hold, and whether one of these workers is dead."""
    if not beats.workers:
        return [], False
    sets = checked((yield [("SMEMBERS", prefix + b"__acks__." + who + b"." + name) for who in beats.workers]))
    dead = [bool(ids) and now / 1e3 - at > _DEAD_AFTER for ids, at in zip(sets, beats.workers.values(), strict=True)]
    return [one for ids in sets for one in ids], any(dead)


def _delayed(
    key: bytes, number: int, usage: Answer, most: int
) -> Generator[list[Command], list[Answer], tuple[list[Told], str | None]]:
    """The delayed messages, or why they are not looked into."""
    if number > most:
        return [], f"{number} messages are delayed: not each is looked into for its ETA"
    if (why := too_large(usage, number, most)) is not None or not number:
        return [], why
    (bodies,) = checked((yield [("HVALS", key)]))
    return [told_by(body) for body in bodies], None


def _ages(
    now: int,
    messages: Sequence[Told],
    held: Sequence[Told],
    due: Sequence[Told],
    why: str | None,
    whole: bool,
    missing: dict[str, str],
) -> dict[str, Any]:
    """Of the oldest; ``messages`` are all that wait, or the first and the last: what is requeued comes last."""
    oldest = _oldest(now, [*messages, *held, *due]) if why is None else None
    if oldest is None:
        missing["oldest_age_seconds"] = why or _NO_TIME
    never = [one for one in (*messages, *due) if not one.retried]
    first = _oldest(now, never) if why is None and (whole or never) else None
    if first is None:
        missing["oldest_first_attempt_age_seconds"] = why or (
            _NO_TIME if never else "the messages looked into are retries"
        )
    return {"oldest_age_seconds": oldest, "oldest_first_attempt_age_seconds": first}


def _oldest(now: int, messages: Sequence[Told]) -> float | None:
    known = [one.since for one in messages if one.since is not None]
    if len(known) < len(messages):
        return None
    return age(now, min(known)) if known else 0.0


def _shares(
    name: str,
    settings: DramatiqLayout,
    messages: Sequence[Told],
    held: Sequence[Told],
    due: Sequence[Told],
    later: Sequence[Told],
    why: str | None,
    whole: bool,
    now: int,
    missing: dict[str, str],
) -> Any:
    if settings.tenant and (why or not whole):
        missing["tenants"] = why or "more messages wait than are looked into"
        return None
    shares = Shares(settings.tenant)
    for one in (*messages, *due):
        shares.add(Message(queue=name, document=one.document), "depth", one.since)
    for one in held:
        shares.add(Message(queue=name, document=one.document), "in_flight", one.since)
    for one in later:
        if one not in due:
            shares.add(Message(queue=name, document=one.document), "delayed")
    return shares.told(now)


def _dead(name: str, now: int, dead: int, first: Sequence[bytes]) -> Sample:
    """The dead letters, scored by when they died, in milliseconds."""
    missing = _UNTOLD | {"state": "nothing is taken from it"}
    del missing["consumers"]
    return Sample(
        f"{name}.XQ",
        now,
        depth=dead,
        in_flight=0,
        delayed=0,
        consumers=0,
        oldest_age_seconds=age(now, float(first[1]) * 1e3) if first else 0.0,
        dead_letter_for=name,
        queue_type="sorted set",
        unavailable=missing,
    )
