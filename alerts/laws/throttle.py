"""When to limit a tenant, by how much, for how long, and when to let go: one decision at a time.

The first limit needs harm, seen twice: quiet tenants that wait longer than the target, while consumers work as fast as
they did. Large is no offence. A tenant is entitled to its max-min share: what the others leave of the queue's
throughput, at least an equal part of it (Bertsekas, Gallager, "Data Networks", 6.5.2). Within it, it is limited only
where the backlog does not shrink by itself, which a tenant brings about whose messages cost more than is known. Who
sends what it always did, while others rose by what the queue cannot take, is not to blame. Once nobody suffers, a limit
that is used up rises: no server is to idle while messages are held.

What drives a limit that is in force is chosen so that the limit's own doing cannot drive it further:

* *Congestion* is that the **quiet** tenants, the throttled ones left out, wait longer than the target, by as much of
  their oldest age as is beyond doubt, and no longer than what was tried for the first time of late tells: retries, and
  messages that are stuck, are nobody's noise. A message that a limit holds back has not been enqueued, so it is in no
  age and in no backlog.
* *Not relieved* is the queue's **backlog** failing to shrink fast enough, twice in a row, after the limit has had a
  cooldown to act. Ages would mislead: in a first-in-first-out queue the oldest age goes on rising until the last
  message from before the limit is served, whatever the limit; the backlog turns at once.
* A limit that the tenant does not obey is not lowered: the fault is elsewhere.

Whatever cannot be known (alert, data, samples) is no ground to act on: the verdict is ``skip``, nobody renews the
lease, and the tenant passes through when it ends.
"""

from __future__ import annotations

import math
from dataclasses import replace

from alerts.laws import aimd, costs, inverse_backlog
from alerts.laws.blame import by_chance, rose_abruptly, sends_as_always
from alerts.laws.bounds import Step
from alerts.laws.conserving import is_used_up, taken_back, work_conserved
from alerts.laws.limits import (
    IGNORED,
    NOT_OBEYED,
    Alert,
    Harm,
    Kind,
    Limit,
    Terms,
    Verdict,
    Watch,
    changed,
    is_unused,
    obeyed,
    renewed,
    untrusted,
    unused,
)
from alerts.laws.observation import Observation
from alerts.laws.share import STEADY, base_rate, is_behind, is_calm, next_to_nothing, reckoned, relief_rate, suffers

#: Harm is believed at a second look, at data at least so many seconds newer than those of the first; consumers are
#: compared with what they did so many seconds before.
HARM_AGAIN_SECONDS, COMPARED_SECONDS = 0.2, 1.0
#: A backlog that does not shrink is believed at the second look, as trusted actuators ask for a confirming signal.
CONFIRMATIONS = 2


def decide(
    terms: Terms,
    seen: Observation | None,
    current: Limit | None,
    alert: Alert,
    now: float,
    harm: Harm | None = None,
) -> Verdict:
    """What to do about one tenant at ``now``; ``harm`` is the last verdict's. Deterministic; changes nothing."""
    forgotten = harm and replace(harm, since=math.inf)  # but for what was usual before it
    if alert is Alert.UNKNOWN:
        reason = "the rule could not be evaluated on fresh data"
        return Verdict(Kind.SKIP, current, "alert_unknown", reason, forgotten)
    if current is None and alert is Alert.GONE:
        return Verdict(Kind.WAIT, None, "nothing", "no alert and no limit")
    fault = untrusted(terms, seen)
    if fault is not None or seen is None:
        code, reason = fault or ("no_data", "the queue is not in the metrics")
        return Verdict(Kind.SKIP, current, code, reason, forgotten)
    if current is None:
        return _first(terms, seen, harm, now)
    current = reckoned(terms, seen, replace(current, obeyed=obeyed(terms, seen, current, now)), now)
    if alert is Alert.ACTIVE:
        return _while_active(terms, seen, current, now)
    return _afterwards(terms, seen, current, now)


