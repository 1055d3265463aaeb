"""What the API takes: bodies and filters of Alertmanager's OpenAPI, wholly understood or refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from alerts.routing.matchers import Matcher, parse
from alerts.routing.silence import Silence
from alerts.store.given import ReceivedAlert

#: How long an alert fires whose sender names no end, unless it is repeated: Alertmanager's resolve_timeout.
RESOLVE_TIMEOUT = timedelta(minutes=5)
#: No end is later; instants beyond could not be reckoned with.
LATEST = timedelta(days=100 * 365)
#: Labels of an alert, and annotations.
MOST_LABELS = 100
_YES, _NO = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
_ZERO_YEAR = 1
T = TypeVar("T")


class Bad(Exception):
    """A request that cannot be understood: 400, and why."""


def _instant(value: object) -> object:
    """JSON has instants as text alone; Go writes one that is not set as the year 1."""
    if value is not None and not isinstance(value, str):
        raise ValueError("an instant is a text, 2026-01-01T00:00:00Z")
    return None if isinstance(value, str) and value.startswith("0001-01-01T00:00:00") else value


Instant = Annotated[AwareDatetime | None, BeforeValidator(_instant)]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=1000)]


class _Alert(BaseModel):
    model_config = ConfigDict(strict=False, extra="ignore")

    labels: dict[Name, str] = Field(max_length=MOST_LABELS)
    annotations: dict[Name, str] = Field(default_factory=dict, max_length=MOST_LABELS)
    startsAt: Instant = None
    endsAt: Instant = None
    generatorURL: Annotated[str, Field(pattern=r"^(https?://[^\s]*)?$", max_length=8192)] = ""


class _Matcher(BaseModel):
    name: str
    value: str
    isRegex: bool
    isEqual: bool = True


class _Silence(BaseModel):
    id: Annotated[str, Field(max_length=100)] | None = None
    matchers: list[_Matcher]
    startsAt: Instant
    endsAt: Instant
    createdBy: Annotated[str, Field(min_length=1, max_length=200)]
    comment: Annotated[str, Field(max_length=2000)]


class Acknowledging(BaseModel):
    """Somebody says that they look after an alert."""

    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    createdBy: Annotated[str, Field(min_length=1, max_length=200)]
    comment: Annotated[str, Field(max_length=2000)] = ""


_ALERTS = TypeAdapter(list[_Alert])
_SILENCE = TypeAdapter(_Silence)
_ACKNOWLEDGING = TypeAdapter(Acknowledging)


def alerts_in(body: bytes, now: datetime, ahead: timedelta) -> list[ReceivedAlert]:
    """The alerts of a body, on the engine's clock, which shows ``now``, the wall clock being ``ahead``. Bad."""
    found = []
    for sent in _read(_ALERTS, body):
        labels = {name: value for name, value in sent.labels.items() if value}
        if not labels:
            raise Bad("an alert has at least one label")
        ends = _ours(sent.endsAt, now, ahead)
        starts = _ours(sent.startsAt, now, ahead) or min(now, ends or now)
        if ends is not None and ends < starts:
            raise Bad("an alert ends after it starts")
        found.append(
            ReceivedAlert(labels, sent.annotations, sent.generatorURL, starts, ends or now + RESOLVE_TIMEOUT, now)
        )
    return found


def silence_in(body: bytes, now: datetime, ahead: timedelta) -> Silence:
    """The silence of a body, on the engine's clock; its id is empty unless it is to replace another. Bad."""
    sent = _read(_SILENCE, body)
    try:
        matchers = tuple(Matcher(one.name, one.value, one.isRegex, one.isEqual) for one in sent.matchers)
    except ValueError as error:
        raise Bad(str(error)) from None
    starts, ends = _ours(sent.startsAt, now, ahead), _ours(sent.endsAt, now, ahead)
    if starts is None or ends is None:
        raise Bad("a silence has a start and an end")
    return Silence(sent.id or "", matchers, starts, ends, sent.createdBy, sent.comment, now)


def acknowledging_in(body: bytes) -> Acknowledging:
    """Who looks after what. Bad."""
    return _read(_ACKNOWLEDGING, body)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which alerts are asked for: all that are not left out, of receivers whose name matches, that meet the filters."""

    active: bool = True
    silenced: bool = True
    inhibited: bool = True
    muted: bool = True
    filters: tuple[Matcher, ...] = ()
    receiver: Matcher | None = None

    def wants(self, labels: Mapping[str, str], status: Mapping[str, Any]) -> bool:
        """Whether an alert with ``labels`` and the status that is shown of it is asked for."""
        return (
            (self.active or status["state"] != "active")
            and (self.silenced or not status["silencedBy"])
            and (self.inhibited or not status["inhibitedBy"])
            and (self.muted or not status["mutedBy"])
            and all(matcher.matches(labels) for matcher in self.filters)
        )

    def wants_receiver(self, name: str) -> bool:
        """Whether alerts of the receiver ``name`` are."""
        return self.receiver is None or self.receiver.matches({"receiver": name})


def asked(query: Sequence[tuple[str, str]]) -> Asked:
    """What the parameters of ``GET /alerts`` ask for. Bad."""
    last = dict(query)
    flags = {name: _flag(name, last[name]) for name in ("active", "silenced", "inhibited", "muted") if name in last}
    if "unprocessed" in last:
        _flag("unprocessed", last["unprocessed"])  # none ever is
    receiver = last.get("receiver")
    try:
        by_name = Matcher("receiver", receiver, is_regex=True) if receiver else None
    except ValueError as error:
        raise Bad(f"receiver: {error}") from None
    return Asked(**flags, filters=filters(query), receiver=by_name)


def filters(query: Sequence[tuple[str, str]]) -> tuple[Matcher, ...]:
    """The matchers of the parameters called ``filter``. Bad."""
    try:
        return tuple(parse(value) for name, value in query if name == "filter")
    except ValueError as error:
        raise Bad(f"bad filter: {error}") from None


def _flag(name: str, text: str) -> bool:
    if text not in _YES + _NO:
        raise Bad(f"{name} is true or false")
    return text in _YES


def _ours(at: datetime | None, now: datetime, ahead: timedelta) -> datetime | None:
    """``at``, of the wall clock, on ours, within what can be reckoned with."""
    if at is None:
        return None
    if at.year <= _ZERO_YEAR + 1:
        raise Bad("an instant is too long ago")
    if at - now > LATEST:
        return now + LATEST
    return at - ahead


def _read(adapter: TypeAdapter[T], body: bytes) -> T:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Bad(re.sub(r"\s+", " ", f"{where}: {first['msg']}" if where else first["msg"])[:300]) from None
