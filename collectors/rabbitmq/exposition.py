"""From the Prometheus endpoint's text (``/metrics/detailed`` of rabbitmq_prometheus) to samples: pure, no I/O.

Only the blocks of the wanted metrics are looked at, and a queue's labels are parsed once: 10,000 queues take 50 ms.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from collectors.rabbitmq.names import OURS, Key, queue_name
from collectors.rabbitmq.parse import NO_TIMEOUT, PUSHED, UNLIMITED, Reading
from collectors.samples import Sample, unread

_METRICS = {
    "depth": "rabbitmq_detailed_queue_messages_ready",
    "in_flight": "rabbitmq_detailed_queue_messages_unacked",
    "consumers": "rabbitmq_detailed_queue_consumers",
}
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

_ASK_MANAGEMENT = "not among the Prometheus metrics that are read: set api = 'management' to have it, at its price"
_BY_CHANNEL = "RabbitMQ's Prometheus metrics count by channel, and forget what a closed one did: set api = 'management'"
#: What the endpoint tells of no queue, and why.
_UNTOLD = {
    "delayed": "RabbitMQ's queues hold no delayed messages; the plugin for them holds them in its exchange",
    "oldest_age_seconds": _ASK_MANAGEMENT,
    "polls_total": PUSHED,
    "empty_polls_total": PUSHED,
    "published_total": _BY_CHANNEL,
    "delivered_total": _BY_CHANNEL,
    "acked_total": _BY_CHANNEL,
    "redelivered_total": _BY_CHANNEL,
    "in_flight_limit": "RabbitMQ limits each consumer, by its prefetch, and not the queue",
    "visibility_timeout_seconds": NO_TIMEOUT,
    "consumer_utilisation_ratio": _ASK_MANAGEMENT,
    "publish_latency_seconds": f"measured once for the broker: see the row {OURS}",
    "retention_margin": "RabbitMQ does not tell how near a queue or stream is to dropping unread messages",
    "state": _ASK_MANAGEMENT,
    "status": "not judged",
}


class Exposition:
    """Reads one answer after the other; remembers which labels name which queue."""

    def __init__(self) -> None:
        self._keys: dict[str, Key | None] = {}

    def read(self, answers: Sequence[bytes]) -> dict[Key, dict[str, int]]:
        """Metric name → value of each queue that some node told of, our own left out."""
        found: dict[Key, dict[str, int]] = {}
        keys: dict[str, Key | None] = {}
        for answer in answers:
            text = answer.decode("utf-8", "replace")
            for name, metric in _METRICS.items():
                for labels, value in _lines(text, metric):
                    if labels not in keys:
                        keys[labels] = self._keys[labels] if labels in self._keys else _key(labels)
                    key = keys[labels]
                    if key is not None:
                        found.setdefault(key, {})[name] = value
        self._keys = keys  # forgets the queues that are gone
        return found


def samples(
    told: Mapping[Key, Mapping[str, int]],
    types: Mapping[Key, str | None],
    reading: Reading,
    untyped: str,
) -> list[Sample]:
    """A sample of each queue told of, or listed: ``types`` holds every queue of the last listing.

    ``untyped`` says why a queue's type may not be known.
    """
    keys: Collection[Key] = dict.fromkeys((*told, *types))
    vhosts = {vhost for vhost, _ in keys}
    return [_sample(queue_name(key, vhosts), key, told.get(key), types.get(key), reading, untyped) for key in keys]


def _sample(
    queue: str, key: Key, told: Mapping[str, int] | None, queue_type: str | None, reading: Reading, untyped: str
) -> Sample:
    if told is None or "depth" not in told or "in_flight" not in told:
        reason = "no node's metrics tell of it: just declared, deleted since it was listed, or its node is not read"
        return unread(queue, reading.sampled_at, reason)
    missing = dict(_UNTOLD)
    depth: int | None = told["depth"]
    if queue_type == "stream":
        depth, missing["depth"] = None, "a stream keeps what was read: each reader's offset is not told"
    if queue_type is None:
        missing["queue_type"] = untyped
    if "consumers" not in told:
        missing["consumers"] = "not told of this queue"
    if (timeout := reading.links.timeouts.get(key)) is not None:
        del missing["visibility_timeout_seconds"]
    prefetch = reading.links.prefetch.get(key)
    if not prefetch:
        missing["prefetch"] = reading.links.no_prefetch if prefetch is None else UNLIMITED
    serves = reading.links.serves.get(key)
    if serves is None and key in reading.links.unserved:
        missing["dead_letter_for"] = reading.links.unserved[key]
    age = 0.0 if queue_type in ("classic", "quorum") and told["depth"] + told["in_flight"] == 0 else None
    if age is not None:
        del missing["oldest_age_seconds"]
    return Sample(
        queue,
        reading.sampled_at,
        depth=depth,
        in_flight=told["in_flight"],
        oldest_age_seconds=age,
        consumers=told.get("consumers"),
        dead_letter_for=serves,
        prefetch=prefetch or None,
        visibility_timeout_seconds=timeout,
        queue_type=queue_type,
        staleness_seconds=reading.staleness_seconds,
        unavailable=missing,
    )


def _lines(text: str, metric: str) -> Iterator[tuple[str, int]]:
    """(labels, value) of each line of one metric; lines whose value is no count are left out."""
    start = text.find(f"# TYPE {metric} ")
    while start >= 0:
        start = text.find(f"\n{metric}{{", start)
        if start < 0:
            return
        end = text.find("\n#", start + 1)
        for line in text[start + 1 : end if end >= 0 else len(text)].split("\n"):
            labels, closed, value = line[len(metric) :].rpartition("} ")
            if closed and value.isdigit():
                yield labels, int(value)
        start = text.find(f"# TYPE {metric} ", end) if end >= 0 else -1


def _key(labels: str) -> Key | None:
    """The queue that ``labels`` name; None if they name none, or one of ours."""
    found = {name: _ESCAPED.sub(_unescape, value) for name, value in _LABEL.findall(labels)}
    vhost, queue = found.get("vhost"), found.get("queue")
    if vhost is None or queue is None or queue.startswith(OURS):
        return None
    return vhost, queue


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
