"""What our own client sends to ``POST /v1/events``: events, summaries, polls and publishes, judged one by one.

The wire format stands in docs/otlp.md. Whole requests are refused (Malformed) only where nothing can be made of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brokers.texts import loads
from collectors.receive.identity import key_of
from collectors.receive.polls import PollCount
from collectors.receive.publishes import PublishCount, publishes
from collectors.receive.rows import Row
from collectors.receive.summaries import summary
from collectors.receive.values import LATEST_MICROS, Bad, count, happened, text, whole, within
from lake.tables import EVENT_TYPES

VERSION = 1
#: What a request holds, by name.
LISTS = ("events", "summaries", "polls", "publishes")
_TYPES = frozenset(EVENT_TYPES)
_INT32 = 2**31
_CLOCKS = (None, "broker", "producer")


class Malformed(Exception):
    """A request that is none, or none of this version."""


class TooMany(Malformed):
    """A request that tells of more than one may."""


@dataclass(slots=True)
class Sent:
    """One request of the client. ``rejected`` holds (list, index in it, reason)."""

    sender: str
    sequence: int
    rows: list[Row] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    polls: list[PollCount] = field(default_factory=list)
    publishes: list[PublishCount] = field(default_factory=list)
    conflated: int = 0
    rejected: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def numbered(self) -> bool:
        """Whether it holds what has no id of its own, so that its sequence must tell a repetition."""
        return bool(self.summaries or self.polls or self.publishes)


def read(body: bytes, most: int, latest: int = LATEST_MICROS) -> Sent:
    """The request in ``body``, of at most ``most`` events, none of them after ``latest``; Malformed."""
    try:
        request = loads(body)
        if not isinstance(request, dict) or request.get("version") != VERSION:
            raise Malformed(f"a request is an object with version {VERSION}")
        lists = [request.get(name) or [] for name in LISTS]
        if not all(isinstance(one, list) for one in lists):
            raise Malformed("events, summaries, polls and publishes are lists")
        if sum(map(len, lists)) > most:
            raise TooMany(f"too many events: a request holds at most {most}, with summaries, polls and publishes")
        sent = Sent(
            text(request.get("sender"), "sender"),
            whole(request.get("sequence"), "sequence", 0, 2**62),
            conflated=whole(request.get("conflated") or 0, "conflated", 0, 2**62),
        )
    except Bad as bad:
        raise Malformed(str(bad)) from None
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    _each(sent, "events", lists[0], lambda one: sent.rows.append(_event(one, latest)))
    _each(sent, "summaries", lists[1], lambda one: sent.summaries.append(summary(one, latest)))
    _each(sent, "polls", lists[2], lambda one: sent.polls.append(_polls(one)))
    _each(sent, "publishes", lists[3], lambda one: sent.publishes.append(publishes(one)))
    return sent


def report(summaries: str, polls: str, published: str, conflated: int, most: int) -> Sent:
    """What the client's span ``sojourn.report`` holds, JSON in its attributes; Malformed."""
    try:
        lists = [loads(text) if text else [] for text in (summaries, polls, published)]
    except (ValueError, RecursionError):
        raise Malformed("sojourn.summaries, sojourn.polls and sojourn.publishes are JSON") from None
    if not all(isinstance(one, list) for one in lists) or sum(map(len, lists)) > most or conflated < 0:
        raise Malformed(f"sojourn.summaries, sojourn.polls and sojourn.publishes are lists of at most {most} in all")
    sent = Sent("", 0, conflated=conflated)
    _each(sent, "summaries", lists[0], lambda one: sent.summaries.append(summary(one)))
    _each(sent, "polls", lists[1], lambda one: sent.polls.append(_polls(one)))
    _each(sent, "publishes", lists[2], lambda one: sent.publishes.append(publishes(one)))
    return sent


def _each(sent: Sent, what: str, entries: Sequence[Any], take: Any) -> None:
    for index, entry in enumerate(entries):
        try:
            if not isinstance(entry, dict):
                raise Bad("not an object")
            take(entry)
        except Bad as bad:
            sent.rejected.append((what, index, str(bad)))


def _event(entry: dict[str, Any], latest: int) -> Row:
    get = entry.get
    event_type = get("event_type")
    if not isinstance(event_type, str) or event_type not in _TYPES:
        raise Bad(f"event_type: one of {', '.join(EVENT_TYPES)} is expected")
    seconds = get("processing_seconds")
    if seconds is not None and not (
        type(seconds) in (int, float) and math.isfinite(within(seconds, "processing_seconds")) and seconds >= 0
    ):
        raise Bad("processing_seconds: a number of at least 0 is expected")
    clock = get("clock")
    if clock not in _CLOCKS:
        raise Bad("clock: broker or producer is expected")
    attempt, enqueued_at, priority = get("attempt"), get("enqueued_at"), get("priority")
    if attempt is not None and (type(attempt) is not int or not 1 <= attempt < _INT32):
        raise Bad("attempt: a whole number from 1 is expected; leave out the number that nobody gave")
    event_id = text(get("event_id"), "event_id")
    return (
        event_type,
        text(get("broker"), "broker"),
        text(get("queue"), "queue"),
        _maybe(get("subscriber"), "subscriber"),
        _maybe(get("tenant"), "tenant"),
        text(get("message_id"), "message_id"),
        attempt,
        None if enqueued_at is None else whole(enqueued_at, "enqueued_at", 0, LATEST_MICROS),
        happened(get("occurred_at"), "occurred_at", LATEST_MICROS, latest),
        None if seconds is None else float(seconds),
        None if priority is None else whole(priority, "priority", -_INT32, _INT32),
        _maybe(get("worker"), "worker"),
        _maybe(get("reason"), "reason"),
        clock or "producer",
        _maybe(get("trace_id"), "trace_id"),
        event_id,
        key_of(event_id),
    )


def _polls(entry: dict[str, Any]) -> PollCount:
    get = entry.get
    where = (text(get("broker"), "broker"), text(get("queue"), "queue"), _maybe(get("subscriber"), "subscriber"))
    empty = get("empty_polls")
    return PollCount(where, count(get("polls"), "polls"), None if empty is None else count(empty, "empty_polls"))


def _maybe(value: Any, name: str) -> str | None:
    """An optional text; an empty one is none."""
    return None if value is None or value == "" else text(value, name)
