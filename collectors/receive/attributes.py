"""Every span attribute that is read, under its old and current names: one table, which docs/otlp.md shows, too.

Names: OpenTelemetry semantic conventions for messaging, 1.11 to 1.38, those of Celery's instrumentation, and our own
(``sojourn.…``) for what no convention has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "integer"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One fact about a message and the names that it comes under; the first that is there counts."""

    fact: str
    kind: Kind
    names: tuple[str, ...]
    meaning: str


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("system", "text", ("messaging.system",), "the kind of broker, see below; a span without is ignored"),
    Attribute("queue", "text", ("messaging.destination.name", "messaging.destination"), "`queue`"),
    Attribute(
        "server", "text", ("server.address", "net.peer.name"), "which watched broker it is; see *One queue, one name*"
    ),
    Attribute("port", "integer", ("server.port", "net.peer.port"), "the same"),
    Attribute(
        "operation",
        "text",
        ("messaging.operation.type", "messaging.operation", "messaging.operation.name", "celery.action"),
        "what the span did, see below; without, the span's kind tells: PRODUCER send, CONSUMER process",
    ),
    Attribute(
        "message_id", "text", ("messaging.message.id", "messaging.message_id"), "`message_id`; see *Which message*"
    ),
    Attribute(
        "partition",
        "text",
        ("messaging.destination.partition.id", "messaging.kafka.destination.partition", "messaging.kafka.partition"),
        "with the offset, a message id of Kafka: `topic.partition.offset`",
    ),
    Attribute(
        "offset", "integer", ("messaging.kafka.offset", "messaging.kafka.message.offset"), "see the partition above"
    ),
    Attribute(
        "subscriber",
        "text",
        (
            "sojourn.subscriber",
            "messaging.consumer.group.name",
            "messaging.destination.subscription.name",
            "messaging.kafka.consumer.group",
            "messaging.kafka.consumer_group",
            "messaging.rabbitmq.consumer.group",
            "messaging.eventhubs.consumer.group",
            "messaging.servicebus.destination.subscription_name",
            "messaging.rocketmq.client_group",
        ),
        "`subscriber`",
    ),
    Attribute(
        "batch",
        "integer",
        ("messaging.batch.message_count", "messaging.batch_size"),
        "how many messages the span stands for; on a receive span, 0 is an empty poll",
    ),
    Attribute(
        "tenant", "text", ("sojourn.tenant",), "`tenant`; also read from the resource, and from the message's send span"
    ),
    Attribute(
        "enqueued_ns",
        "integer",
        ("sojourn.enqueued_at",),
        "`enqueued_at`, integer, unix **nanoseconds** (clock `producer`)",
    ),
    Attribute(
        "enqueued_s",
        "integer",
        ("messaging.servicebus.message.enqueued_time", "messaging.eventhubs.message.enqueued_time"),
        "`enqueued_at`, unix seconds (clock `broker`)",
    ),
    Attribute(
        "due",
        "text",
        ("sojourn.due_at", "celery.eta"),
        "when a message may first be received, unix **nanoseconds** or ISO 8601; see *Scheduled messages*",
    ),
    Attribute(
        "attempt",
        "integer",
        (
            "sojourn.attempt",
            "messaging.gcp_pubsub.message.delivery_attempt",
            "messaging.servicebus.message.delivery_count",
        ),
        "`attempt`, from 1",
    ),
    Attribute("retries", "integer", ("celery.retries",), "`attempt` − 1"),
    Attribute(
        "outcome",
        "text",
        ("sojourn.outcome", "messaging.servicebus.disposition_status"),
        "how the attempt ended: `completed`, `failed`, `dead_lettered`, `expired`, `sidelined`, `delayed`",
    ),
    Attribute("priority", "integer", ("sojourn.priority",), "`priority`"),
    Attribute("worker", "text", ("sojourn.worker",), "`worker`; else the resource's `service.name`"),
    Attribute(
        "summaries", "text", ("sojourn.summaries",), "rows of `event_summaries`, as our client's OTLP export has them"
    ),
    Attribute("polls", "text", ("sojourn.polls",), "polls, in the same way"),
    Attribute("publishes", "text", ("sojourn.publishes",), "publishes, in the same way"),
    Attribute("conflated", "integer", ("sojourn.conflated",), "how many events those summaries stand for"),
)

#: Facts that differ from message to message: not worth remembering.
#: Facts that are whole lists, as long as a request may be.
REPORTED = frozenset({"summaries", "polls", "publishes"})
_SINGLE = frozenset({"message_id", "offset", "enqueued_ns", "due"}) | REPORTED
#: Attribute name → (the fact; its place among the fact's names; whether it is a number; whether it differs from message
#: to message). The names of an operation are facts of their own: the first that is *known* counts.
FACTS: dict[str, tuple[str, int, bool, bool]] = {
    name: (
        name if fact.fact == "operation" else fact.fact,
        0 if fact.fact == "operation" else place,
        fact.kind == "integer",
        fact.fact in _SINGLE,
    )
    for fact in ATTRIBUTES
    for place, name in enumerate(fact.names)
}

#: ``messaging.system`` → the broker's name in records; any other is taken as it is.
SYSTEMS: dict[str, str] = {
    "aws.sqs": "sqs",
    "aws_sqs": "sqs",
    "AmazonSQS": "sqs",
    "rabbitmq": "rabbitmq",
    "kafka": "kafka",
    "redis": "redis",
    "nats": "nats",
    "celery": "celery",
}

#: Systems whose message ids only the consumer knows (an offset): the producer's context names the message instead.
OFFSET_IDS = frozenset({"kafka"})
#: Systems that push single messages and whose ``receive`` span covers their handling (pika, aio-pika).
PUSHES = frozenset({"rabbitmq"})

#: Operation, in lower case → what the span stands for.
OPERATIONS: dict[str, str] = {
    **dict.fromkeys(("send", "publish", "produce", "enqueue", "create", "apply_async"), "send"),
    **dict.fromkeys(("receive", "poll", "fetch"), "poll"),
    **dict.fromkeys(("process", "deliver", "consume", "handle", "run"), "process"),
    **dict.fromkeys(("settle", "ack", "acknowledge", "complete", "delete"), "settle"),
    **dict.fromkeys(("nack", "reject", "abandon", "defer", "dead_letter", "deadletter"), "settle"),
}

#: How a settle span, or an outcome told by attribute, ended the attempt.
OUTCOMES: dict[str, str] = {
    **dict.fromkeys(("completed", "settle", "ack", "acknowledge", "complete", "delete"), "completed"),
    **dict.fromkeys(("failed", "nack", "reject", "abandon"), "failed"),
    **dict.fromkeys(("dead_lettered", "dead_letter", "deadletter"), "dead_lettered"),
    **dict.fromkeys(("delayed", "defer"), "delayed"),
    "expired": "expired",
    "sidelined": "sidelined",
}


def markdown() -> str:
    """The tables of docs/otlp.md."""
    lines = ["| read from the span attribute (the first that is there) | is |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in fact.names)} | {fact.meaning} |" for fact in ATTRIBUTES]
    lines += ["", "| `messaging.system` | broker in records |", "|---|---|"]
    lines += [f"| `{system}` | `{name}` |" for system, name in SYSTEMS.items()]
    lines += ["", "| operation | the span is a |", "|---|---|"]
    roles = dict.fromkeys(OPERATIONS.values())
    for role in roles:
        lines.append(f"| {', '.join(f'`{name}`' for name, its in OPERATIONS.items() if its == role)} | {role} |")
    return "\n".join(lines) + "\n"