def _first(terms: Terms, seen: Observation, harm: Harm | None, now: float) -> Verdict:
    """The first limit, if somebody suffers and the tenant is why; each doubt is a reason to leave it alone."""
    if not suffers(terms, seen):
        reason = f"nobody suffers: quiet tenants wait {seen.quiet_wait:.3g} s of {terms.target_seconds:g} s"
        return Verdict(Kind.SKIP, None, "no_harm", reason, harm and replace(harm, since=math.inf))
    base = base_rate(terms, seen)
    if base is None or seen.finish_rate <= 0:
        return Verdict(Kind.SKIP, None, "no_base", "nothing completes: consumers are at fault, not a tenant")
    if seen.finish_rate < STEADY * seen.completion_rate:
        reason = f"consumers finish {seen.finish_rate:.3g}/s, {seen.completion_rate:.3g}/s before: no tenant slows them"
        return Verdict(Kind.SKIP, None, "consumers_slow", reason)
    if seen.arrival_rate <= 0:
        return Verdict(Kind.SKIP, None, "sends_nothing", "the tenant sends nothing now: a limit would change nothing")
    before, harm = _watched_harm(terms, seen, harm, now)
    waits = f"quiet tenants wait {seen.quiet_wait:.3g} s"
    if before is None or min(now - harm.since, _told_at(seen, now) - harm.told_at) < HARM_AGAIN_SECONDS:
        return Verdict(Kind.WAIT, None, "unconfirmed", f"{waits}, seen once", harm)
    compared = min(1.0, (now - before.finish_at) / COMPARED_SECONDS)
    if before.finish_rate < STEADY**compared * seen.finish_rate:
        reason = f"{waits}; consumers come back, from {before.finish_rate:.3g}/s to {seen.finish_rate:.3g}/s"
        return Verdict(Kind.WAIT, None, "consumers_return", reason, _harm(seen, now))
    if _sends_as_always(seen, harm):
        reason = (
            f"{waits}, but it sends {seen.arrival_rate:.3g}/s as always ({harm.usual_rate:.3g}/s): the others rose, "
        )
        reason += f"from {harm.others_usual:.3g}/s to {harm.others_most:.3g}/s"
        return Verdict(Kind.SKIP, None, "sends_as_always", reason, harm)
    beyond = _beyond_share(terms, seen, harm, now)
    if (
        terms.law != "inverse_backlog"
        and beyond is None
        and (
            terms.law != "aimd"
            or seen.cost_rests_on
            >= costs.PRIOR  # the share is one of consumers' time, and what it takes of that is known
            or now - harm.since < terms.cooldown_seconds
            or seen.backlog < harm.backlog
        )
    ):
        reason = f"{waits}, but {seen.arrival_rate:g}/s is within the share of {base:.3g}/s, and the backlog is watched"
        return Verdict(Kind.SKIP, None, "within_share", reason, harm)
    if beyond is not None and seen.lately is not None:  # what it sends, and what consumers can, has just become so much
        base = max(base, base_rate(terms, seen.lately) or base)
        seen = replace(seen.lately, arrival_rate=beyond.arrival_rate)
    step = _first_limit(terms, seen, base)
    limit = Limit(step.limit, base, now, now + terms.lease_seconds, seen.arrival_rate)
    harmed = now - harm.since
    return Verdict(Kind.THROTTLE, limit, "alert", f"{waits}; {step.reason}", harmed_seconds=harmed)


def _beyond_share(terms: Terms, seen: Observation, harm: Harm, now: float) -> Observation | None:
    """By what it is seen that a tenant sends more than its share, where that is measured by more than chance."""
    base, lately = base_rate(terms, seen), seen.lately
    if base is None:
        return None
    if seen.arrival_rate > base + (by_chance(seen, now - harm.since) if terms.rate is None else 0.0):
        return seen
    if lately is None or terms.rate is not None or not rose_abruptly(lately, harm.usual_rate):
        return None
    return lately if lately.arrival_rate > (base_rate(terms, lately) or math.inf) else None


def _told_at(seen: Observation, now: float) -> float:
    """What instant ``seen`` tells of."""
    return now - (seen.data_age_seconds or 0.0)


def _harm(seen: Observation, now: float) -> Harm:
    rates = seen.finish_rate, seen.usual_rate, seen.others_usual, seen.others_rate
    return Harm(now, seen.backlog, *rates, usual_at=now, told_at=_told_at(seen, now), finish_at=now)


def _watched_harm(terms: Terms, seen: Observation, harm: Harm | None, now: float) -> tuple[Harm | None, Harm]:
    """The harm as the last look had it, None where it is new, and as it is now."""
    if harm is None:
        return None, _harm(seen, now)
    if harm.since <= now:
        after = replace(harm, others_most=max(harm.others_most, seen.others_rate))
        if now - harm.finish_at >= COMPARED_SECONDS:
            after = replace(after, finish_rate=seen.finish_rate, finish_at=now)
        return harm, after
    again, usual = _harm(seen, now), (harm.usual_rate, harm.others_usual)
    if (
        now - harm.usual_at <= terms.hold_seconds
    ):  # what was so before the first: the window may show the trouble by now
        again = replace(again, usual_rate=usual[0], others_usual=usual[1], usual_at=harm.usual_at)
    return None, again


def _sends_as_always(seen: Observation, harm: Harm) -> bool:
    usual, others = harm.usual_rate, harm.others_usual
    if usual is None or others is None:
        return False
    return sends_as_always(seen.arrival_rate, usual, harm.others_most, others, seen.throughput)


def _first_limit(terms: Terms, seen: Observation, base: float) -> Step:
    """The share, as far as one step from what the tenant sends may go; a costly tenant within it loses its part."""
    sends = f"sends {seen.arrival_rate:g}/s"
    if terms.law == "inverse_backlog":
        wanted = _inverse(terms, seen, base)
        return Step(terms.bounds.step(seen.arrival_rate, wanted.limit), f"{sends}; {wanted.reason}")
    origin = "the rate set"
    if terms.rate is None:
        origin = f"its share of {seen.throughput:.3g}/s: others ask for {seen.others_rate:.3g}/s, "
        origin += f"{seen.active_tenants} tenants are active"
    if seen.arrival_rate <= base:
        cut = aimd.adapt(seen.arrival_rate, congested=True, priority=terms.priority, bounds=terms.bounds)
        return Step(cut.limit, f"{sends}, within {origin}, and the backlog grows; {cut.reason}")
    goal = relief_rate(terms, seen, base)
    limit = terms.bounds.step(seen.arrival_rate, goal)
    return Step(limit, f"{sends}; limited to {limit:.4g}/s towards {goal:.4g}/s, {origin}")


