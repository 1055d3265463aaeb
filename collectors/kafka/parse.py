"""From what a cycle read to samples: one for each topic and group, summed over the topic's partitions.

Pure: no clock, no network. What waits on some partitions is told beside the number of those that are unknown; a counter
of which one part is unknown is unknown, as it would seem to jump when that part is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collectors.kafka.history import Judgement
from collectors.kafka.reading import REBALANCING, SHARE, GroupReading, Head, Reading, matches
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.status import Progress
from collectors.kafka.tally import NOTHING_COMMITTED, Tally, oldest_transaction, reason, tally
from collectors.samples import METRIC_NAMES, UNSPLIT, Sample

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
    **UNSPLIT,
}
#: What is not told of share groups, for another reason.
_OF_SHARES = {
    "in_flight": "a share group's acquired records are told by the brokers' JMX alone",
    "redelivered_total": "a share group's deliveries are counted by the brokers' JMX alone",
    "in_flight_limit": "the brokers' group.share.partition.max.record.locks, for each partition, is not read",
    "visibility_timeout_seconds": "the group's share.record.lock.duration.ms is not read",
}
_NO_GROUP = "no group reads the topic: nothing waits for anybody"

_SUMS = ("depth", "acked_total", "lost_total", "oldest_age_seconds", "retention_margin")

#: (group, topic, partition → progress, alive) → status and counters.
Judge = Callable[[str, str, Mapping[int, Progress], bool], Judgement]


def samples(reading: Reading, broker: KafkaBroker, judge: Judge) -> tuple[list[Sample], set[Head]]:
    """The samples, and the heads of groups that were written "after" the reading: clocks that are off."""
    published = {topic: _published(reading, topic) for topic in reading.partitions}
    transactions = {topic: oldest_transaction(reading, topic, timed=broker.lag_in_time) for topic in reading.partitions}
    found: list[Sample] = []
    ahead: set[Head] = set()
    read = set()
    for group in reading.groups:
        for topic in group.committed:
            if topic not in reading.partitions:
                continue  # deleted, or not wanted
            read.add(topic)
            common = _common(reading, broker, topic, published[topic], transactions[topic])
            if group.kind == SHARE:
                common["unavailable"] |= _OF_SHARES
            if group.failed is not None:
                found.append(_unread(common, group))
                continue
            committed_only = matches(group.name, broker.read_committed)
            waiting = tally(reading, group, topic, committed_only=committed_only, timed=broker.lag_in_time)
            ahead.update(waiting.ahead)
            alive = group.state != "Empty" if isinstance(group.members, str) else group.members.total > 0
            judgement = judge(group.name, topic, waiting.progress, alive)
            found.append(_sample(common, group, topic, waiting, reading, judgement))
    if broker.unread_topics:
        found += [
            _unread_topic(_common(reading, broker, topic, published[topic], transactions[topic]), reading.unlisted)
            for topic in reading.partitions
            if topic not in read
        ]
    return found, ahead


def _common(
    reading: Reading,
    broker: KafkaBroker,
    topic: str,
    published: int | str,
    transactions: tuple[int | str, float | str],
) -> dict[str, Any]:
    """What the rows of all groups on one topic have in common."""
    missing = dict(UNTOLD)
    values: dict[str, Any] = {}
    told = published, *transactions
    for name, value in zip(("published_total", "transactional_lag", "transactional_age_seconds"), told, strict=True):
        if isinstance(value, str):
            missing[name] = value
        else:
            values[name] = value
    return {
        "queue": topic,
        "sampled_at": reading.at * 1000,
        "queue_type": "topic",
        "dead_letter_for": broker.dead_letters.get(topic),
        "unavailable": missing,
        **values,
    }


def _published(reading: Reading, topic: str) -> int | str:
    total, unknown = 0, dict[int, str]()
    for partition in reading.partitions[topic]:
        end = reading.ends.get((topic, partition), "it was not read")
        if isinstance(end, int):
            total += end
        else:
            unknown[partition] = end
    return reason(unknown, len(reading.partitions[topic])) if unknown else total


def _sample(
    common: dict[str, Any],
    group: GroupReading,
    topic: str,
    waiting: Tally,
    reading: Reading,
    judgement: Judgement,
) -> Sample:
    missing, of = common["unavailable"], len(reading.partitions[topic])
    values = _of_partitions(waiting, of, judgement, reading.at, missing)
    if isinstance(group.members, str):
        missing["consumers"] = group.members
    elif group.state in REBALANCING and group.members.total > 0:
        missing["consumers"] = "the group is rebalancing: its members have no topics yet"
    else:
        values["consumers"] = group.members.by_topic.get(topic, 0)
    if judgement.status is None:
        missing["status"] = "the group has not been watched for long enough"
        if not waiting.progress:
            missing["status"] = reason(waiting.unknown, of) if waiting.unknown else NOTHING_COMMITTED
    return Sample(**common, **values, subscriber=group.name, state=group.state or None, status=judgement.status)


def _of_partitions(waiting: Tally, of: int, judgement: Judgement, now: int, missing: dict[str, str]) -> dict[str, Any]:
    """The columns that are sums, or the worst, over ``of`` partitions; ``missing`` is told why others are not known."""
    unknown = reason(waiting.unknown, of) if waiting.unknown else None
    values: dict[str, Any] = {"unknown_partitions": len(waiting.unknown)}
    if unknown is not None:
        missing["unknown_partitions"] = unknown
    if len(waiting.unknown) == of and unknown is not None:
        missing |= dict.fromkeys(_SUMS, unknown)
        return values
    values |= {"depth": waiting.depth, "acked_total": judgement.acked, "lost_total": judgement.lost}
    values["staleness_seconds"] = waiting.stale / 1000
    if waiting.timeless:
        missing["oldest_age_seconds"] = reason(waiting.timeless, of)
    elif waiting.oldest is not None:
        values["oldest_age_seconds"] = max(0, now - waiting.oldest) / 1000
    elif unknown is not None:  # nothing waits on those that are known, and that is not all
        missing["oldest_age_seconds"] = unknown
    else:
        values["oldest_age_seconds"] = 0.0
    if waiting.marginless:
        missing["retention_margin"] = reason(waiting.marginless, of)
    elif waiting.margin is not None:
        values["retention_margin"] = waiting.margin
    else:
        idle = "retention has deleted nothing yet" if waiting.depth else "nothing waits, so nothing can be lost unread"
        missing["retention_margin"] = unknown or idle
    return values


def _unread(common: dict[str, Any], group: GroupReading) -> Sample:
    """A group whose offsets are not told now, on a topic that it was seen to read."""
    missing = common["unavailable"]
    for name in (*_of_a_group(), "state"):
        missing[name] = group.failed or ""
    return Sample(**common, subscriber=group.name)


def _unread_topic(common: dict[str, Any], unlisted: str) -> Sample:
    """A topic that no group reads, or none that is known: ``unlisted`` says why there may be others."""
    missing = common["unavailable"]
    for name in (*_of_a_group(), "state"):
        missing[name] = unlisted or _NO_GROUP
    if unlisted:
        return Sample(**common)
    del missing["consumers"]
    return Sample(**common, consumers=0)


def _of_a_group() -> Iterator[str]:
    of_a_topic = {"published_total", "transactional_lag", "transactional_age_seconds", "queue_type", "dead_letter_for"}
    told = {"staleness_seconds", "state", *of_a_topic, *UNTOLD}
    return (name for name in METRIC_NAMES if name not in told)
