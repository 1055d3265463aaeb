"""From the Prometheus endpoint's text (``/metrics/detailed`` of rabbitmq_prometheus) to samples: pure, no I/O.

Only the blocks of the wanted metrics are looked at, and a queue's labels are parsed once: 10,000 queues take 50 ms.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collectors.rabbitmq.names import OURS, Key, queue_name
from collectors.rabbitmq.parse import NO_TIMEOUT, PUSHED, UNLIMITED, Reading, held_back
from collectors.samples import NO_LOG, UNSPLIT, Sample, unread

_METRICS = {
    "depth": "rabbitmq_detailed_queue_messages_ready",
    "in_flight": "rabbitmq_detailed_queue_messages_unacked",
    "consumers": "rabbitmq_detailed_queue_consumers",
}
_IDENTITY = "rabbitmq_identity_info"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: RabbitMQ up to at least 3.10 escapes nothing: a quotation mark in a queue's name does not end it.
_QUEUE = re.compile(r'vhost="(.*?)",queue="(.*)"')
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
    "lost_total": "RabbitMQ does not count what a length limit or an expiry drops",
    **NO_LOG,
    **UNSPLIT,
}


@dataclass(frozen=True, slots=True)
class Told:
    """What the nodes' metrics tell: metric → value of each queue, our own left out; who they are."""

    queues: Mapping[Key, Mapping[str, int]]
    nodes: frozenset[str]
    clusters: frozenset[str]


class Exposition:
    """Reads one answer after the other; remembers which labels name which queue."""

    def __init__(self) -> None:
        self._keys: dict[str, Key | None] = {}

    def read(self, answers: Sequence[bytes], listed: Collection[Key] = ()) -> Told:
        """What the answers of all nodes tell together; what is no metric of a queue is passed over."""
        found: dict[Key, dict[str, int]] = {}
        identities: list[dict[str, str]] = []
        keys: dict[str, Key | None] = {}
        for answer in answers:
            text = answer.decode("utf-8", "replace")
            identities.append(_identity(text))
            for name, metric in _METRICS.items():
                for labels, value in _lines(text, metric):
                    if labels not in keys:
                        keys[labels] = self._keys[labels] if labels in self._keys else _key(labels, listed)
                    key = keys[labels]
                    if key is not None:
                        found.setdefault(key, {})[name] = value
        # Forgets the queues that are gone, and what the next listing may tell better.
        self._keys = {labels: key for labels, key in keys.items() if "\\" not in labels}
        nodes, clusters = (
            frozenset(identity[label] for identity in identities if label in identity)
            for label in ("rabbitmq_node", "rabbitmq_cluster")
        )
        return Told(found, nodes, clusters)


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
    found = []
    for key in keys:
        sample = _sample(queue_name(key, vhosts), key, told.get(key), types.get(key), reading, untyped)
        found.append(held_back(sample) if key in reading.links.delays else sample)
    return found


def _sample(
    queue: str, key: Key, told: Mapping[str, int] | None, queue_type: str | None, reading: Reading, untyped: str
) -> Sample:
    serves = reading.links.serves.get(key)
    if told is None or "depth" not in told or "in_flight" not in told:
        reason = "no node's metrics tell of it: just declared, deleted since it was listed, or its node is not read"
        return unread(queue, reading.sampled_at, reason, dead_letter_for=serves)
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
        unavailable=reading.shared(missing),
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
            labels, closed, value = line[len(metric) + 1 :].rpartition("} ")
            if closed and value.isdigit():
                yield labels, int(value)
        start = text.find(f"# TYPE {metric} ", end) if end >= 0 else -1


def _identity(text: str) -> dict[str, str]:
    """The node and the cluster that the metrics are of, where they say so."""
    start = text.find(f"\n{_IDENTITY}{{")
    return dict(_LABEL.findall(text[start : text.find("\n", start + 1)])) if start >= 0 else {}


def _key(labels: str, listed: Collection[Key]) -> Key | None:
    """The queue that ``labels`` name; None if they name none, or one of ours.

    Where a backslash leaves open whether the node escapes, the name that is ``listed`` is meant.
    """
    match = _QUEUE.fullmatch(labels)
    if match is None or match[2].startswith(OURS):
        return None
    raw = (match[1], match[2])
    plain = (_ESCAPED.sub(_unescape, match[1]), _ESCAPED.sub(_unescape, match[2]))
    return plain if raw not in listed and plain in listed else raw


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
