"""What is read rarely, as it seldom changes: what queues there are, whom dead-letter queues serve, prefetch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.rabbitmq.client import Client
from collectors.rabbitmq.names import Key, queue_name
from collectors.rabbitmq.parse import Links, key_of
from collectors.rabbitmq.topology import DeadLetters, Exchanges, dead_letters, delays, served, targets

log = logging.getLogger(__name__)

#: The most queues that a dead-letter queue is said to serve, by their names with commas between.
_NAMED = 100
_NOT_LISTED = "the consumers cannot be listed: "


@dataclass(frozen=True, slots=True)
class Listing:
    """Every queue's type, the nodes that they are on, and what links them."""

    types: Mapping[Key, str | None]
    nodes: frozenset[str]
    links: Links


def read_listing(client: Client) -> Listing:
    """The queues as they were declared; ConnectionLost or CredentialsRefused if not even they can be listed."""
    rows = {key: row for row in client.queues() if (key := key_of(row)) is not None}
    sources: dict[Key, DeadLetters] = {}
    timeouts: dict[Key, float] = {}
    policies = _policies(client) if any(row.get("policy") for row in rows.values()) else {}
    for key, row in rows.items():
        arguments = row.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        policy = policies.get((key[0], str(row.get("policy"))), {})
        if (letters := dead_letters(arguments, policy)) is not None:
            sources[key] = letters
        timeout = arguments.get("x-consumer-timeout", policy.get("consumer-timeout"))
        if isinstance(timeout, int) and timeout > 0:
            timeouts[key] = timeout / 1000
    serves, unserved = _dead_letters(client, sources, list(rows))
    prefetch, no_prefetch = _prefetch(client)
    return Listing(
        types={key: row["type"] if isinstance(row.get("type"), str) else None for key, row in rows.items()},
        nodes=frozenset(str(row["node"]) for row in rows.values() if row.get("node")),
        links=Links(serves, unserved, timeouts, prefetch, no_prefetch, delays(sources)),
    )


def _policies(client: Client) -> dict[Key, dict[str, Any]]:
    try:
        policies = client.policies()
    except (ConnectionLost, CredentialsRefused) as error:
        log.warning("policies are not known: %s", error)
        return {}
    found = {}
    for policy in policies:
        if isinstance(policy, dict) and isinstance(policy.get("definition"), dict):
            found[str(policy.get("vhost")), str(policy.get("name"))] = policy["definition"]
    return found


def _prefetch(client: Client) -> tuple[dict[Key, int], str]:
    """The largest prefetch of each queue's consumers, 0 where one has no limit; why one may be missing."""
    prefetch: dict[Key, int] = {}
    try:
        consumers = client.consumers()
    except (ConnectionLost, CredentialsRefused) as error:
        log.warning("prefetch is not known: %s", error)
        return {}, f"{_NOT_LISTED}{error}"
    for consumer in consumers:
        key = key_of(consumer.get("queue")) if isinstance(consumer, dict) else None
        count = consumer.get("prefetch_count") if isinstance(consumer, dict) else None
        if key is not None and isinstance(count, int):
            before = prefetch.get(key, count)
            prefetch[key] = 0 if 0 in (before, count) else max(before, count)
    return prefetch, Links().no_prefetch


def _dead_letters(
    client: Client, sources: Mapping[Key, DeadLetters], keys: Sequence[Key]
) -> tuple[dict[Key, str], dict[Key, str]]:
    exchanges = Exchanges()
    if any(letters.exchange for letters in sources.values()):  # the default exchange needs no bindings
        try:
            exchanges = Exchanges.of(client.exchanges(), client.bindings())
        except (ConnectionLost, CredentialsRefused) as error:
            log.warning("dead-letter exchanges cannot be followed: %s", error)
    vhosts = {vhost for vhost, _ in keys}
    serves, unserved = {}, {}
    for queue, beginnings in served(sources, targets(sources, keys, exchanges)).items():
        names = sorted(queue_name(key, vhosts) for key in beginnings)
        listable = [name for name in names if "," not in name][:_NAMED]
        if listable:
            serves[queue] = ",".join(listable)
        elif names:
            unserved[queue] = "the queue that it serves has a comma in its name, which parts the names here"
        else:
            unserved[queue] = "it is part of a circle of dead-letter queues"
    return serves, unserved
