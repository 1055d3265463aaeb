"""Where a span belongs: what it did, at which broker, to which queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from collectors.plumbing import is_plumbing
from collectors.receive.attributes import OPERATIONS, OUTCOMES, PUSHES
from collectors.receive.joins import Joins

PRODUCER, CONSUMER, CLIENT = 4, 5, 3  # opentelemetry.proto.trace.v1.Span.SpanKind
#: What a span may be; "" is no messaging span, or one that tells of no message.
Role = Literal["send", "process", "poll", "settle", ""]
#: So many different ones are kept: names come from outside.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Route:
    """What spans with the same attributes of :meth:`Routes.of` have in common; ``operation`` is how a settle ends."""

    role: str
    operation: str
    system: str
    broker: str
    queue: str


class Routes:
    """Routes by what spans say of themselves, each worked out once."""

    def __init__(self, joins: Joins) -> None:
        self._joins = joins
        self._known: dict[tuple[Any, ...], Route] = {}

    def of(self, found: dict[str, Any], kind: int) -> Route:
        """The route of a span of ``kind`` with the attributes ``found``."""
        told = found.get
        key = (  # the last four are names of an operation, in their order; one call each is quicker than a map
            told("system"),
            told("queue"),
            told("server"),
            told("port"),
            told("messaging.operation.type"),
            told("messaging.operation"),
            told("messaging.operation.name"),
            told("celery.action"),
            kind,
        )
        route = self._known.get(key)
        if route is None:
            route, settled = self._made(key, kind)
            if settled:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[key] = route
        return route

    def _made(self, key: tuple[Any, ...], kind: int) -> tuple[Route, bool]:
        """The route, and whether it stays: whose queue it is may not be known yet."""
        system, queue, host, port, *operations, _ = key
        if system is None and operations[-1] is not None:
            system = "celery"
        told = [operation.lower() for operation in operations if operation]
        known = [operation for operation in told if operation in OPERATIONS]
        role = OPERATIONS[known[0]] if known else {PRODUCER: "send", CONSUMER: "process"}.get(kind, "")
        if role == "poll" and kind == CONSUMER and system in PUSHES:
            role = "process"
        if not system or not queue or is_plumbing(queue):
            return Route("", "", "", "", ""), True
        ways = [operation for operation in known if operation in OUTCOMES and operation != "settle"]
        broker, queue, settled = self._joins.of(system, host, port, queue)
        return Route(role, ways[0] if ways else "", system, broker, queue), settled
