"""From what a cycle read to samples: one for each topic and group, summed over the topic's partitions.

Pure: no clock, no network. A sum of which one part is unknown is unknown, and the reason says how many parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.kafka.reading import GroupReading, Head, Place, Reading, matches
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.records import Stamp
from collectors.samples import METRIC_NAMES, Sample

#: What Kafka does not tell of any topic or group, and why.
UNTOLD = {
    "in_flight": "Kafka does not know which fetched records are being processed",
    "delayed": "Kafka delays no records",
    "polls_total": "Kafka does not count polls",
    "empty_polls_total": "Kafka does not count polls",
    "delivered_total": "Kafka does not count deliveries",
    "redelivered_total": "Kafka does not count deliveries",
    "in_flight_limit": "a consumer group has no limit",
    "prefetch": "each consumer chooses its own",
    "visibility_timeout_seconds": "records are not leased to consumers",
    "consumer_utilisation_ratio": "Kafka does not measure it",
    "publish_latency_seconds": "not probed: a probe would add to the user's topics",
}
_NO_GROUP = "no group reads the topic: nothing waits for anybody"
_NO_TIME = "lag_in_time is off"
_OFFSETS = "nothing is committed"
#: States of classic groups in which the members' assignments are not decided.
_REBALANCING = ("PreparingRebalance", "CompletingRebalance")

#: (group, topic, partition → (offset, lag), alive) → status, or None if it is too early to say.
Judge = Callable[[str, str, Mapping[int, tuple[int, int]], bool], str | None]


@dataclass(slots=True)
class Tally:
    """The sums over one topic's partitions for one group."""

    depth: int = 0
    acked: int = 0
    oldest: int | None = None  # milliseconds since 1970, of the oldest message that waits
    margin: int | None = None
    ahead: list[Head] = field(default_factory=list)  # written "after" now: a clock is off
    progress: dict[int, tuple[int, int]] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    timeless: dict[int, str] = field(default_factory=dict)
    marginless: dict[int, str] = field(default_factory=dict)


def samples(reading: Reading, broker: KafkaBroker, judge: Judge) -> tuple[list[Sample], set[Head]]:
    """The samples, and the heads of groups that were written "after" the reading: clocks that are off."""
    published = {topic: _published(reading, topic) for topic in reading.partitions}
    found: list[Sample] = []
    ahead: set[Head] = set()
    read = set()
    for group in reading.groups:
        for topic in group.committed:
            if topic not in reading.partitions:
                continue  # deleted, or not wanted
            read.add(topic)
            common = _common(reading, broker, topic, published[topic])
            if group.failed is not None:
                found.append(_unread(common, group))
                continue
            limits = reading.stable_ends if matches(group.name, broker.read_committed) else reading.ends
            tally = _tally(reading, group, topic, limits, timed=broker.lag_in_time)
            ahead.update(tally.ahead)
            alive = group.state != "Empty" if isinstance(group.members, str) else group.members.total > 0
            status = judge(group.name, topic, tally.progress, alive)
            found.append(_sample(common, group, topic, tally, reading, status))
    if broker.unread_topics:
        found += [
            _unread_topic(_common(reading, broker, topic, published[topic]))
            for topic in reading.partitions
            if topic not in read
        ]
    return found, ahead


def _common(reading: Reading, broker: KafkaBroker, topic: str, published: int | str) -> dict[str, Any]:
    missing = dict(UNTOLD)
    if isinstance(published, str):
        missing["published_total"] = published
    return {
        "queue": topic,
        "sampled_at": reading.at * 1000,
        "published_total": published if isinstance(published, int) else None,
        "queue_type": "topic",
        "dead_letter_for": broker.dead_letters.get(topic),
        "staleness_seconds": 0.0,
        "unavailable": missing,
    }


def _published(reading: Reading, topic: str) -> int | str:
    total, unknown = 0, dict[int, str]()
    for partition in reading.partitions[topic]:
        end = reading.ends.get((topic, partition), "it was not read")
        if isinstance(end, int):
            total += end
        else:
            unknown[partition] = end
    return _reason(unknown, len(reading.partitions[topic])) if unknown else total


def _reason(unknown: Mapping[int, str], of: int) -> str:
    """How many partitions are unknown, and why the first of them is."""
    first = unknown[min(unknown)]
    if of == 1:
        return first
    return f"{len(unknown)} of {of} partitions are unknown; {min(unknown)}: {first}"


