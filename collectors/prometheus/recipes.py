"""Which metric of which broker is which column of a sample: one recipe for each, no code of its own.

Names are those that the brokers' documentation and exporters give. Artemis' are those of a page that a broker printed;
the others were not run against the real service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Reasons that hold of several.
_RATES = "told as a rate, not as a count"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one broker's metrics are read.

    ``queue``, ``subscriber``: the labels that name them. ``columns``: column → metrics of which the first that is there
    counts; several series of one queue (partitions, nodes) are summed, ages are the highest. ``within``: column → those
    that its metric counts as well, and that are taken off. ``dead``: the metric of a queue's own dead letters, which
    have no queue of another name. ``nobody``: what stands in place of a queue's name where there is none.
    ``partition``: what is cut off a queue's name, a regular expression. ``unknown``: column → why it is never told.
    """

    title: str
    queue: str
    columns: Mapping[str, tuple[str, ...]]
    subscriber: str | None = None
    within: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dead: str | None = None
    nobody: frozenset[str] = frozenset()
    partition: str = r"(?!)"
    unknown: Mapping[str, str] = field(default_factory=dict)


def _pubsub(name: str) -> tuple[str, ...]:
    """As stackdriver_exporter calls it, and as Cloud Monitoring's own PromQL does."""
    return (
        f"stackdriver_pubsub_subscription_pubsub_googleapis_com_subscription_{name}",
        f"pubsub_googleapis_com:subscription_{name}",
    )


RECIPES = {
    "pulsar": Recipe(
        "Apache Pulsar",
        "topic",
        {
            "depth": ("pulsar_subscription_back_log",),
            "in_flight": ("pulsar_subscription_unacked_messages",),
            "delayed": ("pulsar_subscription_delayed",),
            "consumers": ("pulsar_subscription_consumers_count",),
        },
        subscriber="subscription",
        within={"depth": ("in_flight", "delayed")},
        partition=r"-partition-\d+$",
        unknown={
            "oldest_age_seconds": "Pulsar's metrics of a subscription tell no age",
            "acked_total": _RATES,
            "delivered_total": _RATES,
            "redelivered_total": _RATES,
            "published_total": "told of a topic, not of a subscription",
        },
    ),
    "artemis": Recipe(
        "ActiveMQ Artemis",
        "queue",
        {
            "depth": ("artemis_message_count",),
            "in_flight": ("artemis_delivering_message_count",),
            "delayed": ("artemis_scheduled_message_count",),
            "consumers": ("artemis_consumer_count",),
            "published_total": ("artemis_messages_added", "artemis_messages_added_total"),
            "acked_total": ("artemis_messages_acknowledged", "artemis_messages_acknowledged_total"),
        },
        within={"depth": ("in_flight", "delayed")},
        unknown={
            "oldest_age_seconds": "Artemis' metrics tell no age",
            "delivered_total": "Artemis counts what was acknowledged, not what was delivered",
            "redelivered_total": "Artemis does not count it",
        },
    ),
    "pubsub": Recipe(
        "Google Pub/Sub",
        "subscription_id",
        {
            "depth": _pubsub("num_undelivered_messages"),
            "in_flight": _pubsub("num_outstanding_messages"),
            "oldest_age_seconds": _pubsub("oldest_unacked_message_age"),
        },
        within={"depth": ("in_flight",)},
        unknown={
            "delayed": "Pub/Sub has no delayed messages",
            "consumers": "Pub/Sub does not tell its subscribers' clients",
            "acked_total": "told as what was acknowledged in a minute, not as a count",
            "delivered_total": "told as what was sent in a minute, not as a count",
            "redelivered_total": "Pub/Sub does not count it",
            "published_total": "told of a topic, not of a subscription",
        },
    ),
    "servicebus": Recipe(
        "Azure Service Bus",
        "metadata_entityname",
        {"depth": ("azure_activemessages_average",), "delayed": ("azure_scheduledmessages_average",)},
        dead="azure_deadletteredmessages_average",
        nobody=frozenset({"-NamespaceOnlyMetric-"}),
        unknown={
            "in_flight": "Service Bus counts what is locked among the active messages",
            "oldest_age_seconds": "Azure Monitor tells no age",
            "consumers": "told of the namespace, not of a queue",
            "acked_total": "told as what was completed in a minute, not as a count",
            "delivered_total": "told as what was sent in a minute, not as a count",
            "redelivered_total": "Service Bus does not count it",
            "published_total": "told as what came in a minute, not as a count",
        },
    ),
}