def _while_active(terms: Terms, seen: Observation, current: Limit, now: float) -> Verdict:
    if (moved := work_conserved(terms, seen, current, now) or taken_back(terms, seen, current, now)) is not None:
        return moved
    if now - current.changed_at < terms.cooldown_seconds:
        return renewed(terms, current, now, "cooldown", "the last change has not had its time to act")
    returned = not current.alert_active
    watch = _watched(terms, seen, current.watch, now)
    current = replace(current, alert_active=True, gone_since=None, watch=watch)
    if current.obeyed is False:
        return renewed(terms, current, now, NOT_OBEYED, IGNORED)
    if terms.law == "inverse_backlog":
        wanted = _inverse(terms, seen, current.base)
        step = Step(terms.bounds.step(current.rate, wanted.limit), wanted.reason)
    elif is_behind(terms, seen) and (goal := relief_rate(terms, seen, current.base)) < current.rate:
        step = Step(terms.bounds.step(current.rate, goal), f"towards its share, {goal:.4g}/s while the backlog drains")
    elif terms.law == "aimd" and ((returned and suffers(terms, seen)) or _not_relieved(current.watch)):
        step = aimd.adapt(current.rate, congested=True, priority=terms.priority, bounds=terms.bounds)
    elif is_calm(terms, seen) and not suffers(terms, seen) and is_unused(terms, seen, current):
        return unused(seen, current)
    elif (
        terms.law == "aimd"
        and is_calm(terms, seen)
        and not suffers(terms, seen)
        and is_used_up(terms, seen, current, now)
    ):
        step = aimd.adapt(current.rate, congested=False, priority=terms.priority, bounds=terms.bounds)
        if seen.waiting > next_to_nothing(terms, seen):  # beyond its share it would only add to what waits
            step = replace(step, limit=min(step.limit, relief_rate(terms, seen, current.base)))
    else:
        return renewed(terms, current, now, "acting", "the alert is active and the limit acts on it")
    if step.limit < current.rate:
        why = "the alert came back" if returned else f"quiet tenants wait {seen.quiet_wait:.3g} s"
        return changed(terms, current, Kind.THROTTLE, step.limit, now, "congested", f"{why}; {step.reason}")
    if step.limit > current.rate:
        return changed(terms, current, Kind.RELAX, step.limit, now, "relieved", step.reason)
    return renewed(terms, current, now, "bound", f"{step.limit:g}/s is as far as its bounds allow")


def _afterwards(terms: Terms, seen: Observation, current: Limit, now: float) -> Verdict:
    gone_since = now if current.gone_since is None else current.gone_since
    current = replace(current, alert_active=False, gone_since=gone_since, watch=None)
    if (moved := work_conserved(terms, seen, current, now) or taken_back(terms, seen, current, now)) is not None:
        return moved
    if not is_calm(terms, seen):
        if now - gone_since > terms.hold_seconds:
            reason = f"the alert is gone for {now - gone_since:.0f} s: others keep the queue busy, not this tenant"
            return Verdict(Kind.SKIP, current, "not_calm", reason)
        return renewed(terms, current, now, "not_calm", "the alert is gone, the queue is not calm yet")
    if now - current.changed_at < terms.cooldown_seconds:
        return renewed(terms, current, now, "cooldown", "the last change has not had its time to act")
    if is_unused(terms, seen, current):
        return unused(seen, current)
    step = aimd.adapt(current.rate, congested=False, priority=terms.priority, bounds=terms.bounds)
    if step.limit >= terms.bounds.ceiling:
        return Verdict(Kind.RELEASE, None, "ceiling", f"the limit reached its ceiling of {terms.bounds.ceiling:g}/s")
    return changed(
        terms, current, Kind.RELAX, step.limit, now, "calm", f"the alert is gone, the queue calm; {step.reason}"
    )


def _watched(terms: Terms, seen: Observation, watch: Watch | None, now: float) -> Watch:
    if watch is None:
        return Watch(seen.backlog, now, 0)
    elapsed = now - watch.at
    if elapsed < terms.cooldown_seconds:
        return watch
    due = watch.backlog * max(0.0, 1 - elapsed / terms.drain_seconds)
    slow = suffers(terms, seen) and seen.backlog > due and seen.finish_rate > 0
    return Watch(seen.backlog, now, watch.strikes + 1 if slow else 0)


def _not_relieved(watch: Watch | None) -> bool:
    return watch is not None and watch.strikes >= CONFIRMATIONS


def _inverse(terms: Terms, seen: Observation, base: float) -> Step:
    return inverse_backlog.limit(base, backlog=seen.quiet_wait, target=terms.target_seconds, bounds=terms.bounds)
