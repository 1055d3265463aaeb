"""What one group has before it on one topic, added up over the partitions. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from collectors.kafka.reading import Earlier, GroupReading, Head, Place, Reading
from collectors.kafka.status import Progress
from collectors.kafka.wire.records import Stamp

NOTHING_COMMITTED = "nothing is committed"
NO_TIME = "lag_in_time is off"
NOT_READ = "it was not read"
#: 2010, when there was no Kafka yet: seconds taken for milliseconds are times in 1970.
_EARLIEST = 1_262_304_000_000
#: What clocks may be apart: a record that is further ahead has no age that could be told.
_CLOCKS_APART = 5 * 60_000


@dataclass(slots=True)
class Tally:
    """The sums over one topic's partitions for one group."""

    depth: int = 0
    oldest: int | None = None  # milliseconds since 1970, of the oldest message that waits
    stale: int = 0  # milliseconds since the least lately read of these times was
    margin: int | None = None
    ahead: list[Head] = field(default_factory=list)  # written "after" now: a clock is off
    progress: dict[int, Progress] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    timeless: dict[int, str] = field(default_factory=dict)
    marginless: dict[int, str] = field(default_factory=dict)


def tally(reading: Reading, group: GroupReading, topic: str, *, committed_only: bool, timed: bool) -> Tally:
    """Add up what waits for ``group`` on ``topic``; ``committed_only``: it is known to read committed records alone."""
    found, offsets = Tally(), group.committed[topic]
    limits = reading.stable_ends if committed_only else reading.ends
    assumed = reading.assumed.get(group.name, {})
    for partition in reading.partitions[topic]:
        place = topic, partition
        end, offset = limits.get(place, NOT_READ), offsets.get(partition, -1)
        if place in group.errors:
            found.unknown[partition] = group.errors[place]
        elif isinstance(end, str):
            found.unknown[partition] = end
        elif offset < 0 and place not in assumed:
            start = reading.starts.get(place, 0 if end == 0 else NOTHING_COMMITTED)
            if start != end:  # else an empty log: nothing waits, wherever the group will begin
                found.unknown[partition] = start if isinstance(start, str) else NOTHING_COMMITTED
        elif offset > end:
            found.unknown[partition] = _beyond(reading, place, offset, end)
        else:
            first = assumed[place] if offset < 0 else offset
            most = group.lags.get(place)
            seen = _waiting(found, reading, Head(topic, partition, first), end, most, timed=timed)
            if offset < 0:
                seen = Progress(-1, seen.lag)
            found.progress[partition] = _held(reading, place, seen, committed_only=committed_only)
    return found


def _beyond(reading: Reading, place: Place, offset: int, end: int) -> str:
    whole = reading.ends.get(place)
    if isinstance(whole, int) and end < offset <= whole:
        return f"the committed offset {offset} is beyond the last stable one, {end}: it is no group of read_committed"
    return f"the committed offset {offset} is beyond the end {end}: the log was recreated"


def _waiting(found: Tally, reading: Reading, head: Head, end: int, most: int | None, *, timed: bool) -> Progress:
    """Add one partition on which the group goes on at ``head``; ``most``: what the broker says to wait there, which is
    less than all up to ``end`` where records behind the head are done with already."""
    partition, offset = head.partition, head.offset
    if offset >= end:
        return Progress(offset, 0)
    start = reading.starts.get((head.topic, partition), NOT_READ)
    first = offset
    if isinstance(start, int):
        first = max(offset, start)  # retention took what stood between
        if start > 0:  # before, nothing was ever deleted, and how soon something may be is not told by offsets
            margin = first - start
            found.margin = margin if found.margin is None else min(found.margin, margin)
    else:
        found.marginless[partition] = start
    lag = max(0, end - first)
    if most is not None:
        lag = min(lag, most)
    found.depth += lag
    if lag > 0:
        head = Head(head.topic, partition, first)
        stamp = reading.stamps.get(head, NOT_READ) if timed else NO_TIME
        if isinstance(stamp, str):
            found.timeless[partition] = stamp
        elif isinstance(stamp, Earlier) or (stamp is not None and stamp.offset < end):
            _age(found, reading, head, stamp)
        else:
            lag = 0  # only control records are before the end: nobody is behind for not having committed them
    return Progress(offset, lag, first - offset)


