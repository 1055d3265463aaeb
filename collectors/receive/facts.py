"""What the attributes of one span say, in the types of our records; what makes no sense is as if it were not there."""

from __future__ import annotations

from typing import Any

from collectors.receive.attributes import NAMES, OUTCOMES, WANTED
from collectors.receive.routes import Route

LATEST = 253_402_214_400_000_000_000  # 9999-12-31, nanoseconds
_INT32 = 2**31
_ERROR, _OK = 2, 1  # opentelemetry.proto.trace.v1.Status.StatusCode
_LONGEST_REASON = 500
_LONGEST_NUMBER = 19  # digits


class Refused(Exception):
    """A messaging span that cannot be understood."""


def wanted(attributes: Any) -> dict[str, Any]:
    """The attributes that are read, by name: texts and whole numbers, never empty."""
    found: dict[str, Any] = {}
    for pair in attributes:
        name = pair.key
        numeric = WANTED.get(name)
        if numeric is None:
            continue
        if numeric:
            number = _integer(pair.value)
            if number is not None:
                found[name] = number
            continue
        text = pair.value.string_value or _text(pair.value)
        if text:
            found[name] = text
    return found


def resource(attributes: Any) -> tuple[str | None, str | None]:
    """(service.name, sojourn.tenant) of a resource."""
    told = {pair.key: pair.value.string_value for pair in attributes}
    return told.get("service.name") or None, told.get("sojourn.tenant") or None


def first(found: dict[str, Any], fact: str) -> Any:
    """What ``found`` holds under the first of the fact's names that is there; None where none is."""
    for name in NAMES[fact]:
        if name in found:
            return found[name]
    return None


def message_id(found: dict[str, Any]) -> str | None:
    """The message's id where the span gives one."""
    explicit: str | None = found.get("messaging.message.id") or found.get("messaging.message_id")
    if explicit is None:
        offset = first(found, "offset")
        if offset is not None:
            queue = found.get("messaging.destination.name") or found.get("messaging.destination")
            explicit = f"{queue}.{first(found, 'partition') or 0}.{offset}"
    return explicit


def attempt(found: dict[str, Any]) -> int | None:
    """The attempt's number, from 1."""
    number: int | None = first(found, "attempt")
    if number is None and "celery.retries" in found:
        number = found["celery.retries"] + 1
    return number if number is not None and 1 <= number < _INT32 else None


def priority(found: dict[str, Any]) -> int | None:
    """The message's priority."""
    number: int | None = found.get("sojourn.priority")
    return number if number is not None and -_INT32 <= number < _INT32 else None


def enqueued_at(found: dict[str, Any]) -> tuple[int | None, str]:
    """(microseconds, whose clock) of the enqueue time as attributes tell it."""
    nanoseconds = found.get("sojourn.enqueued_at")
    if nanoseconds is not None:
        return (nanoseconds // 1000 if 0 < nanoseconds < LATEST else None), "producer"
    seconds = first(found, "enqueued_s")
    if seconds is not None and 0 < seconds < LATEST // 10**9:
        return seconds * 1_000_000, "broker"
    return None, "producer"


def ending(span: Any, route: Route, found: dict[str, Any]) -> tuple[str, str | None]:
    """How the attempt that ``span`` tells of ended, and why; Refused for an outcome that there is not."""
    status = span.status.code
    reason = None
    if status == _ERROR:
        reason = span.status.message[:_LONGEST_REASON] or None
    if status != _OK and span.events:
        for event in span.events:
            if event.name == "exception":
                status, reason = _ERROR, reason or _exception(event)
    outcome = first(found, "outcome") or (route.operation if route.role == "settle" else "")
    if outcome:
        known = OUTCOMES.get(outcome.lower())
        if known is None:
            raise Refused("sojourn.outcome is none of completed, failed, dead_lettered, expired, sidelined, delayed")
        return known, reason
    return ("failed" if status == _ERROR else "completed"), reason


def went_wrong(span: Any) -> bool:
    """Whether the span's own operation failed."""
    return bool(span.status.code == _ERROR)


def _exception(event: Any) -> str | None:
    told = {pair.key: pair.value.string_value for pair in event.attributes}
    parts = [told[name] for name in ("exception.type", "exception.message") if told.get(name)]
    return ": ".join(parts)[:_LONGEST_REASON] or None


def _integer(value: Any) -> int | None:
    """A whole number, however it was written; None for what is none."""
    which = value.WhichOneof("value")
    if which == "int_value":
        return int(value.int_value)
    if which == "string_value":
        text = value.string_value.strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < _LONGEST_NUMBER else None
    if which == "double_value" and abs(value.double_value) < 2**63 and float(value.double_value).is_integer():
        return int(value.double_value)
    return None


def _text(value: Any) -> str | None:
    """A number given where a text is expected; None for everything else that is not a text."""
    return str(value.int_value) if value.WhichOneof("value") == "int_value" else None
