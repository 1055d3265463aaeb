"""The controller: alerts and metrics in, limits and journal rows out, safely.

One step never acts on what it cannot trust, touches only the tenants that alerts name, and leaves nothing in force
that is not renewed. :mod:`alerts.laws.throttle` decides; here its verdicts meet the world.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from alerts.control import entries as rows
from alerts.control.active_limit import ActiveLimit, Entry, Key, Place, Target
from alerts.control.actuators import Enforced, Enforcer, Told
from alerts.control.candidates import Candidate, Evaluations, Unusable
from alerts.control.groups import Groups, together
from alerts.control.journal import Journal
from alerts.control.minds import Minds
from alerts.control.observe import Query, Usually, observe
from alerts.control.pace import Pace
from alerts.control.rehearsal import Rehearsal
from alerts.control.settings import ControlSettings
from alerts.control.signals import signals_of
from alerts.control.spans import BRIEF_SECONDS, recent_seconds, usual_seconds
from alerts.control.state import State
from alerts.control.translate import moved
from alerts.laws import shadow as shadows
from alerts.laws.blame import USUAL_SECONDS
from alerts.laws.limits import NOT_OBEYED, Kind, Limit
from alerts.laws.observation import Observation
from alerts.laws.shadow import Shadow
from alerts.models import RuleEvaluation
from lake.clock import ZERO, Clock
from lake.errors import SojournError, UserError
from lake.visible import visible

log = logging.getLogger(__name__)

PAUSE_FLAG = "paused"
#: Who asks for something without saying who they are.
OPERATOR = "the operator"


class Controller:
    """Decides for all policies. :meth:`step` belongs to one thread, the rest may be called from any."""

    def __init__(
        self,
        settings: ControlSettings,
        target_seconds: float,
        state: State,
        journal: Journal,
        actuators: Mapping[str, Enforcer],
        folder: Path,
        clock: Clock,
        groups: Groups | None = None,
        window_seconds: int = USUAL_SECONDS,
    ) -> None:
        self._groups = groups or Groups(())
        self._policies = {policy.name: policy for policy in settings.policies}
        self._terms = {policy.name: policy.terms(target_seconds) for policy in settings.policies}
        self._early = frozenset(policy.name for policy in settings.policies if policy.early)
        self._recent, self._usual = recent_seconds(settings.policies), usual_seconds(window_seconds)
        self._signals = signals_of(self._terms.values())
        self._state, self._journal, self._actuators = state, journal, actuators
        self._flag = folder / PAUSE_FLAG
        self._lock = threading.RLock()
        self._evaluations, self._usually = Evaluations(), Usually()
        self._pace = Pace(self._early)
        #: For moments in which nobody waits.
        self.rehearsal = Rehearsal(self._pace, self._recent, self._usual, self._signals)
        #: The code for which each was refused last: the same again is no news.
        self._refused: dict[Key, str] = {}
        self._minds = Minds()
        #: What limits that are not in force would have done; an active limit keeps it from its last change.
        self._shadows: dict[Key, Shadow] = {}
        #: Why each could not be put in force when it was tried last.
        self._failing: dict[Key, str] = {}
        self._clock = clock
        self._ahead = ZERO  # of the clock, as the state knows it
        self._active_limits, self._blocked = self._restored(state)
        self._shadows = {key: item.shadow for key, item in self._active_limits.items() if item.shadow is not None}
        self._drop(self._outdated(), "revoke", "the policy's settings changed", clock.now())
        self._enforce(self._active_limits)

    @property
    def active_limits(self) -> dict[Key, ActiveLimit]:
        """What is in force, proposed or on trial, now."""
        with self._lock:
            return {key: self._with_shadow(item) for key, item in self._active_limits.items()}

    @property
    def paused(self) -> bool:
        """Whether the kill switch is set: a file of this name beside the state, so that it works by hand too."""
        return os.path.exists(self._flag)  # asked several times a step: pathlib's own takes thrice as long

    def step(self, now: datetime, evaluations: Sequence[RuleEvaluation], query: Query) -> None:
        """One round of decisions at ``now`` of the clock. Failures leave what is in force to its lease."""
        self._note_clock()
        self._evaluations.add(evaluations)
        self._expire(now)
        if self.paused:
            self._drop(self._active_limits, "revoke", "paused by the operator", now)
        elif self._journal.full():
            log.warning("the journal cannot be written: no action is taken")
        else:
            try:
                self._decide_all(now, query)
            except SojournError as error:
                log.warning("no decision, what is in force is left to its lease: %s", error)
        self._journal.flush()

    def approve(self, action_id: str, now: datetime, by: str = OPERATOR) -> bool:
        """Put the proposal ``action_id`` in force, as it is by now, until it is released; False if there is none.

        Raises SojournError where actions are paused, or the actuator or the journal fails: nothing is in force then.
        """
        with self._lock:
            if self.paused:
                raise UserError("actions are paused", "resume them first")
            found = [item for item in self._active_limits.values() if item.action_id == action_id]
            if not found or not found[0].proposed:
                return False
            active = self._with_shadow(found[0])
            key = active.key
            after, entry = rows.approved(self._policies[key.policy], active, now, by)
            before = self._active_limits
            changed = _merged(before, {key: after})
            enforced = self._enforce(changed)
            told = [rows.with_facts(entry, enforced.facts(key.target, after.actuator))]
            if failed := enforced.failure(key.target, after.actuator):
                self._enforce(before)
                self._state.commit({}, self._shown([rows.with_failure(entry, failed)]))
                raise SojournError(failed)
            try:
                told = rows.told_what_counts(told, before.values(), changed.values())
                self._state.commit({key: after}, self._shown(told))
            except SojournError:
                self._enforce(before)  # what cannot be remembered must not hold
                raise
            self._active_limits = changed
            self._shadows.pop(key, None)
            return True

    def revoke(self, action_id: str, now: datetime, by: str = OPERATOR) -> bool:
        """Lift the limit of ``action_id`` at once, and those that other policies have put on the same tenant of the
        same queue, and keep these policies off it; False if it is not in force."""
        with self._lock:
            targets = {key.target for key, active in self._active_limits.items() if active.action_id == action_id}
            found = {key: active for key, active in self._active_limits.items() if key.target in targets}
            until = {key: now.timestamp() + self._policies[key.policy].revoke_seconds for key in found}
            self._drop(found, "revoke", f"revoked by {by}", now, until)
            self._blocked |= until
            self._state.forget_blocks(now.timestamp())
            return bool(found)

    def pause(self, now: datetime, by: str = OPERATOR) -> None:
        """Lift all limits and decide nothing until :meth:`resume`; outlives a restart."""
        self._flag.touch()
        with self._lock:
            self._drop(self._active_limits, "revoke", f"paused by {by}", now)

    def resume(self, by: str = OPERATOR) -> None:
        """Decide again."""
        self._flag.unlink(missing_ok=True)
        log.info("actions are resumed by %s", visible(by))

    def note(self, entries: Sequence[Entry]) -> None:
        """Journal what another part of the control decided."""
        with self._lock:
            self._state.commit({}, self._shown(entries))

    def recent(self, limit: int) -> list[Entry]:
        """The newest journal rows, newest first."""
        return self._state.recent(limit)

    def _restored(self, state: State) -> tuple[dict[Key, ActiveLimit], dict[Key, float]]:
        """What an earlier process left, on this one's clock, on which it is written back at once."""
        by, now = state.shift(self._clock.epoch).total_seconds(), self._clock.now().timestamp()
        policies = self._policies
        active_limits, blocked = state.active_limits(), state.blocked()
        for key, item in active_limits.items():
            if key.policy in policies:
                active_limits[key] = moved(item, by, now, policies[key.policy].lease_seconds)
        for key, until in blocked.items():
            if key.policy in policies:
                blocked[key] = min(until + by, now + policies[key.policy].revoke_seconds)
        state.commit(active_limits, (), blocked, ahead=ZERO, epoch=self._clock.epoch)
        return active_limits, blocked

    def _note_clock(self) -> None:
        """Once somebody has set the wall clock, whoever comes next must know what our instants mean."""
        ahead = self._clock.ahead
        if ahead != self._ahead:
            self._state.commit({}, (), ahead=ahead)
            self._ahead = ahead

    def _shown(self, entries: Iterable[Entry]) -> list[Entry]:
        """The journal is for people: its instants are the wall clock's."""
        return [rows.shown(entry, self._clock.ahead) for entry in entries]

    def _decide_all(self, now: datetime, query: Query) -> None:
        with self._lock:
            before = dict(self._active_limits)
        asked_by = {key: active.rule for key, active in before.items()}
        candidates, unusable = self._evaluations.candidates(asked_by, self._policies, now, self._early)
        candidates, surplus = self._admitted(candidates, before, now)
        entries = self._unusable_entries([*unusable, *surplus], candidates, now)
        changes: dict[Key, ActiveLimit | None] = {}
        if self._pace.due(candidates, before, self._refused, now.timestamp(), self._evaluations.as_of):
            targets = [candidate.key.target for candidate in candidates]
            members, spans = self._groups.members, (self._signals, self._usual, self._usually)
            brief, held = BRIEF_SECONDS if self._pace.hurried else 0, {key.target for key in before}
            seen = observe(query, targets, now, self._recent, self._clock.ahead, members, *spans, brief, held)
            for candidate in candidates:
                self._decide(candidate, seen.get(candidate.key.target), before, changes, entries, now)
        self._commit(changes, entries, before)

    def _admitted(
        self, candidates: Sequence[Candidate], active_limits: Mapping[Key, ActiveLimit], now: datetime
    ) -> tuple[list[Candidate], list[Unusable]]:
        """Without what an operator revoked, and never more than ``max_limits`` a policy, however many alerts fire."""
        with self._lock:
            self._blocked = {key: until for key, until in self._blocked.items() if until > now.timestamp()}
            blocked = set(self._blocked)
        room = {name: policy.max_limits for name, policy in self._policies.items()}
        for key in active_limits:
            room[key.policy] -= 1
        admitted: list[Candidate] = []
        surplus: dict[Key, Unusable] = {}
        for candidate in candidates:
            policy = candidate.key.policy
            if candidate.key in blocked:
                continue
            if candidate.key not in active_limits:
                second = self._policies[policy].confirm
                if second and not self._evaluations.confirms(second, candidate.key.target, now):
                    reason = f"no second signal: none of {', '.join(second)} fires for the queue"
                    surplus[candidate.key] = Unusable(
                        policy, candidate.rule, dataclasses.asdict(candidate.key.target), "second_signal", reason
                    )
                    continue
                if room[policy] <= 0:
                    reason = f"max_limits: {self._policies[policy].max_limits} tenants are limited already"
                    surplus[Key(policy, Target("", "", ""))] = Unusable(policy, candidate.rule, {}, "too_many", reason)
                    continue
                room[policy] -= 1
            admitted.append(candidate)
        return admitted, list(surplus.values())

    def _decide(
        self,
        candidate: Candidate,
        seen: Observation | None,
        before: Mapping[Key, ActiveLimit],
        changes: dict[Key, ActiveLimit | None],
        entries: list[Entry],
        now: datetime,
    ) -> None:
        key, active = candidate.key, before.get(candidate.key)
        policy, limit = self._policies[key.policy], active.limit if active else None
        verdict = self._minds.decide(key, self._terms[key.policy], seen, limit, candidate.alert, now.timestamp())
        log.debug("%s: %s (%s): %s", key, verdict.kind.value, verdict.code, verdict.reason)
        acts = rows.in_force(policy, active)
        if not acts and seen is not None and verdict.code == NOT_OBEYED:  # nobody was asked to
            verdict = dataclasses.replace(verdict, reason=rows.unasked(policy, seen, verdict.reason))
        shadow = None if acts else self._shadow(key, limit, seen, now)
        again = verdict.kind is Kind.SKIP and self._refused.get(key) == verdict.code
        if verdict.kind is not Kind.SKIP:
            self._refused.pop(key, None)
        if (again or verdict.kind is Kind.WAIT) and verdict.limit == limit:
            return  # as most looks: nothing to be said, nothing to be remembered
        lost = acts and verdict.limit is not None and _lost_effect(limit, verdict.limit)
        lost = lost and self._actuators[policy.actuator].shows_in_arrivals
        if verdict.kind is Kind.WAIT and active is not None and verdict.limit is not None and not lost:
            changes[key] = dataclasses.replace(active, rule=candidate.rule, limit=verdict.limit, shadow=shadow)
            return  # as most others: nothing to be said
        entry = rows.decided(policy, candidate, seen, active, verdict, now)
        if verdict.kind is Kind.SKIP:
            entries += self._newly_refused(key, verdict.code, entry)
        elif verdict.kind is not Kind.WAIT:
            entries.append(entry if verdict.limit is not None else rows.with_shadow(entry, shadow))
        if verdict.limit is None:
            if active is not None:
                changes[key] = None
            return
        if lost:
            entries.append(rows.without_effect(entry, verdict.limit, seen))
        if verdict.limit != limit:
            changes[key] = rows.active_limit_of(policy, candidate, entry, verdict.limit, active, shadow)

    def _shadow(self, key: Key, limit: Limit | None, seen: Observation | None, now: datetime) -> Shadow | None:
        """What the limit of ``key`` that is not in force would have done by ``now``."""
        if limit is None or seen is None or self._policies[key.policy].counts:  # a fluid has a rate
            return self._shadows.get(key)
        rate, age = seen.arrival_rate, seen.quiet_age_seconds
        before = self._shadows.get(key) or Shadow(limit.changed_at, limit.changed_at)
        self._shadows[key] = shadow = shadows.look(before, rate, limit.rate, age, now.timestamp())
        return shadow

    def _with_shadow(self, item: ActiveLimit) -> ActiveLimit:
        shadow = self._shadows.get(item.key)
        return dataclasses.replace(item, shadow=shadow) if item.dry_run and shadow is not None else item

    def _commit(
        self, changes: Mapping[Key, ActiveLimit | None], entries: Sequence[Entry], before: Mapping[Key, ActiveLimit]
    ) -> None:
        with self._lock:
            # An operator may have revoked or paused while the metrics were read: the operator wins.
            overruled = {key for key in changes if self.paused or self._active_limits.get(key) is not before.get(key)}
            changes = {key: change for key, change in changes.items() if key not in overruled}
            entries = [entry for entry in entries if rows.key_of(entry) not in overruled]
            enforced = self._enforce(_merged(self._active_limits, changes))
            changes = {
                key: change
                for key, change in changes.items()
                if enforced.failure(key.target, self._policies[key.policy].actuator) is None
            }
            entries = self._told_of([*entries, *self._news()], enforced)
            after = _merged(self._active_limits, changes)
            entries = rows.told_what_counts(entries, self._active_limits.values(), after.values())
            if changes or entries:
                try:
                    self._state.commit(changes, self._shown(entries))
                except SojournError:
                    self._enforce(self._active_limits)  # what cannot be remembered must not hold
                    raise
            self._active_limits = after
            self._shadows = {key: shadow for key, shadow in self._shadows.items() if key in after}
        for entry in entries:
            log.info("%s %s/%s/%s: %s", entry.decision, entry.broker, entry.queue, entry.tenant, entry.reason)

    def _expire(self, now: datetime) -> None:
        with self._lock:
            over = {key: item for key, item in self._active_limits.items() if item.limit.valid_until <= now.timestamp()}
            ended = "the lease ended and nobody renewed it"
            failing = {key: why for key, why in self._failing.items() if key in over}
            self._drop({key: one for key, one in over.items() if key not in failing}, "expire", ended, now)
            for key, why in failing.items():
                self._drop({key: over[key]}, "expire", f"the lease ended, and it could not be renewed: {why}", now)

    def _drop(
        self,
        active_limits: Mapping[Key, ActiveLimit],
        decision: str,
        reason: str,
        now: datetime,
        blocks: Mapping[Key, float] | None = None,
    ) -> None:
        """Lift ``active_limits`` whatever the metrics say; whether or not an actuator succeeds, nothing renews them."""
        with self._lock:
            there = {key: item for key, item in active_limits.items() if key in self._active_limits}
            if not there:
                return
            gone: dict[Key, ActiveLimit | None] = dict.fromkeys(there)
            before, self._active_limits = self._active_limits, _merged(self._active_limits, gone)
            enforced = self._enforce(self._active_limits)
            failure = {key: enforced.failure(key.target, item.actuator) for key, item in there.items()}
            dropped = [
                rows.dropped(
                    self._with_shadow(item), self._policies.get(key.policy), decision, reason, now, failure[key]
                )
                for key, item in there.items()
            ]
            dropped = [rows.with_facts(row, enforced.facts(rows.key_of(row).target, row.actuator)) for row in dropped]
            for key in there:
                self._shadows.pop(key, None)
            dropped = rows.told_what_counts(dropped, before.values(), self._active_limits.values())
            self._state.commit(gone, self._shown(dropped), blocks)

    def _enforce(self, active_limits: Mapping[Key, ActiveLimit]) -> Enforced:
        """Tell each actuator all that shall hold; what became of it."""
        failed: dict[str, str] = {}
        told: dict[Place, Told] = {}
        for name, actuator in self._actuators.items():
            try:
                mine = [item for item in active_limits.values() if item.actuator == name and not item.dry_run]
                parts = {item.key: self._groups.parts(item) for item in mine}
                answers = actuator.enforce([part for item in mine for part in parts[item.key]])
                told |= {(target, name): one for target, one in answers.items()}
                told |= {(key.target, name): together(those, answers) for key, those in parts.items() if len(those) > 1}
            except SojournError as error:
                log.error("actuator %s failed: %s", name, error)
                failed[name] = str(error)
        return Enforced(failed, told)

    def _told_of(self, entries: Sequence[Entry], enforced: Enforced) -> list[Entry]:
        """``entries`` with what became of them; a failure that was told already is no news."""
        told = []
        for entry in entries:
            key = rows.key_of(entry)
            failure = enforced.failure(key.target, entry.actuator)
            if failure is None:
                self._failing.pop(key, None)
                told.append(rows.with_facts(entry, enforced.facts(key.target, entry.actuator)))
            elif entry.outcome != "applied":
                if not rows.says_no_effect(entry):  # of what is not in force nobody can say so
                    told.append(entry)
            elif self._failing.get(key) != failure:
                self._failing[key] = failure
                told.append(rows.with_failure(entry, failure))
        return told

    def _news(self) -> list[Entry]:
        """Rows of what became of limits since, without our telling."""
        now = self._clock.now()
        return [rows.of_news(one, now) for actuator in self._actuators.values() for one in actuator.news()]

    def _outdated(self) -> dict[Key, ActiveLimit]:
        """Limits of policies that are no more, that came to be tried dry, or ceased to be."""
        policies = self._policies
        return {
            key: item
            for key, item in self._active_limits.items()
            if key.policy not in policies
            or policies[key.policy].mode == ("dry_run", "auto")[item.dry_run]
            or (item.dry_run and item.proposed != (policies[key.policy].mode == "approve"))
        }

    def _newly_refused(self, key: Key, code: str, entry: Entry) -> list[Entry]:
        before, self._refused[key] = self._refused.get(key), code
        return [] if before == code else [entry]

    def _unusable_entries(
        self, unusable: Sequence[Unusable], candidates: Sequence[Candidate], now: datetime
    ) -> list[Entry]:
        """Rows for alerts that no policy can act on; forgets the refusals of alerts that are gone."""
        entries: list[Entry] = []
        current = {candidate.key for candidate in candidates}
        for item in unusable:
            key, entry = rows.refused(item, self._policies.get(item.policy), now)
            entries += self._newly_refused(key, item.code, entry)
            current.add(key)
        self._refused = {key: code for key, code in self._refused.items() if key in current}
        self._minds.keep(current)
        self._failing = {key: failure for key, failure in self._failing.items() if key in current}
        return entries


def _merged(before: Mapping[Key, ActiveLimit], changes: Mapping[Key, ActiveLimit | None]) -> dict[Key, ActiveLimit]:
    return {key: item for key, item in {**before, **changes}.items() if item is not None}


def _lost_effect(before: Limit | None, after: Limit) -> bool:
    return after.obeyed is False and (before is None or before.obeyed is not False)