def _age(found: Tally, reading: Reading, head: Head, stamp: Stamp | Earlier) -> None:
    if isinstance(stamp, Earlier):
        found.stale = max(found.stale, reading.tick - stamp.tick)
    elif stamp.time > reading.at:
        found.ahead.append(head)
    written = _written(stamp, reading.at)
    if isinstance(written, str):
        found.timeless[head.partition] = written
    else:
        found.oldest = written if found.oldest is None else min(found.oldest, written)


def _written(stamp: Stamp | Earlier, now: int) -> int | str:
    """When the message at a head was written, in milliseconds since 1970; or why that is not known. Of a head that was
    read earlier: such that its age is what it was then."""
    then = stamp.at if isinstance(stamp, Earlier) else now
    return implausible(stamp.time, then) or stamp.time + now - then


def _held(reading: Reading, place: Place, seen: Progress, *, committed_only: bool) -> Progress:
    """``seen``, held up by a transaction that hangs if nothing but control records is left before it."""
    if place not in reading.hung:
        return seen
    stable, offset = reading.stable_ends.get(place), seen.offset
    if not isinstance(stable, int) or not 0 <= offset <= stable:
        return seen
    stamp = reading.stamps.get(Head(*place, offset))
    reached = stamp.offset if isinstance(stamp, Stamp) else offset
    return seen._replace(held=committed_only or reached >= stable, committed_only=committed_only)


def implausible(time: int, now: int) -> str | None:
    """Why no age follows from a record's time (both in milliseconds since 1970); None where one does."""
    if time == -1:
        return "the record has no timestamp"
    if _EARLIEST <= time <= now + _CLOCKS_APART:
        return None
    try:
        said = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        said = f"{time} ms since 1970"
    if time > now:
        return f"the record says that it was written at {said}, which is yet to come: is its time in milliseconds?"
    return f"the record says that it was written at {said}: is its time in milliseconds?"


def oldest_transaction(reading: Reading, topic: str, *, timed: bool) -> tuple[int | str, float | str]:
    """How many messages of ``topic`` are behind open transactions, and the age in seconds of the first of them; or why
    they are not known."""
    behind, oldest = 0, reading.at
    unknown, timeless = dict[int, str](), dict[int, str]()
    for partition in reading.partitions[topic]:
        place = topic, partition
        end, stable = reading.ends.get(place, NOT_READ), reading.stable_ends.get(place, NOT_READ)
        if isinstance(end, str) or isinstance(stable, str):
            unknown[partition] = end if isinstance(end, str) else str(stable)
        elif stable < end:  # it was read after the end, and may be beyond it
            behind += end - stable
            stamp = reading.stamps.get(Head(topic, partition, stable), NOT_READ) if timed else NO_TIME
            written = stamp if stamp is None or isinstance(stamp, str) else _written(stamp, reading.at)
            if isinstance(written, str):
                timeless[partition] = written
            elif written is not None:
                oldest = min(oldest, written)
    of = len(reading.partitions[topic])
    if unknown:
        return reason(unknown, of), reason(unknown, of)
    return behind, reason(timeless, of) if timeless else (reading.at - oldest) / 1000


def reason(unknown: Mapping[int, str], of: int) -> str:
    """How many of ``of`` partitions are unknown, and why the first of them is."""
    first = unknown[min(unknown)]
    if of == 1:
        return first
    return f"{len(unknown)} of {of} partitions are unknown; {min(unknown)}: {first}"
