"""Which queue a dead-letter queue serves, from what queues, policies, exchanges and bindings declare. No I/O.

A queue's ``dead-letter-exchange`` (its own argument wins over its policy's) is followed through bindings, and through
exchanges bound to exchanges, to the queues where its dead letters end. What a dead-letter queue serves is the
*beginning* of its chain: of orders → orders.dead → orders.parked both latter serve orders. A chain may lead back: a
retry queue, whose messages expire into the queue that they came from, serves that queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.rabbitmq.names import Key

#: The longest chain of exchanges, and of dead-letter queues, that is followed.
LONGEST_CHAIN = 16
#: More queues than this behind one dead-letter queue are not followed one by one.
_MOST_SERVED = 10_000


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where one queue sends what it gives up: an exchange, and the routing key that replaces the message's own."""

    exchange: str
    routing_key: str | None
    expires: bool


@dataclass(slots=True)
class Exchanges:
    """The exchanges' types and what is bound to each: (routing key, destination is a queue, destination)."""

    types: dict[Key, str] = field(default_factory=dict)
    bound: dict[Key, list[tuple[str, bool, str]]] = field(default_factory=lambda: defaultdict(list))
    keys_of: dict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, exchanges: Iterable[Any], bindings: Iterable[Any]) -> Exchanges:
        """From the management API's lists; what is not whole is left out."""
        found = cls()
        for exchange in exchanges:
            if isinstance(exchange, dict):
                found.types[str(exchange.get("vhost")), str(exchange.get("name"))] = str(exchange.get("type"))
        for binding in bindings:
            if not isinstance(binding, dict) or not binding.get("source"):
                continue  # every queue is bound to the default exchange, by its name
            vhost, source, destination = (str(binding.get(name)) for name in ("vhost", "source", "destination"))
            to_queue, routing_key = binding.get("destination_type") == "queue", str(binding.get("routing_key", ""))
            found.bound[vhost, source].append((routing_key, to_queue, destination))
            if to_queue:
                found.keys_of[vhost, destination].add(routing_key)
        return found

    def reached(self, vhost: str, exchange: str, routing_keys: frozenset[str]) -> set[str]:
        """The queues in which a message with one of ``routing_keys`` may end."""
        queues: set[str] = set()
        seen, ahead = {exchange}, [exchange]
        for _ in range(LONGEST_CHAIN):
            here, ahead = ahead, []
            for name in here:
                if name == "":
                    queues |= routing_keys
                    continue
                kind = self.types.get((vhost, name), "")
                for pattern, to_queue, destination in self.bound.get((vhost, name), ()):
                    if not any(_matches(kind, pattern, key) for key in routing_keys):
                        continue
                    if to_queue:
                        queues.add(destination)
                    elif destination not in seen:
                        seen.add(destination)
                        ahead.append(destination)
        return queues


def dead_letters(arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> DeadLetters | None:
    """What a queue's own arguments and its policy's definition say; None where it drops what it gives up."""

    def declared(name: str) -> Any:
        return arguments.get(f"x-{name}", policy.get(name))

    exchange = declared("dead-letter-exchange")
    if not isinstance(exchange, str):
        return None
    routing_key = declared("dead-letter-routing-key")
    return DeadLetters(
        exchange, routing_key if isinstance(routing_key, str) else None, declared("message-ttl") is not None
    )


def delays(sources: Mapping[Key, DeadLetters]) -> frozenset[Key]:
    """Queues in which Dramatiq keeps what is not due: NAME.DQ, whose dead letters go to NAME.XQ as NAME's own do."""
    return frozenset(
        (vhost, name)
        for (vhost, name), letters in sources.items()
        if name.endswith(".DQ") and letters.exchange == "" and letters.routing_key == f"{name.removesuffix('.DQ')}.XQ"
    )


def targets(sources: Mapping[Key, DeadLetters], there: Iterable[Key], exchanges: Exchanges) -> dict[Key, set[Key]]:
    """Dead-letter queue → the queues whose dead letters reach it directly; only queues that are ``there``."""
    known = set(there)
    found: dict[Key, set[Key]] = defaultdict(set)
    for source, letters in sources.items():
        vhost, name = source
        if letters.routing_key is not None:
            keys = frozenset((letters.routing_key,))
        else:  # the message keeps the keys it came with: those that the queue is bound by, and its name
            keys = frozenset((name, *exchanges.keys_of.get(source, ())))
        for queue in exchanges.reached(vhost, letters.exchange, keys):
            if (vhost, queue) in known and (vhost, queue) != source:
                found[vhost, queue].add(source)
    return dict(found)


def served(sources: Mapping[Key, DeadLetters], direct: Mapping[Key, set[Key]]) -> dict[Key, set[Key]]:
    """Dead-letter queue → the queues at the beginning of its chains; empty where it is only part of a circle."""
    behind = {queue: set(before) for queue, before in direct.items()}
    for queue, before in direct.items():
        for source in before:
            # Messages that expire from ``source`` and come back to where they came from are retried, not given up.
            if sources[source].expires and not _expires(sources, queue) and _leads(behind, queue, source):
                behind[queue].discard(source)
    return {queue: _beginnings(behind, queue) for queue, before in behind.items() if before}


def _expires(sources: Mapping[Key, DeadLetters], queue: Key) -> bool:
    letters = sources.get(queue)
    return letters is not None and letters.expires


def _leads(behind: Mapping[Key, set[Key]], start: Key, end: Key) -> bool:
    """Whether dead letters of ``start`` reach ``end``."""
    return start in _walk(behind, end)


def _beginnings(behind: Mapping[Key, set[Key]], queue: Key) -> set[Key]:
    return {one for one in _walk(behind, queue) if not behind.get(one)}


def _walk(behind: Mapping[Key, set[Key]], queue: Key) -> set[Key]:
    """Every queue whose dead letters reach ``queue``, as far as the bounds allow."""
    seen: set[Key] = set()
    ahead = list(behind.get(queue, ()))
    for _ in range(LONGEST_CHAIN):
        here = [one for one in ahead if one not in seen]
        seen.update(here)
        if not here or len(seen) > _MOST_SERVED:
            break
        ahead = [one for name in here for one in behind.get(name, ())]
    return seen


def _matches(kind: str, pattern: str, key: str) -> bool:
    """Whether an exchange of ``kind`` routes ``key`` to a binding by ``pattern``; both may hold a topic's wildcards."""
    if kind == "fanout" or kind == "headers":  # which headers a message has is not known: it may reach any
        return True
    if kind == "topic":
        return _topic(tuple(pattern.split(".")), tuple(key.split(".")))
    return pattern == key


def _topic(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """A topic exchange's rule: * is one word, # any number of them (AMQP 0-9-1, section 3.1.3.3)."""
    reach = {0}  # how many words of the key the pattern so far may have used up
    for word in pattern:
        if word == "#":
            reach = set(range(min(reach), len(key) + 1))
        else:
            reach = {at + 1 for at in reach if at < len(key) and word in ("*", key[at])}
        if not reach:
            return False
    return len(key) in reach