def _tally(
    reading: Reading, group: GroupReading, topic: str, limits: Mapping[Place, int | str], *, timed: bool
) -> Tally:
    """Add up what one group has before it on one topic."""
    tally, offsets = Tally(), group.committed[topic]
    for partition in reading.partitions[topic]:
        place = topic, partition
        end = limits.get(place, "it was not read")
        offset = offsets.get(partition, -1)
        if place in group.errors:
            tally.unknown[partition] = group.errors[place]
        elif isinstance(end, str):
            tally.unknown[partition] = end
        elif offset < 0:
            start = reading.starts.get(place, 0 if end == 0 else _OFFSETS)
            if start == end:
                tally.acked += end  # an empty log: nothing waits, wherever the group will begin
            else:
                tally.unknown[partition] = start if isinstance(start, str) else _OFFSETS
        elif offset > end:
            tally.unknown[partition] = f"the committed offset {offset} is beyond the end {end}: the log was made anew"
        else:
            _wait(tally, reading, Head(topic, partition, offset), end, timed=timed)
    return tally


def _wait(tally: Tally, reading: Reading, head: Head, end: int, *, timed: bool) -> None:
    """Add one partition of which the committed offset and the end are known."""
    partition, offset = head.partition, head.offset
    tally.acked += offset
    if offset == end:
        tally.progress[partition] = offset, 0
        return
    start = reading.starts.get((head.topic, partition), "it was not read")
    first = offset
    if isinstance(start, int):
        first = max(offset, start)  # retention took what stood between
        margin = first - start
        tally.margin = margin if tally.margin is None else min(tally.margin, margin)
    else:
        tally.marginless[partition] = start
    lag = max(0, end - first)
    tally.depth += lag
    tally.progress[partition] = offset, lag
    if lag == 0:
        return
    head = Head(head.topic, partition, first)
    stamp = reading.stamps.get(head, "it was not read") if timed else _NO_TIME
    if isinstance(stamp, str):
        tally.timeless[partition] = stamp
    elif stamp is not None and stamp.offset < end:  # else only control records are before the end
        _age(tally, reading, head, stamp)


def _age(tally: Tally, reading: Reading, head: Head, stamp: Stamp) -> None:
    if stamp.time < 0:
        tally.timeless[head.partition] = "the record has no timestamp"
        return
    if stamp.time > reading.at:
        tally.ahead.append(head)
    tally.oldest = stamp.time if tally.oldest is None else min(tally.oldest, stamp.time)


def _sample(
    common: dict[str, Any],
    group: GroupReading,
    topic: str,
    tally: Tally,
    reading: Reading,
    status: str | None,
) -> Sample:
    missing, of = common["unavailable"], len(reading.partitions[topic])
    values: dict[str, Any] = {"depth": tally.depth, "acked_total": tally.acked}
    values["oldest_age_seconds"] = 0.0 if tally.oldest is None else max(0, reading.at - tally.oldest) / 1000
    values["retention_margin"] = tally.margin
    if tally.margin is None:
        missing["retention_margin"] = "nothing waits, so nothing can be lost unread"
    for names, unknown in (
        (("oldest_age_seconds",), tally.timeless),
        (("retention_margin",), tally.marginless),
        (("depth", "acked_total", "oldest_age_seconds", "retention_margin"), tally.unknown),
    ):
        if unknown:
            for name in names:
                values[name], missing[name] = None, _reason(unknown, of)
    if isinstance(group.members, str):
        values["consumers"], missing["consumers"] = None, group.members
    elif group.state in _REBALANCING and group.members.total > 0:
        values["consumers"], missing["consumers"] = None, "the group is rebalancing: its members have no topics yet"
    else:
        values["consumers"] = group.members.by_topic.get(topic, 0)
    if status is None:
        missing["status"] = "the group has not been watched for long enough"
        if not tally.progress:
            missing["status"] = _reason(tally.unknown, of) if tally.unknown else _OFFSETS
    return Sample(**common, **values, subscriber=group.name, state=group.state or None, status=status)


def _unread(common: dict[str, Any], group: GroupReading) -> Sample:
    """A group whose offsets are not told now, on a topic that it was seen to read."""
    missing = common["unavailable"]
    reason = group.failed or ""
    for name in _of_a_group():
        missing[name] = reason
    missing["state"] = reason
    return Sample(**common, subscriber=group.name)


def _unread_topic(common: dict[str, Any]) -> Sample:
    """A topic that no group reads."""
    missing = common["unavailable"]
    for name in _of_a_group():
        if name != "consumers":
            missing[name] = _NO_GROUP
    missing["state"] = _NO_GROUP
    return Sample(**common, consumers=0)


def _of_a_group() -> Iterator[str]:
    told = {"published_total", "queue_type", "staleness_seconds", "dead_letter_for", "state", *UNTOLD}
    return (name for name in METRIC_NAMES if name not in told)
