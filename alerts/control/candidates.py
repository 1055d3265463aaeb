"""From evaluations of rules to whom a policy may act on: what is known of each tenant's alert."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from alerts.control.active_limit import Key, RuleKey, Target
from alerts.laws.limits import Alert
from alerts.models import AlertInstance, AlertState, RuleEvaluation

#: A rule that was not evaluated for so long says nothing any more.
EVALUATION_MAX_AGE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tenant that an alert names, or that is limited already, and what the rule says about it now."""

    key: Key
    alert: Alert
    rule: RuleKey
    instance: AlertInstance | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """An alert that names a policy but no tenant that the policy could act on."""

    policy: str
    rule: RuleKey
    labels: Mapping[str, str]
    code: str
    reason: str


class Evaluations:
    """The newest evaluation of each rule, by group and name: rules are not all due at the same time."""

    def __init__(self) -> None:
        self._newest: dict[RuleKey, RuleEvaluation] = {}

    def add(self, evaluations: Iterable[RuleEvaluation]) -> None:
        """Remember ``evaluations`` in place of earlier ones of the same rules."""
        for evaluation in evaluations:
            self._newest[_key_of(evaluation)] = evaluation

    @property
    def as_of(self) -> datetime | None:
        """The newest event that any of them saw."""
        return max((one.data_as_of for one in self._newest.values() if one.data_as_of is not None), default=None)

    def candidates(
        self,
        active_limits: Mapping[Key, RuleKey],
        policies: Collection[str],
        now: datetime,
        early: Collection[str] = (),
    ) -> tuple[list[Candidate], list[Unusable]]:
        """All that a decision is due on: firing alerts with actions, pending ones of policies that are ``early``, and
        ``active_limits`` (key → rule that asked for it).

        An alert counts as gone only where its rule was evaluated well; a rule that failed, went stale or fell silent
        leaves it unknown.
        """
        found: dict[Key, Candidate] = {}
        unusable: list[Unusable] = []
        for evaluation in self._newest.values():
            trusted = self._trusted(evaluation, now)
            for policy in evaluation.actions:
                for instance in sorted(evaluation.alerts, key=_fired_first):
                    pends = policy in early and instance.state is AlertState.PENDING
                    if not (instance.state.is_firing or pends):
                        continue
                    target = _target(instance.labels)
                    fault = _fault(policy, policies, target)
                    if fault is not None or target is None:
                        code, reason = fault or ("no_tenant", "the alert names no tenant")
                        unusable.append(Unusable(policy, _key_of(evaluation), instance.labels, code, reason))
                        continue
                    key = Key(policy, target)
                    alert = Alert.ACTIVE if trusted else Alert.UNKNOWN
                    if key not in found or alert is Alert.ACTIVE:
                        found[key] = Candidate(key, alert, _key_of(evaluation), instance)
        for key, rule in active_limits.items():
            if key not in found:
                last = self._newest.get(rule)
                alert = Alert.GONE if last is not None and self._trusted(last, now) else Alert.UNKNOWN
                found[key] = Candidate(key, alert, rule)
        return list(found.values()), unusable

    def confirms(self, rules: Collection[str], target: Target, now: datetime) -> bool:
        """Whether one of ``rules`` (names) fires on fresh data for the queue of ``target``, not for another tenant."""
        return any(
            instance.state.is_firing
            and (instance.labels.get("broker"), instance.labels.get("queue")) == (target.broker, target.queue)
            and instance.labels.get("tenant") in (None, "", target.tenant)
            for evaluation in self._newest.values()
            if evaluation.rule in rules and self._trusted(evaluation, now)
            for instance in evaluation.alerts
        )

    def _trusted(self, evaluation: RuleEvaluation, now: datetime) -> bool:
        fresh = now - evaluation.evaluated_at <= EVALUATION_MAX_AGE
        return evaluation.ok and not evaluation.stale and fresh


def _key_of(evaluation: RuleEvaluation) -> RuleKey:
    return RuleKey(evaluation.group, evaluation.rule)


def _target(labels: Mapping[str, str]) -> Target | None:
    broker, queue, tenant = labels.get("broker"), labels.get("queue"), labels.get("tenant")
    return Target(broker, queue, tenant) if broker and queue and tenant else None


def _fault(policy: str, policies: Collection[str], target: Target | None) -> tuple[str, str] | None:
    if policy not in policies:
        return "unknown_policy", f"no policy is called {policy!r}: declare it in [[alert.control.policies]]"
    if target is None:
        return "no_tenant", "the alert's labels do not name a broker, a queue and a tenant"
    if target.tenant == "unknown":
        return "unknown_tenant", "messages without a tenant cannot be told apart, so they are not limited"
    return None


def _fired_first(instance: AlertInstance) -> tuple[datetime, str]:
    return instance.fired_at or instance.active_since, instance.fingerprint
