"""From the answers of SQS to samples. Pure: no clock, no network.

The names are those of the Amazon SQS API Reference (GetQueueAttributes, ListQueues).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from brokers.sqs.answers import Refusal
from brokers.texts import loads
from collectors.samples import NO_LOG, UNSPLIT, Sample
from collectors.sqs.cloudwatch import FIELDS, Told
from collectors.sqs.settings import SqsBroker

#: What is asked of each queue. Not FifoQueue, which a standard queue refuses: a FIFO queue's name ends with .fifo.
ATTRIBUTES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "VisibilityTimeout",
    "RedrivePolicy",
)
_COUNTS = {
    "depth": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
    "visibility_timeout_seconds": "VisibilityTimeout",
}
#: What neither SQS nor CloudWatch tells of any queue, and why.
_UNTOLD = {
    "consumers": "SQS does not know its consumers: they poll",
    "polls_total": "SQS counts the empty receives alone",
    "redelivered_total": "SQS tells receive counts of single messages alone",
    "prefetch": "each client chooses how many messages it receives at once",
    "consumer_utilisation_ratio": "SQS does not measure it",
    "publish_latency_seconds": "not probed: a probe would add to the user's queues",
    "retention_margin": "SQS deletes by age, not by number",
    "state": "SQS has no states",
    "status": "not judged",
    "lost_total": "SQS does not count what its retention deletes",
    **NO_LOG,
    **UNSPLIT,
}
#: The Amazon SQS Developer Guide, on dead-letter queues: messages that SQS moves there are not counted as sent.
_MOVED = "CloudWatch does not count the messages that SQS moves to a dead-letter queue"
_NAMED_SOURCES = 100


def queue_name(address: str) -> str:
    """A queue's name: the last part of its address or ARN."""
    return address.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1]


def page(answer: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Addresses of queues, and the token of the next page; ValueError if the answer is not a listing."""
    addresses, token = answer.get("QueueUrls") or [], answer.get("NextToken")
    if not isinstance(addresses, list) or not all(isinstance(one, str) and queue_name(one) for one in addresses):
        raise ValueError("QueueUrls")
    return addresses, token if isinstance(token, str) and token else None


def attributes(answer: Mapping[str, Any]) -> dict[str, Any] | Refusal:
    """A queue's attributes; a refusal if there are none of those that were asked for."""
    held = answer.get("Attributes")
    if isinstance(held, dict) and any(name in held for name in _COUNTS.values()):
        return held
    return Refusal("malformed", "the answer holds no attributes of a queue")


def dead_letter_queue(attributes: Mapping[str, Any]) -> str | None:
    """The queue that takes what fails too often, by the redrive policy; None where there is none."""
    try:
        target = loads(attributes["RedrivePolicy"])["deadLetterTargetArn"]
    except (KeyError, TypeError, ValueError):
        return None
    return queue_name(target) if isinstance(target, str) else None


def served(targets: Mapping[str, str]) -> dict[str, list[str]]:
    """Dead-letter queue → the queues that it serves, from queue → its dead-letter queue."""
    found: dict[str, list[str]] = {}
    for queue in sorted(targets):
        found.setdefault(targets[queue], []).append(queue)
    return found


def sample(
    broker: SqsBroker,
    queue: str,
    sampled_at: int,
    attributes: Mapping[str, Any],
    *,
    serves: Iterable[str] = (),
    told: Told,
) -> Sample:
    """One queue's sample; ``serves``: the queues whose dead letters it takes; ``told``: CloudWatch's part."""
    missing = dict(_UNTOLD)
    values: dict[str, Any] = {}
    for field, attribute in _COUNTS.items():
        values[field] = _count(attributes.get(attribute))
        if values[field] is None:
            missing[field] = f"the answer holds no sound {attribute}"
    for field in FIELDS:
        values[field] = told.values.get(field)
        if values[field] is None:
            missing[field] = told.reasons.get(field) or told.reason
    sources = list(serves)
    if sources and values["published_total"] is not None:
        values["published_total"], missing["published_total"] = None, _MOVED
    fifo = queue.endswith(".fifo")
    timeout = values.pop("visibility_timeout_seconds")
    return Sample(
        queue,
        sampled_at,
        **values,
        visibility_timeout_seconds=None if timeout is None else float(timeout),
        dead_letter_for=listed(sources),
        in_flight_limit=broker.fifo_in_flight_limit if fifo else broker.in_flight_limit,
        staleness_seconds=broker.convergence_seconds,
        queue_type="fifo" if fifo else "standard",
        unavailable=missing,
    )


def _count(told: Any) -> int | None:
    """A count as SQS writes it: digits in a string. None for anything else, and for what cannot be."""
    text = str(told) if isinstance(told, (str, int)) and not isinstance(told, bool) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def listed(queues: Iterable[str]) -> str | None:
    """Names with commas between, which no name of a queue holds; at most so many."""
    return ",".join(islice(queues, _NAMED_SOURCES)) or None
