"""The frame of laws that are judged by a signal of their own: the same safety for each of them, whatever it wishes.

* Nothing is limited but what an alert names, and only after the law has asked for less than is sent at two looks.
* Nobody is slowed down who was found well, and but sends more by now than when the law judged him.
* What is in force stays within the policy's bounds, changes by its largest step at most, and waits for its cooldown.
* Where the alert, the data or the law's signal are unknown nothing changes, nobody renews the lease, and the tenant
  passes through when it ends.
* A limit that is not obeyed, or whose alert is gone, is not lowered. It rises as the law allows, and goes once it is
  not used or has reached its ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from alerts.laws.law import Agreed, Wish
from alerts.laws.limits import (
    CONFIRM_SECONDS,
    IGNORED,
    NOT_OBEYED,
    Alert,
    Kind,
    Limit,
    Terms,
    Verdict,
    changed,
    is_unused,
    obeyed,
    renewed,
    untrusted,
    unused,
)
from alerts.laws.observation import Observation


@dataclass(frozen=True, slots=True)
class Memory:
    """A law's own state, since when it asks for less than is sent (infinite: it does not), and whether, when it judged
    last, it asked for less than was sent, or in force, then."""

    state: Any
    since: float = math.inf
    slowed: bool = False


def decide(
    terms: Terms,
    seen: Observation | None,
    current: Limit | None,
    alert: Alert,
    now: float,
    memory: Memory | None = None,
) -> Verdict:
    """As :func:`alerts.laws.throttle.decide`, by ``terms.own``; ``memory`` is the last verdict's."""
    law = terms.own
    if law is None:
        raise ValueError(f"{terms.law} is no law of its own")
    if alert is Alert.UNKNOWN:
        return Verdict(
            Kind.SKIP, current, "alert_unknown", "the rule could not be evaluated on fresh data", memory=memory
        )
    if current is None and alert is Alert.GONE:
        return Verdict(Kind.WAIT, None, "nothing", "no alert and no limit")
    fault = untrusted(terms, seen)
    if fault is not None or seen is None:
        code, reason = fault or ("no_data", "the queue is not in the metrics")
        return Verdict(Kind.SKIP, current, code, reason, memory=memory)
    if missing := [name for name in law.needs if getattr(seen, name) is None]:
        reason = f"{terms.law} is judged by {', '.join(missing)}, of which nothing is known"
        return Verdict(Kind.SKIP, current, "no_signal", reason, memory=memory)
    seen = replace(seen, arrival_rate=law.sent(seen))
    rate = seen.arrival_rate if current is None else current.rate
    agreed = Agreed(terms.bounds, terms.priority)
    memory = memory or Memory(law.begin(rate, now))
    state, wish = law.look(agreed, memory.state, seen, rate, now)
    memory = replace(memory, state=state)
    if wish.rate is not None and wish.judged is not None:
        if wish.judged:
            memory = replace(memory, slowed=wish.rate < terms.bounds.within(rate))
        wish = wish if memory.slowed else replace(wish, rate=max(wish.rate, rate))
    if current is None:
        return _first(terms, seen, wish, memory, now)
    current = replace(current, obeyed=obeyed(terms, seen, current, now))
    return replace(_going(terms, seen, wish, current, alert, now), memory=replace(memory, since=math.inf))


def _first(terms: Terms, seen: Observation, wish: Wish, memory: Memory, now: float) -> Verdict:
    sends = f"sends {seen.arrival_rate:.4g}/s"
    if seen.arrival_rate <= 0:
        reason = "the tenant sends nothing now: a limit would change nothing"
        return Verdict(Kind.SKIP, None, "sends_nothing", reason, memory=replace(memory, since=math.inf))
    if wish.rate is None or wish.rate >= seen.arrival_rate:
        return Verdict(Kind.SKIP, None, "no_need", f"{sends}; {wish.reason}", memory=replace(memory, since=math.inf))
    since = min(memory.since, now)
    if now - since < CONFIRM_SECONDS:
        reason = f"{sends}; {wish.reason}, seen once"
        return Verdict(Kind.WAIT, None, "unconfirmed", reason, memory=replace(memory, since=since))
    rate = terms.bounds.step(seen.arrival_rate, wish.rate)
    if rate >= seen.arrival_rate:
        reason = f"{sends}; {wish.reason}; no limit is below {terms.bounds.floor:g}/s"
        return Verdict(Kind.SKIP, None, "bound", reason, memory=memory)
    limit = Limit(rate, seen.arrival_rate, now, now + terms.lease_seconds, seen.arrival_rate)
    reason = f"{sends}; {wish.reason}; limited to {rate:.4g}/s towards {wish.rate:.4g}/s"
    return Verdict(Kind.THROTTLE, limit, "signal", reason, memory=memory)


def _going(terms: Terms, seen: Observation, wish: Wish, current: Limit, alert: Alert, now: float) -> Verdict:
    gone = alert is Alert.GONE
    gone_since = (now if current.gone_since is None else current.gone_since) if gone else None
    current = replace(current, alert_active=not gone, gone_since=gone_since)
    wanted = current.rate if wish.rate is None else wish.rate
    if math.isinf(wanted):
        return Verdict(Kind.RELEASE, None, "relieved", wish.reason)
    if wanted >= current.rate and wish.rate is not None and is_unused(terms, seen, current):
        return unused(seen, current)
    if gone_since is not None and wanted <= current.rate and now - gone_since > terms.hold_seconds:
        reason = f"the alert is gone for {now - gone_since:.0f} s, and the lease is not renewed for {wish.reason}"
        return Verdict(Kind.SKIP, current, "not_calm", reason)
    if now - current.changed_at < terms.cooldown_seconds:
        return renewed(terms, current, now, "cooldown", "the last change has not had its time to act")
    if wanted < current.rate and (gone or current.obeyed is False):
        why = "the alert is gone" if gone else IGNORED
        return renewed(terms, current, now, "not_calm" if gone else NOT_OBEYED, f"{why}; {wish.reason}")
    rate = terms.bounds.step(current.rate, wanted)
    if rate > current.rate and rate >= terms.bounds.ceiling:
        return Verdict(Kind.RELEASE, None, "ceiling", f"the limit reached its ceiling of {terms.bounds.ceiling:g}/s")
    if rate != current.rate:
        kind, code = (Kind.THROTTLE, "congested") if rate < current.rate else (Kind.RELAX, "relieved")
        return changed(terms, current, kind, rate, now, code, wish.reason)
    return renewed(terms, current, now, "acting", wish.reason)
