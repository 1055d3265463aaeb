"""What JetStream's answers say of its queues: pure functions from answers to samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from collectors.nats.attach import StreamFacts, subscriptions
from collectors.nats.oldest_unacked import Head, outstanding
from collectors.nats.parse import microseconds
from collectors.nats.settings import StreamSettings
from collectors.samples import METRIC_NAMES, NO_LOG, UNSPLIT, Sample

#: What JetStream does not tell of any queue, and why.
_UNTOLD = {
    "delayed": "counted as in flight",
    "polls_total": "not counted by JetStream",
    "empty_polls_total": "not counted by JetStream",
    "acked_total": "not counted by JetStream",
    "redelivered_total": "told of those in flight alone",
    "prefetch": "each client's own",
    "consumer_utilisation_ratio": "not measured by JetStream",
    "publish_latency_seconds": "a probe would add to the stream",
    "state": "JetStream has no states",
    "status": "not judged",
    "lost_total": "JetStream does not count what its limits delete unread",
    **NO_LOG,
    **UNSPLIT,
}
#: Told of consumers alone.
_OF_A_CONSUMER = ("delivered_total", "in_flight_limit", "visibility_timeout_seconds", "retention_margin")
_NO_CONSUMER = "the stream has no durable consumer"
_LOG = "no consumer reads it: a log, in which nothing waits for anybody"
_READ_AS_A_LOG = "read by consumers that are not durable, or acknowledge nothing: a log, in which nothing waits"
_OTHERS = "the stream's consumers are not durable, or acknowledge nothing: they are no subscribers"
_OF_A_SUBJECT = "told for the stream and its consumers, not for each subject"

_HEAD_GONE = "the message behind the acknowledgement floor is gone, or the broker did not tell it"
_NO_LIMIT = "the consumer has no limit"
_NO_ACK = "the consumer acknowledges nothing"
_PULLS = "clients that pull are not counted"
_KEPT = "kept until acknowledged"
_OTHER_LIMITS = "not limited in messages"
#: Stands for the subjects beyond the cap; no message can have it as its subject.
OTHERS = "*"


@cache
def _reasons(*more: tuple[str, str]) -> Mapping[str, str]:
    """:data:`_UNTOLD` and ``more``; one object for all samples that lack the same."""
    return _UNTOLD | dict(more)


def samples(
    settings: StreamSettings,
    stream: Mapping[str, Any],
    consumers: Mapping[str, dict[str, Any]],
    heads: Mapping[str, Head | None],
    *,
    named: bool = False,
    backlog: bool = False,
) -> list[Sample]:
    """Samples from the server's answers, one for each subscriber.

    ``heads``: each consumer's oldest unacknowledged message; ``named``: whether an only consumer has its name;
    ``backlog``: whether its messages wait also where nobody subscribes to a stream that keeps them to its limits.
    """
    state = stream["state"]
    facts = StreamFacts(stream["config"], stream["created"], state["first_seq"], state["last_seq"])
    subscribed = subscriptions(facts, consumers, named=named)
    if not subscribed:
        waits = backlog or settings.dead_letter_for is not None or facts.config.get("retention") != "limits"
        return [_whole(settings, stream, consumers, waits)]
    return [
        _subscriber(settings, stream, consumers[name], subscription.subscriber, heads.get(name))
        for name, subscription in subscribed.items()
    ]


def _whole(
    settings: StreamSettings, stream: Mapping[str, Any], others: Mapping[str, dict[str, Any]], waits: bool
) -> Sample:
    """A stream that no subscriber consumes; ``others``: consumers that are not durable, or acknowledge nothing.

    Where retention is by work queue or by interest, what is stored waits for somebody by definition; a stream that is
    kept to its limits without a subscriber is a log, unless ``waits`` says otherwise.
    """
    missing = [(name, _NO_CONSUMER) for name in _OF_A_CONSUMER]
    if others:
        missing.append(("consumers", _OTHERS))
    held = any(info["config"].get("ack_policy") != "none" for info in others.values())
    if held:
        missing.append(("in_flight", _OTHERS))
    state, sampled_at = stream["state"], microseconds(stream["ts"])
    age: float | None = max(0.0, (sampled_at - microseconds(state["first_ts"])) / 1e6) if state["messages"] else 0.0
    if not waits:
        age, why = None, _READ_AS_A_LOG if others else _LOG
        missing += [("depth", why), ("oldest_age_seconds", why)]
    return Sample(
        settings.queue_name,
        sampled_at,
        depth=state["messages"] if waits else None,
        in_flight=None if held else 0,
        oldest_age_seconds=age,
        consumers=None if others else 0,
        published_total=state["last_seq"],
        dead_letter_for=settings.dead_letter_for,
        queue_type=stream["config"].get("retention"),
        unavailable=_reasons(*missing),
    )


def _subscriber(
    settings: StreamSettings,
    stream: Mapping[str, Any],
    info: Mapping[str, Any],
    subscriber: str | None,
    head: Head | None,
) -> Sample:
    config, state = info["config"], stream["state"]
    sampled_at = microseconds(info["ts"])
    missing: list[tuple[str, str]] = []
    age: float | None = 0.0
    if outstanding(info):
        age = None if head is None else max(0.0, (sampled_at - head.stored_at) / 1e6)
        if age is None:
            missing.append(("oldest_age_seconds", _HEAD_GONE))
    limit = config.get("max_ack_pending", 0)
    if limit <= 0:
        missing.append(("in_flight_limit", _NO_LIMIT))
    wait = config.get("ack_wait")
    if not wait:
        missing.append(("visibility_timeout_seconds", _NO_ACK))
    push = "deliver_subject" in config
    if not push:
        missing.append(("consumers", _PULLS))
    margin = _margin(stream["config"], state, info["ack_floor"]["stream_seq"] + 1)
    if margin is None:
        keeps = stream["config"].get("retention") != "limits"
        missing.append(("retention_margin", _KEPT if keeps else _OTHER_LIMITS))
    return Sample(
        settings.queue_name,
        sampled_at,
        subscriber,
        depth=info["num_pending"],
        in_flight=info["num_ack_pending"],
        oldest_age_seconds=age,
        consumers=int(info.get("push_bound", False)) if push else None,
        published_total=state["last_seq"],
        delivered_total=info["delivered"]["consumer_seq"],
        dead_letter_for=settings.dead_letter_for,
        in_flight_limit=limit if limit > 0 else None,
        visibility_timeout_seconds=wait / 1e9 if wait else None,
        retention_margin=margin,
        queue_type=stream["config"].get("retention"),
        unavailable=_reasons(*missing),
    )


def _margin(config: Mapping[str, Any], state: Mapping[str, Any], oldest: int) -> int | None:
    """Messages that may still be published before message ``oldest`` is deleted unread, by the limit in messages."""
    most = int(config.get("max_msgs", -1))
    if most <= 0 or config.get("retention") != "limits" or config.get("discard") != "old":
        return None
    return max(0, most - int(state["messages"])) + max(0, oldest - int(state["first_seq"]))


def subject_samples(settings: StreamSettings, stream: Mapping[str, Any]) -> list[Sample]:
    """What the stream holds of each subject, as queues ``STREAM/subject``; those beyond the cap as one, ``STREAM/*``.

    Stored messages, in flight or not: the stream does not know what its consumers do with single subjects.
    """
    counts: Mapping[str, int] = stream["state"].get("subjects") or {}
    fullest = sorted(counts, key=lambda subject: (-counts[subject], subject))
    told = {subject: counts[subject] for subject in fullest[: settings.most_subjects]}
    if len(fullest) > len(told):
        told[OTHERS] = sum(counts.values()) - sum(told.values())
    sampled_at, kind = microseconds(stream["ts"]), stream["config"].get("retention")
    missing = {
        name: _UNTOLD.get(name, _OF_A_SUBJECT)
        for name in METRIC_NAMES
        if name not in ("depth", "queue_type", "staleness_seconds", "dead_letter_for")
    }
    return [
        Sample(f"{settings.queue_name}/{subject}", sampled_at, depth=count, queue_type=kind, unavailable=missing)
        for subject, count in told.items()
    ]
