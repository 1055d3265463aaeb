"""From the management API's rows to samples: pure, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collectors.rabbitmq.names import OURS, Key, queue_name
from collectors.samples import NO_LOG, UNSPLIT, Sample, unread

PUSHED = "consumers are pushed to: RabbitMQ has no empty polls but of basic.get, which nobody used here"
UNLIMITED = "a consumer takes all messages that there are, without a limit"
NOT_COUNTED = "RabbitMQ has counted none since the queue's node started"
#: What RabbitMQ tells of no queue, and why.
_UNTOLD = {
    "delayed": "RabbitMQ's queues hold no delayed messages; the plugin for them holds them in its exchange",
    "in_flight_limit": "RabbitMQ limits each consumer, by its prefetch, and not the queue",
    "publish_latency_seconds": f"measured once for the broker: see the row {OURS}",
    "retention_margin": "RabbitMQ does not tell how near a queue or stream is to dropping unread messages",
    "status": "not judged",
    "lost_total": "RabbitMQ does not count what a length limit or an expiry drops",
    **NO_LOG,
    **UNSPLIT,
}
NO_TIMEOUT = "unacknowledged messages return when their consumer goes; the node's consumer_timeout is not told"
_STREAM = "a stream keeps what was read: how much waits depends on each reader's offset, which is not told"
_COUNTERS = {
    "published_total": "publish",
    "delivered_total": "deliver_get",
    "acked_total": "ack",
    "redelivered_total": "redeliver",
}
#: Seconds since 1970, in the year 5138: a publisher that writes more writes milliseconds, and no age follows.
_LATEST = 1e11
#: States in which the queue's process tells nothing: any number would be an old one.
_SILENT = frozenset(("down", "nodedown", "noproc", "crashed", "stopped", "terminated", "timeout"))


@dataclass(frozen=True, slots=True)
class Links:
    """What is read rarely: the queue that each dead-letter queue serves, the seconds after which an unacknowledged
    message is taken from its consumer where a queue says so itself, the largest prefetch of a queue's consumers.

    ``unserved`` and ``no_prefetch`` are reasons: why a dead-letter queue serves no one queue, why a prefetch is not
    known. A prefetch of 0 is none: RabbitMQ hands such a consumer all that there is. ``delays`` are Dramatiq's queues
    of messages that are not due.
    """

    serves: Mapping[Key, str] = field(default_factory=dict)
    unserved: Mapping[Key, str] = field(default_factory=dict)
    timeouts: Mapping[Key, float] = field(default_factory=dict)
    prefetch: Mapping[Key, int] = field(default_factory=dict)
    no_prefetch: str = "its consumers came since consumers were last read"
    delays: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Reading:
    """When and how rows were read: microseconds on the node's clock, and how old its statistics may have been."""

    sampled_at: int
    staleness_seconds: float
    links: Links = Links()
    _reasons: dict[tuple[tuple[str, str], ...], dict[str, str]] = field(default_factory=dict)

    def shared(self, reasons: dict[str, str]) -> dict[str, str]:
        """``reasons``, or equal ones that came before: thousands of queues lack the same, and one copy is enough."""
        return self._reasons.setdefault(tuple(reasons.items()), reasons)


def samples(rows: Sequence[Any], reading: Reading) -> list[Sample]:
    """A sample for each queue of the management API's list; our own probe's queues are left out."""
    vhosts = {row["vhost"] for row in rows if isinstance(row, dict) and isinstance(row.get("vhost"), str)}
    found = []
    for row in rows:
        key = key_of(row)
        if key is not None:
            sample = _sample(queue_name(key, vhosts), key, row, reading)
            found.append(held_back(sample) if key in reading.links.delays else sample)
    return found


def held_back(sample: Sample) -> Sample:
    """A queue of Dramatiq's delayed messages: its workers take them at once and hold them until they are due."""
    if sample.depth is None or sample.in_flight is None:
        return sample
    missing = {name: why for name, why in sample.unavailable.items() if name not in ("delayed", "oldest_age_seconds")}
    delayed = sample.depth + sample.in_flight
    return replace(sample, depth=0, in_flight=0, delayed=delayed, oldest_age_seconds=0.0, unavailable=missing)


def key_of(row: Any) -> Key | None:
    """Which queue a row is about; None where it does not say, or the queue is ours."""
    if not isinstance(row, dict):
        return None
    vhost, name = row.get("vhost"), row.get("name")
    if not isinstance(vhost, str) or not isinstance(name, str) or name.startswith(OURS):
        return None
    return vhost, name


def covers(listed: Collection[Key], links: Links, rows: Sequence[Any]) -> bool:
    """Whether every queue of ``rows`` is ``listed``, and the prefetch known of each that has consumers."""
    for row in rows:
        key = key_of(row)
        if key is not None and (key not in listed or (row.get("consumers") and key not in links.prefetch)):
            return False
    return True


