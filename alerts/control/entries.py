"""From verdicts to what is remembered of them: journal rows and limits in force. Pure, but for fresh identifiers."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from actuators.undo_log import News
from alerts.control.active_limit import ActiveLimit, Entry, Key, Place, Target, strictest
from alerts.control.board import Congestion
from alerts.control.candidates import Candidate, Unusable
from alerts.control.settings import PolicySettings
from alerts.control.signals import SIGNALS
from alerts.laws.limits import IGNORED, Kind, Limit, Verdict
from alerts.laws.observation import Observation
from alerts.laws.shadow import Shadow

#: What is measured, and of it what only some laws ask for.
_MEASURED = tuple(one.name for one in dataclasses.fields(Observation) if one.name != "lately")
_OF_LAWS = frozenset(name for names in SIGNALS.values() for name in names)


def decided(
    policy: PolicySettings,
    candidate: Candidate,
    seen: Observation | None,
    active: ActiveLimit | None,
    verdict: Verdict,
    now: datetime,
) -> Entry:
    """The row of one verdict, as if its actuator will succeed."""
    after = verdict.limit.rate if verdict.limit else None
    until = datetime.fromtimestamp(verdict.limit.valid_until, UTC) if verdict.limit else None
    action_id = active.action_id if active else fresh_id()
    refused = verdict.kind is Kind.SKIP
    acts = in_force(policy, active)
    return Entry(
        at=now,
        action_id=action_id,
        idempotency_key=_idempotency_key(candidate.key, action_id, verdict.kind.value, after, until),
        rule=candidate.rule.name,
        policy=policy.name,
        actuator=policy.actuator,
        broker=candidate.key.target.broker,
        queue=candidate.key.target.queue,
        tenant=candidate.key.target.tenant,
        decision=verdict.kind.value,
        dry_run=not acts,
        before=active.limit.rate if active else None,
        after=after,
        valid_until=until,
        inputs=_inputs(candidate, seen, verdict),
        reason=verdict.reason,
        outcome="refused" if refused else outcome(policy, acts=acts),
    )


def in_force(policy: PolicySettings, active: ActiveLimit | None) -> bool:
    """Whether what ``policy`` decides is put in force: always, never, or once an operator approved ``active``."""
    return policy.mode == "auto" or (policy.mode == "approve" and active is not None and not active.dry_run)


def outcome(policy: PolicySettings | None, *, acts: bool) -> str:
    """What becomes of a decision, if its actuator succeeds."""
    if acts:
        return "applied"
    return "proposed" if policy is not None and policy.mode == "approve" else "dry_run"


def approved(policy: PolicySettings, active: ActiveLimit, now: datetime, by: str) -> tuple[ActiveLimit, Entry]:
    """The proposal ``active`` in force, with a lease and a cooldown of its own from ``now`` on, and its row."""
    at = now.timestamp()
    limit = dataclasses.replace(
        active.limit, changed_at=at, valid_until=at + policy.lease_seconds, watch=None, obeyed=None
    )
    after = dataclasses.replace(active, dry_run=False, limit=limit, shadow=None, proposed=False)
    inputs = {"group": active.rule.group} | _shadow_inputs(active.shadow)
    entry = _ending(after, "approve", f"approved by {by}", now, inputs, None)
    entry = dataclasses.replace(entry, before=None, after=limit.rate, valid_until=after.valid_until, outcome="applied")
    return after, entry


def active_limit_of(
    policy: PolicySettings,
    candidate: Candidate,
    entry: Entry,
    limit: Limit,
    before: ActiveLimit | None,
    shadow: Shadow | None = None,
) -> ActiveLimit:
    """What is in force once ``entry`` is applied; its reason stays that of the last change of the rate."""
    changed = before is None or before.limit.rate != limit.rate
    return ActiveLimit(
        key=candidate.key,
        action_id=entry.action_id,
        rule=candidate.rule,
        actuator=policy.actuator,
        dry_run=not in_force(policy, before),
        burst=max(1.0, limit.rate * policy.burst_seconds),
        limit=limit,
        reason=entry.reason if changed or before is None else before.reason,
        shadow=shadow,
        proposed=policy.mode == "approve" and not in_force(policy, before),
        in_hand=policy.counts,
    )


def dropped(
    active: ActiveLimit, policy: PolicySettings | None, decision: str, reason: str, now: datetime, failure: str | None
) -> Entry:
    """The row of a limit that ends whatever the metrics say: revoked, or expired."""
    inputs = {"group": active.rule.group} | _shadow_inputs(active.shadow)
    entry = _ending(active, decision, reason, now, inputs, failure)
    return dataclasses.replace(entry, outcome="failed" if failure else outcome(policy, acts=not active.dry_run))


def with_shadow(entry: Entry, shadow: Shadow | None) -> Entry:
    """``entry``, the last of a limit that never was in force, with what it would have done."""
    if shadow is None:
        return entry
    return dataclasses.replace(
        entry, inputs={**entry.inputs, **_shadow_inputs(shadow)}, reason=f"{entry.reason}; {shadow}"
    )


def _ending(
    active: ActiveLimit, decision: str, reason: str, now: datetime, inputs: dict[str, str], failure: str | None
) -> Entry:
    target = active.key.target
    if active.shadow is not None:
        reason = f"{reason}; {active.shadow}"
    return Entry(
        at=now,
        action_id=active.action_id,
        idempotency_key=_idempotency_key(active.key, active.action_id, decision, None, active.valid_until),
        rule=active.rule.name,
        policy=active.key.policy,
        actuator=active.actuator,
        broker=target.broker,
        queue=target.queue,
        tenant=target.tenant,
        decision=decision,
        dry_run=active.dry_run,
        before=active.limit.rate,
        after=None,
        valid_until=None,
        inputs=inputs,
        reason=f"{reason}; {failure}" if failure else reason,
        outcome="failed" if failure else "applied",
    )


def _shadow_inputs(shadow: Shadow | None) -> dict[str, str]:
    if shadow is None:
        return {}
    return {f"shadow_{name}": _text(value) for name, value in dataclasses.asdict(shadow).items()}


def refused(item: Unusable, policy: PolicySettings | None, now: datetime) -> tuple[Key, Entry]:
    """The row of an alert that its policy cannot act on."""
    labels = item.labels
    target = Target(labels.get("broker", ""), labels.get("queue", ""), labels.get("tenant", ""))
    key, action_id = Key(item.policy, target), fresh_id()
    entry = Entry(
        at=now,
        action_id=action_id,
        idempotency_key=_idempotency_key(key, action_id, Kind.SKIP.value, None, None),
        rule=item.rule.name,
        policy=item.policy,
        actuator=policy.actuator if policy else "",
        broker=target.broker,
        queue=target.queue,
        tenant=target.tenant or None,
        decision=Kind.SKIP.value,
        dry_run=policy is None or policy.mode != "auto",
        before=None,
        after=None,
        valid_until=None,
        inputs={
            "code": item.code,
            "group": item.rule.group,
            **{f"label.{name}": value for name, value in labels.items()},
        },
        reason=item.reason,
        outcome="refused",
    )
    return key, entry


def unasked(policy: PolicySettings, seen: Observation, ignored: str) -> str:
    """Why a limit that is not in force is kept as it is: not because it is ``ignored``, as its law believes."""
    signal = ignored.removeprefix(IGNORED).removeprefix("; ")
    sees = signal or f"quiet tenants wait {seen.quiet_wait:.3g} s; sends {seen.arrival_rate:g}/s"
    return f"{'proposed' if policy.mode == 'approve' else 'a dry run'}, and nobody is held to it: {sees}"


def says_no_effect(entry: Entry) -> bool:
    """Whether it is the row of :func:`without_effect`."""
    return entry.outcome == "failed" and entry.decision == Kind.HOLD.value


def without_effect(entry: Entry, limit: Limit, seen: Observation | None) -> Entry:
    """The row that tells that a limit is in force and arrivals do not follow it."""
    arrivals = "unknown" if seen is None else f"{seen.arrival_rate:g}/s"
    return dataclasses.replace(
        entry,
        idempotency_key=_hash(entry.idempotency_key, "no effect"),
        decision=Kind.HOLD.value,
        before=limit.rate,
        after=limit.rate,
        reason=f"no effect: {arrivals} arrive in spite of a limit of {limit.rate:g}/s: do the producers use it?",
        outcome="failed",
    )


def with_failure(entry: Entry, failure: str | None) -> Entry:
    """``entry`` as it must read if its actuator reported ``failure``."""
    if failure is None or entry.outcome != "applied":
        return entry
    return dataclasses.replace(entry, outcome="failed", reason=f"{entry.reason}; {failure}")


def with_facts(entry: Entry, facts: Mapping[str, str]) -> Entry:
    """``entry`` with what its actuator says of the setting that it changed."""
    if not facts or entry.outcome != "applied":
        return entry
    return dataclasses.replace(entry, inputs={**entry.inputs, **facts})


def of_news(news: News, now: datetime) -> Entry:
    """The row of a limit that ended, or was given up, without the controller's telling."""
    demand, yielded = news.demand, news.kind == "yielded"
    decision = "yield" if yielded else "expire"
    key = Key("", Target(demand.broker, demand.queue, demand.tenant))
    return Entry(
        at=now,
        action_id=demand.action_id,
        idempotency_key=_idempotency_key(key, demand.action_id, decision, None, demand.valid_until),
        rule="",
        policy="",
        actuator=news.actuator,
        broker=demand.broker,
        queue=demand.queue,
        tenant=demand.tenant,
        decision=decision,
        dry_run=False,
        before=demand.rate,
        after=None,
        valid_until=None,
        inputs={"setting": news.place, "effect": news.said},
        reason=news.said if yielded else f"ended by the reaper: {news.said}",
        outcome="refused" if yielded else "applied",
    )


