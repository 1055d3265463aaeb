"""What spans tell, while it is gathered: events, polls, and consumers' spans that may have to wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collectors.receive import events
from collectors.receive.lean import LeanRequest
from collectors.receive.publishes import Publish
from collectors.receive.routes import Route
from collectors.receive.rows import Row


@dataclass(frozen=True, slots=True)
class Poll:
    """One receive call; ``empty`` is None where the span does not say how many messages it brought."""

    broker: str
    queue: str
    subscriber: str | None
    empty: bool | None
    context: bytes


@dataclass(slots=True, eq=False)
class MessagingSpan:
    """A messaging span, read; of sends, which are told of at once, there is none.

    Times are nanoseconds; contexts are trace id and span id, 24 bytes together. ``raw`` is what came, within
    ``resource``, of a span that may have to wait for its producer's.
    """

    route: Route
    found: dict[str, Any]
    context: bytes
    above: bytes | None  # the parent's context
    producer: bytes | None  # the same, where it may be the producer's
    links: list[bytes]
    batch: int | None
    start: int
    end: int
    worker: str | None
    service: str | None
    ending: str = ""
    reason: str | None = None
    resource: bytes = b""
    raw: Any = None
    weight: int = 1  # how many messages it stands for, where its trace was sampled

    def encoded(self) -> bytes:
        """A request of OTLP with this span alone."""
        request = LeanRequest()
        within = request.resource_spans.add(resource=self.resource)
        within.scope_spans.add().spans.append(self.raw)
        encoded: bytes = request.SerializeToString()
        return encoded


@dataclass(slots=True)
class Told:
    """What one request told. ``refused`` holds (span, reason); ``messages`` counts what its spans stand for.

    ``weights`` has the traces that were sampled, and how many messages each of their events stands for. ``reports``
    are the client's summaries and polls, by the context of the span that held them.
    """

    rows: list[Row] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    publishes: list[Publish] = field(default_factory=list)
    refused: list[tuple[Any, str]] = field(default_factory=list)
    later: list[MessagingSpan] = field(default_factory=list)
    weights: dict[bytes, int] = field(default_factory=dict)
    reports: list[tuple[bytes, events.Sent]] = field(default_factory=list)
    spans: int = 0
    ignored: int = 0
    folded: int = 0
    messages: int = 0

    def weigh(self, context: bytes, weight: int) -> None:
        """The events of the span at ``context`` stand for ``weight`` messages each."""
        if weight > 1:
            self.weights[context[:16]] = weight