def _sample(queue: str, key: Key, row: Mapping[str, Any], reading: Reading) -> Sample:
    state, queue_type = _text(row.get("state")), _text(row.get("type"))
    serves = reading.links.serves.get(key)
    if state in _SILENT:
        why = f"RabbitMQ says that the queue is {state}: it tells no numbers"
        return unread(queue, reading.sampled_at, why, dead_letter_for=serves)
    ready, unacked = _count(row.get("messages_ready")), _count(row.get("messages_unacknowledged"))
    if ready is None or unacked is None:
        why = "RabbitMQ has no statistics of it yet, or its node does not answer"
        return unread(queue, reading.sampled_at, why, dead_letter_for=serves)
    missing = dict(_UNTOLD)
    values: dict[str, Any] = {"depth": ready, "in_flight": unacked, "queue_type": queue_type, "state": state}
    for name in ("queue_type", "state"):
        if values[name] is None:
            missing[name] = "RabbitMQ did not tell"
    if queue_type == "stream":
        values["depth"], missing["depth"] = None, _STREAM
    values["consumers"] = consumers = _count(row.get("consumers"))
    if consumers is None:
        missing["consumers"] = "RabbitMQ did not tell"
    _age(values, missing, row, ready + unacked, reading)
    _counters(values, missing, row.get("message_stats"))
    _consuming(values, missing, row, consumers, reading.links.prefetch.get(key), reading.links.no_prefetch)
    values["visibility_timeout_seconds"] = reading.links.timeouts.get(key)
    if values["visibility_timeout_seconds"] is None:
        missing["visibility_timeout_seconds"] = NO_TIMEOUT
    if serves is None and key in reading.links.unserved:
        missing["dead_letter_for"] = reading.links.unserved[key]
    return Sample(
        queue,
        reading.sampled_at,
        dead_letter_for=serves,
        staleness_seconds=reading.staleness_seconds,
        unavailable=reading.shared(missing),
        **values,
    )


def _age(
    values: dict[str, Any], missing: dict[str, str], row: Mapping[str, Any], messages: int, reading: Reading
) -> None:
    """The head's ``timestamp`` property, in whole seconds, on its publisher's clock; classic queues alone tell it."""
    head = row.get("head_message_timestamp")
    if messages == 0 and row.get("type") != "stream":
        values["oldest_age_seconds"] = 0.0
    elif row.get("type") != "classic":
        missing["oldest_age_seconds"] = f"a {row.get('type')} queue does not tell how old its oldest message is"
    elif isinstance(head, (int, float)) and not isinstance(head, bool) and head >= _LATEST:
        missing["oldest_age_seconds"] = "the oldest message's timestamp property is not in seconds"
    elif isinstance(head, (int, float)) and not isinstance(head, bool) and head > 0:
        values["oldest_age_seconds"] = max(0.0, reading.sampled_at / 1e6 - head)
    else:
        missing["oldest_age_seconds"] = "the oldest message has no timestamp property, or is paged out"


def _counters(values: dict[str, Any], missing: dict[str, str], stats: Any) -> None:
    stats = stats if isinstance(stats, dict) else {}
    for name, theirs in _COUNTERS.items():
        values[name] = _count(stats.get(theirs))
        if values[name] is None:
            missing[name] = NOT_COUNTED
    empty = _count(stats.get("get_empty")) or 0
    polls = empty + (_count(stats.get("get")) or 0) + (_count(stats.get("get_no_ack")) or 0)
    if polls:
        values["polls_total"], values["empty_polls_total"] = polls, empty
    else:
        missing["polls_total"] = missing["empty_polls_total"] = PUSHED


def _consuming(
    values: dict[str, Any],
    missing: dict[str, str],
    row: Mapping[str, Any],
    consumers: int | None,
    prefetch: int | None,
    no_prefetch: str,
) -> None:
    """How ready consumers are for a message, and how many each takes ahead."""
    if not consumers:
        reason = "no consumer is attached" if consumers == 0 else "RabbitMQ did not tell"
        missing["consumer_utilisation_ratio"] = missing["prefetch"] = reason
        return
    capacity = row.get("consumer_capacity", row.get("consumer_utilisation"))
    if isinstance(capacity, (int, float)) and not isinstance(capacity, bool):
        values["consumer_utilisation_ratio"] = min(1.0, max(0.0, float(capacity)))
    else:
        missing["consumer_utilisation_ratio"] = f"a {row.get('type')} queue does not tell it"
    if prefetch:
        values["prefetch"] = prefetch
    else:
        missing["prefetch"] = no_prefetch if prefetch is None else UNLIMITED


def _count(value: Any) -> int | None:
    """A count as RabbitMQ tells it; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