def told_what_counts(
    entries: Iterable[Entry], before: Iterable[ActiveLimit], after: Iterable[ActiveLimit]
) -> list[Entry]:
    """``entries`` that say which limit counts, where several policies limit their tenant, or did until now."""
    entries = list(entries)
    if not entries:  # as at most looks
        return entries
    limits_before, limits_after = _by_place(before), _by_place(after)
    counting = strictest(item for items in limits_after.values() for item in items)
    told = []
    for entry in entries:
        place = (key_of(entry).target, entry.actuator)
        there, chosen = limits_after.get(place, []), counting.get(place)
        if entry.dry_run or chosen is None or max(len(there), len(limits_before.get(place, []))) < 2:
            told.append(entry)
            continue
        text = f"{chosen.key.policy}'s {chosen.limit.rate:.4g}/s counts now"
        others = sorted(item.key.policy + f"'s {item.limit.rate:.4g}/s" for item in there if item is not chosen)
        if others:
            text += f": it is stricter than {', '.join(others)}"
        told.append(dataclasses.replace(entry, reason=f"{entry.reason}; {text}"))
    return told


def _by_place(active_limits: Iterable[ActiveLimit]) -> dict[Place, list[ActiveLimit]]:
    found: dict[Place, list[ActiveLimit]] = {}
    for item in active_limits:
        if not item.dry_run:
            found.setdefault((item.key.target, item.actuator), []).append(item)
    return found


