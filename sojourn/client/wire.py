"""What the limits API answers, read with distrust: a malformed answer is refused whole and changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

#: An answer longer than this, or with more limits, is not one of ours.
MAX_BYTES = 64 * 1024 * 1024
MAX_LIMITS = 250_000
#: No lease is believed for longer: a limit that nobody renews must end.
MAX_LEASE_SECONDS = 3600.0


class MalformedAnswer(ValueError):
    """The limits API answered something that is not its wire format."""


class WireLimit(NamedTuple):
    """One limit: messages/s, messages, and how long it still holds, counted on the server's clock alone."""

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float
    lease_seconds: float
    reason: str


class WireEntitlement(NamedTuple):
    """What a tenant ("*": each that has none of its own) may send while its queue is congested."""

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float


class WireCongestion(NamedTuple):
    """A queue whose entitlements bind for ``lease_seconds``; none or less: no longer."""

    broker: str
    queue: str
    lease_seconds: float
    reason: str


#: Broker, queue and tenant.
Scope = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Update:
    """What an answer says. ``version`` is what to ask from next; ``whole``: all there is, not only what changed.

    ``waited_seconds`` is how long the server held the answer back: what it says is younger than the request by that.
    None where the server does not tell.
    """

    version: int | None
    whole: bool
    waited_seconds: float | None = None
    limits: Sequence[WireLimit] = ()
    lifted: Sequence[Scope] = ()
    entitled: Sequence[WireEntitlement] = ()
    unentitled: Sequence[Scope] = ()
    congested: Sequence[WireCongestion] = ()


def parse(body: bytes, since: int | None = None) -> Update:
    """The body of ``GET /v1/limits``, in either form; ``since`` is the version that was asked from.

    Raises MalformedAnswer.
    """
    try:
        answer = json.loads(body)
        update = _compact(answer, since) if "queues" in answer else _plain(answer)
    except MalformedAnswer:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, IndexError, AttributeError) as error:
        raise MalformedAnswer(f"{type(error).__name__}: {error}") from error
    if len(update.limits) + len(update.entitled) > MAX_LIMITS:
        raise MalformedAnswer(f"more than {MAX_LIMITS} limits")
    return update


def _plain(answer: dict[str, Any]) -> Update:
    generated_at = _instant(answer["generated_at"])
    entries = answer["limits"]
    if not isinstance(entries, list):
        raise MalformedAnswer("limits is not a list")
    return Update(
        version=None,
        whole=True,
        waited_seconds=_seconds(answer.get("waited_seconds")),
        limits=[_plain_limit(entry, generated_at) for entry in entries],
    )


def _plain_limit(entry: dict[str, Any], generated_at: datetime) -> WireLimit:
    # The difference of two instants of the server's clock: ours may be wrong by hours without harm.
    return limit_of(entry, (_instant(entry["valid_until"]) - generated_at).total_seconds())


def limit_of(entry: dict[str, Any], lease_seconds: float) -> WireLimit:
    """One limit of the plain form, which mirrors hold as well. Raises MalformedAnswer."""
    try:
        place = (_text(entry["broker"]), _text(entry["queue"]), _text(entry["tenant"]))
        return _limit(*place, entry["rate"], entry["burst"], lease_seconds, str(entry.get("reason", "")))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise MalformedAnswer(f"{type(error).__name__}: {error}") from error


def _compact(answer: dict[str, Any], since: int | None) -> Update:
    now, told, version = float(answer["now"]), answer["since"], answer["version"]
    if not isinstance(version, int) or told not in (None, since):
        raise MalformedAnswer(f"changes since {told!r}, {since!r} was asked")
    reasons = [_text(reason) for reason in answer["reasons"]]
    limits: list[WireLimit] = []
    lifted: list[Scope] = []
    entitled: list[WireEntitlement] = []
    unentitled: list[Scope] = []
    congested: list[WireCongestion] = []
    for entry in answer["queues"]:
        broker, queue = _text(entry["broker"]), _text(entry["queue"])
        for tenant, rate, burst, until, reason in entry.get("limits", ()):
            limits.append(_limit(broker, queue, _text(tenant), rate, burst, until - now, reasons[reason]))
        lifted += [(broker, queue, _text(tenant)) for tenant in entry.get("lifted", ())]
        for tenant, rate, burst in entry.get("entitled", ()):
            entitled.append(WireEntitlement(broker, queue, _text(tenant), *_terms(rate, burst)))
        unentitled += [(broker, queue, _text(tenant)) for tenant in entry.get("unentitled", ())]
        if "congested" in entry:
            until, reason = entry["congested"]
            congested.append(WireCongestion(broker, queue, _lease(until - now), _text(reason)))
    waited = _seconds(answer.get("waited_seconds"))
    return Update(version, told is None, waited, limits, lifted, entitled, unentitled, congested)


def _limit(broker: str, queue: str, tenant: str, rate: Any, burst: Any, lease: Any, reason: str) -> WireLimit:
    return WireLimit(broker, queue, tenant, *_terms(rate, burst), _lease(lease), reason)


def _terms(rate: Any, burst: Any) -> tuple[float, float]:
    rate, burst = float(rate), float(burst)
    if not (0 < rate < math.inf and 1 <= burst < math.inf):
        raise MalformedAnswer(f"rate {rate} and burst {burst} are not a limit")
    return rate, burst


def _lease(seconds: Any) -> float:
    seconds = float(seconds)
    if math.isnan(seconds):
        raise MalformedAnswer("a lease is not a number")
    return float(min(seconds, MAX_LEASE_SECONDS))


def _seconds(value: Any) -> float | None:
    seconds = 0.0 if value is None else float(value)
    return seconds if value is not None and 0 <= seconds < math.inf else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedAnswer("broker, queue, tenant and reason must be text")
    return value


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise MalformedAnswer(f"{text!r} has no time zone")
    return instant
