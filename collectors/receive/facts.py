"""What the attributes of one span say, in the types of our records; what makes no sense is as if it were not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collectors.receive.attributes import OUTCOMES
from collectors.receive.lean import OTHER, Attributes, DecodeError
from collectors.receive.routes import Route
from collectors.timestamps import unix_microseconds

LATEST = 253_402_214_400_000_000_000  # 9999-12-31, nanoseconds
_INT32 = 2**31
_ERROR, _OK = 2, 1  # opentelemetry.proto.trace.v1.Status.StatusCode
_LONGEST_REASON = 500


class Refused(Exception):
    """A messaging span that cannot be understood."""


def found_in(attributes: Sequence[bytes], known: Attributes) -> dict[str, Any]:
    """The facts that a span's attributes tell: texts and whole numbers, never empty."""
    attributes = attributes[:]  # as a list: to go through protobuf's own is twice as slow
    try:
        found = dict(map(known.__getitem__, attributes))
    except DecodeError:
        raise Refused("an attribute of the span cannot be read") from None
    if OTHER in found:
        del found[OTHER]
        others = [told for fact, told in map(known.__getitem__, attributes) if fact == OTHER]
        for _, fact, value in sorted(others, key=itemgetter(0)):
            found.setdefault(fact, value)
    return found


def message_id(found: dict[str, Any]) -> str | None:
    """The message's id where the span gives one."""
    explicit: str | None = found.get("message_id")
    if explicit is None and "offset" in found:
        explicit = f"{found['queue']}.{found.get('partition', '0')}.{found['offset']}"
    return explicit


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a span tells of its message in numbers, times in microseconds; ``clock`` tells whose ``enqueued_at`` is."""

    attempt: int | None = None
    priority: int | None = None
    enqueued_at: int | None = None
    clock: str = "producer"
    due_at: int | None = None

    def waits_since(self, sent: int | None, clock: str) -> tuple[int | None, str]:
        """Since when a message waits, and by whose clock: since it was sent, or is due where that is later."""
        due = self.due_at
        return (due, "producer") if due is not None and (sent is None or due > sent) else (sent, clock)


_NO_NUMBERS = Numbers()
_NUMBERED = frozenset({"attempt", "retries", "priority", "enqueued_ns", "enqueued_s", "due"})


def numbers(found: dict[str, Any]) -> Numbers:
    """The numbers that make sense; most spans have none."""
    if _NUMBERED.isdisjoint(found):
        return _NO_NUMBERS
    return Numbers(_attempt(found), _priority(found), *_enqueued_at(found), _due_at(found))


def _attempt(found: dict[str, Any]) -> int | None:
    """The attempt's number, from 1."""
    number: int | None = found.get("attempt")
    if number is None:
        if "retries" not in found:
            return None
        number = int(found["retries"]) + 1
    return number if 1 <= number < _INT32 else None


def _priority(found: dict[str, Any]) -> int | None:
    """The message's priority."""
    number: int | None = found.get("priority")
    return number if number is not None and -_INT32 <= number < _INT32 else None


def _enqueued_at(found: dict[str, Any]) -> tuple[int | None, str]:
    """(microseconds, whose clock) of the enqueue time as attributes tell it."""
    nanoseconds = found.get("enqueued_ns")
    if nanoseconds is not None:
        return (nanoseconds // 1000 if 0 < nanoseconds < LATEST else None), "producer"
    seconds = found.get("enqueued_s")
    if seconds is not None and 0 < seconds < LATEST // 10**9:
        return seconds * 1_000_000, "broker"
    return None, "producer"


def _due_at(found: dict[str, Any]) -> int | None:
    """Microseconds of the time before which nobody may receive the message; None where it is not scheduled."""
    told = found.get("due")
    if told is None:
        return None
    if told.isascii() and told.isdigit():
        return int(told) // 1000 if len(told) < 19 or int(told) < LATEST else None
    read = unix_microseconds(told)
    return None if read is None or not 0 < read < LATEST // 1000 else round(read)


def status(encoded: bytes) -> Any:
    """A span's status."""
    return _decoded(Status, encoded)


def went_wrong(encoded: bytes) -> bool:
    """Whether the span with this status failed."""
    return bool(encoded) and status(encoded).code == _ERROR


def links(encoded: Iterable[bytes]) -> list[bytes]:
    """The contexts that a span links to, each once: 16 bytes trace id, 8 bytes span id."""
    contexts = []
    for one in encoded:
        link = _decoded(Span.Link, one)
        if len(link.trace_id) == 16 and len(link.span_id) == 8:
            contexts.append(link.trace_id + link.span_id)
    return list(dict.fromkeys(contexts))


def ending(span: Any, route: Route, found: dict[str, Any]) -> tuple[str, str | None]:
    """How the attempt that ``span`` tells of ended, and why; Refused for an outcome that there is not."""
    failed, reason, settled = False, None, False
    if span.status:
        told = status(span.status)
        failed, settled = told.code == _ERROR, told.code == _OK
        reason = (told.message[:_LONGEST_REASON] or None) if failed else None
    if not settled and span.events:
        for encoded in span.events:
            event = _decoded(Span.Event, encoded)
            if event.name == "exception":
                failed, reason = True, reason or _exception(event)
    outcome = found.get("outcome") or (route.operation if route.role == "settle" else "")
    if outcome:
        known = OUTCOMES.get(outcome.lower())
        if known is None:
            raise Refused("sojourn.outcome is none of completed, failed, dead_lettered, expired, sidelined, delayed")
        return known, reason
    return ("failed" if failed else "completed"), reason


def _decoded(message: Any, encoded: bytes) -> Any:
    try:
        return message.FromString(encoded)
    except DecodeError:
        raise Refused("a part of the span cannot be read") from None


def _exception(event: Any) -> str | None:
    told = {pair.key: pair.value.string_value for pair in event.attributes}
    parts = [told[name] for name in ("exception.type", "exception.message") if told.get(name)]
    return ": ".join(parts)[:_LONGEST_REASON] or None