def of_congestion(
    broker: str, queue: str, action_id: str, now: datetime, congestion: Congestion | None, reason: str, tenants: int
) -> Entry:
    """The row that tells that the entitlements of a queue bind from now on, or (``congestion`` None) no longer."""
    decision = Kind.RELEASE if congestion is None else Kind.THROTTLE
    key = Key("entitlements", Target(broker, queue, ""))
    until = None if congestion is None else congestion.valid_until
    told = reason if congestion is not None else f"no longer congested; last: {reason}"
    return Entry(
        at=now,
        action_id=action_id,
        idempotency_key=_idempotency_key(key, action_id, decision.value, None, until),
        rule="",
        policy="entitlements",
        actuator="limits_api",
        broker=broker,
        queue=queue,
        tenant=None,
        decision=decision.value,
        dry_run=False,
        before=None,
        after=None,
        valid_until=until,
        inputs={"tenants": str(tenants)},
        reason=told,
        outcome="applied",
    )


def shown(entry: Entry, ahead: timedelta) -> Entry:
    """``entry`` with the instants of a clock that is ``ahead``."""
    until = entry.valid_until
    return dataclasses.replace(entry, at=entry.at + ahead, valid_until=None if until is None else until + ahead)


def key_of(entry: Entry) -> Key:
    """Whom ``entry`` is about."""
    return Key(entry.policy, Target(entry.broker, entry.queue, entry.tenant or ""))


def _inputs(candidate: Candidate, seen: Observation | None, verdict: Verdict) -> dict[str, str]:
    inputs = {"alert": candidate.alert.value, "code": verdict.code, "group": candidate.rule.group}
    if candidate.instance is not None:
        inputs["fingerprint"] = candidate.instance.fingerprint
        inputs["value"] = str(candidate.instance.value)
    if seen is not None:
        known = ((name, getattr(seen, name)) for name in _MEASURED)
        inputs |= {name: _text(value) for name, value in known if value is not None or name not in _OF_LAWS}
    if verdict.limit is not None:
        inputs["base"] = _text(verdict.limit.base)
    if verdict.harmed_seconds is not None:
        inputs["harmed_seconds"] = _text(verdict.harmed_seconds)
    return inputs


def _text(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def fresh_id() -> str:
    return uuid.uuid4().hex[:16]


def _idempotency_key(key: Key, action_id: str, decision: str, after: float | None, until: datetime | None) -> str:
    target = key.target
    return _hash(key.policy, target.broker, target.queue, target.tenant, action_id, decision, repr(after), str(until))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
