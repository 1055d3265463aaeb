"""Streams: each consumer group is a subscriber; a stream that no group reads is a log, and nothing waits in it.

The oldest unprocessed message is not the head of the stream: it is the older of the oldest pending entry and the first
entry after the group's last delivered id. Lag is Redis' own (7.0 and later), null where it cannot know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from brokers.redis.resp import Answer, Command, Refusal, checked
from collectors.broker import matching
from collectors.redis.layouts.base import UNTOLD_ANYWHERE, Preparing, Read, Reading, age, text
from collectors.redis.scan import Search
from collectors.redis.settings import StreamLayout
from collectors.samples import Sample

_UNTOLD = UNTOLD_ANYWHERE | {"acked_total": "Redis does not count acknowledgements"}
_NO_GROUP = {
    "delivered_total": "the stream has no consumer group",
    "redelivered_total": "the stream has no consumer group",
}
_LOG = "no consumer group reads it: a log, in which nothing waits for anybody"
_NO_LAG = "Redis cannot tell the lag: entries were deleted, or the group was set to an id within the stream"
_OLD_SERVER = "told by Redis 7.0 and later"
_OWN_IDS = "the entries' ids are the producer's own, and not times"
#: RQ keeps the results of its jobs in streams that nobody consumes.
_NOT_QUEUES = b"rq:results:"
#: BullMQ tells what happens to a queue in a stream beside the hash of its settings: a log that its own dashboards read.
_EVENTS, _META = b":events", b":meta"
#: 2001-09-09: an id below it was not made from a clock.
_EARLIEST_MS = 1_000_000_000_000


@dataclass(slots=True)
class Tally:
    """Deliveries that were repeats, counted up from the pending entries of one group, which alone know of them."""

    total: int = 0
    deliveries: dict[bytes, int] = field(default_factory=dict)

    def count(self, pending: Iterable[tuple[bytes, int]]) -> int:
        """The total after ``pending``, (id, deliveries) of the entries that are pending now.

        A repeat is missed if its entry is delivered and acknowledged between two readings.
        """
        now = dict(pending)
        self.total += sum(max(0, times - self.deliveries.get(entry, 1)) for entry, times in now.items())
        self.deliveries = now
        return self.total


class Streams:
    """The listed streams, or every stream whose key matches."""

    def __init__(self, settings: StreamLayout) -> None:
        self._settings = settings
        self._keys = sorted(key.encode() for key in settings.keys)
        self._found: frozenset[bytes] = frozenset()
        self._tallies: dict[bytes, dict[bytes, Tally]] = {}

    def search(self) -> Search | None:
        """Streams by their type."""
        return None if self._settings.keys else Search(self._settings.match, "stream")

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """Each key is a queue."""
        if not self._settings.keys and keys != self._found:
            self._found = keys
            self._keys = sorted(key for key in keys if not key.startswith(_NOT_QUEUES))
            self._tallies = {key: tally for key, tally in self._tallies.items() if key in keys}

    def prepare(self, now: int) -> Preparing:
        """Nothing."""
        yield from ()

    def queues(self) -> Iterable[tuple[str, Read]]:
        """One queue a stream."""
        return [
            (text(key), partial(read, key, self._settings, self._tallies.setdefault(key, {}))) for key in self._keys
        ]


def read(key: bytes, settings: StreamLayout, tallies: dict[bytes, Tally], now: int) -> Reading:
    """One stream: a sample for each of its groups, or one of the whole where no group reads it."""
    beside = key.removesuffix(_EVENTS) + _META if key.endswith(_EVENTS) and not settings.keys else b""
    stream_answer, groups_answer, *bullmqs = yield [
        ("XINFO", "STREAM", key),
        ("XINFO", "GROUPS", key),
        *([("EXISTS", beside)] if beside else []),
    ]
    if _is_gone(stream_answer) or _is_gone(groups_answer):
        tallies.clear()
        return []
    checked([stream_answer, groups_answer])
    stream = _mapping(stream_answer)
    groups = [_mapping(group) for group in groups_answer]
    common: dict[str, Any] = {"queue": text(key), "sampled_at": now, "delayed": 0, "queue_type": "stream"}
    missing = dict(_UNTOLD)
    common["published_total"] = stream.get("entries-added")
    if common["published_total"] is None:
        missing["published_total"] = _OLD_SERVER
    if not groups:
        if bullmqs == [1]:
            return []
        missing |= _NO_GROUP
        if not matching(text(key), settings.backlogs):
            missing |= {"depth": _LOG, "oldest_age_seconds": _LOG}
            return [Sample(**common, in_flight=0, consumers=0, unavailable=missing)]
        head = stream["first-entry"]
        oldest, why = _age(now, [head[0]] if head else [])
        missing |= {"oldest_age_seconds": why} if why else {}
        whole = {"depth": stream["length"], "in_flight": 0, "consumers": 0, "oldest_age_seconds": oldest}
        return [Sample(**common, **whole, unavailable=missing)]
    for name in tallies.keys() - {group["name"] for group in groups}:
        del tallies[name]
    commands: list[Command] = []
    for group in groups:
        commands.append(("XRANGE", key, b"(" + group["last-delivered-id"], "+", "COUNT", 1))
        if group["pending"]:
            commands.append(("XPENDING", key, group["name"], "-", "+", settings.pending_window))
    answers = iter((yield commands) if commands else [])
    samples = []
    for group in groups:
        following, pending = next(answers), next(answers) if group["pending"] else []
        if _is_gone(following) or _is_gone(pending):
            continue
        checked([following, pending])
        tally = tallies.setdefault(group["name"], Tally())
        samples.append(_sample(group, following, pending, tally, common, missing))
    return samples


def _sample(
    group: Mapping[str, Any],
    following: list[Any],
    pending: list[Any],
    tally: Tally,
    common: Mapping[str, Any],
    missing: Mapping[str, str],
) -> Sample:
    missing = dict(missing)
    depth, delivered = group.get("lag"), group.get("entries-read")
    if depth is None:
        missing["depth"] = _NO_LAG if "lag" in group else _OLD_SERVER
    if delivered is None and group["last-delivered-id"] == b"0-0":
        delivered = 0  # counted from the first delivery on
    redelivered = tally.count((entry, times) for entry, _, _, times in pending)
    if delivered is None:
        missing["delivered_total"] = "Redis lost count: the group was set to an id" if "lag" in group else _OLD_SERVER
    unprocessed = [entry[0] for entry in following[:1]] + [entry[0] for entry in pending[:1]]
    oldest, why = _age(common["sampled_at"], unprocessed)
    if why:
        missing["oldest_age_seconds"] = why
    return Sample(
        **common,
        subscriber=text(group["name"]),
        depth=None if depth is None else max(0, depth),
        in_flight=group["pending"],
        consumers=group["consumers"],
        oldest_age_seconds=oldest,
        delivered_total=None if delivered is None else delivered + redelivered,
        redelivered_total=redelivered,
        unavailable=missing,
    )


def _age(now: int, ids: list[bytes]) -> tuple[float | None, str | None]:
    """The age of the oldest of ``ids``, or why it is not known; an id begins with milliseconds since 1970."""
    if not ids:
        return 0.0, None
    oldest = min(int(entry.split(b"-")[0]) for entry in ids)
    return (age(now, oldest * 1000), None) if oldest >= _EARLIEST_MS else (None, _OWN_IDS)


def _is_gone(answer: Answer) -> bool:
    """Whether the key, or the group, was deleted."""
    return isinstance(answer, Refusal) and (answer.code == "NOGROUP" or "no such key" in str(answer))


def _mapping(flat: list[Any]) -> dict[str, Any]:
    """RESP2 sends a map as a list of its keys and values in turn."""
    return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
