"""Evaluates the rules in rounds, and commits what they decided together with what receivers are to be told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from alerts.answer import Identities
from alerts.columns import firing
from alerts.evaluate import Freshness, Query, RuleMemory, evaluate, is_due, patience_with, reads_lake
from alerts.freshness import FreshnessProbe
from alerts.models import AlertInstance, AlertState, RuleEvaluation
from alerts.notify.notifications import RESOLVED_KEPT, Instant, Notifications, Planned
from alerts.notify.plan import Notice, merged
from alerts.overruns import Overruns
from alerts.received import GROUP, next_end, step_received
from alerts.rules.expression import ENGINE_VIEWS, bound
from alerts.rules.model import Rule
from alerts.rules.prepared import SOME_TIME
from alerts.sampled import SampledTenants
from alerts.settings import AlertSettings
from alerts.state import Transition, removed
from alerts.store import ApiState, Author, Given, Resolved, States
from alerts.views_cache import ViewCache
from lake.clock import ZERO
from lake.definitions import Definitions
from lake.select import check, tables_of, without_values
from lake.tables import TABLES
from lake.views import VIEWS
from lake.worker.worker import Overrun

log = logging.getLogger(__name__)

#: How often the progress of rules is written when nothing else is: what a crash may add to a ``for``.
HEARTBEAT = timedelta(seconds=1)
#: For how long (seconds) a round goes on to read views: policies wait until it is over.
READING = 0.1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the engine knows after a round, for readers in other threads.

    Its instants are of the engine's clock; people are shown them moved ``ahead``, as the wall clock stands.
    """

    at: datetime | None = None
    freshness: Freshness = field(default_factory=lambda: Freshness(None, None, True))
    evaluations: tuple[RuleEvaluation, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    ahead: timedelta = ZERO

    def firing(self, others: Iterable[AlertInstance] = ()) -> list[AlertInstance]:
        """What fires by rules, and those of ``others``: one alert a fingerprint."""
        alerts = [alert for evaluation in self.evaluations for alert in firing(evaluation.alerts)]
        return [notice.alert for notice in merged(Notice(alert) for alert in (*alerts, *others))]


class Engine:
    """The rules with their memory. One engine belongs to one thread; ``snapshot`` may be read from any.

    ``published`` is called after each commit that put something into the outbox. ``api_state`` has what people and
    other programs said: silences, acknowledgements, alerts; ``tenants`` reads what samplers told of tenants;
    ``groups`` says which of them count as one now.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        settings: AlertSettings,
        states: States,
        probe: FreshnessProbe,
        query: Query,
        views: ViewCache,
        definitions: Callable[[], Definitions],
        published: Callable[[], None],
        external_url: str,
        api_state: ApiState | None = None,
        tenants: SampledTenants | None = None,
        groups: Callable[[Query, datetime], pa.Table] | None = None,
    ) -> None:
        self._groups = groups
        self._rules = rules
        self._settings = settings
        self._states = states
        self._probe = probe
        self._tenants = tenants
        self._query = query
        self._definitions = definitions
        self._published = published
        self._views = views
        self._api_state = api_state
        self._given = Given()
        self._received_due: datetime | None = None
        self._overruns = Overruns()
        early = {policy.name for policy in settings.control.policies if policy.early}
        self._early = frozenset(rule.key for rule in rules if not early.isdisjoint(rule.actions))
        self._identities = {rule.key: Identities() for rule in rules}
        self._evaluations: dict[tuple[str, str], RuleEvaluation] = {}
        self._looked: dict[tuple[str, str], datetime] = {}  # when the round began in which it was evaluated
        self._failing_since: dict[tuple[str, str], datetime] = {}
        self._memories, resolved = states.load()
        self._resolved = {(r.alert.group, r.alert.rule, r.alert.fingerprint): r for r in resolved}
        self._notifications = Notifications(settings, states.load_told(), external_url)
        self._heartbeat: datetime | None = None
        self._ahead = ZERO
        self.snapshot = Snapshot(resolved=tuple(resolved))
        self.behind = False

    def query(self, sql: str) -> pa.Table:
        """Rows for policies, from the very reading of the views that the rules last saw."""
        _read_by(sql)
        return self._views.query(sql)

    def newest(self, sql: str) -> pa.Table:
        """As :meth:`query`, of the views as they are now, though the rules have yet to read them."""
        self._views.refresh(_read_by(sql))
        return self._views.query(sql)

    def round(
        self,
        now: datetime,
        *,
        new_data: bool,
        everything: bool = False,
        ahead: timedelta = ZERO,
        act: Callable[[Sequence[RuleEvaluation]], None] = lambda _: None,
    ) -> tuple[RuleEvaluation, ...]:
        """Evaluate every rule that is due at ``now``, and return the newest evaluation of each rule.

        ``now`` is of a clock that nobody sets (:class:`lake.clock.Clock`), and the wall clock ``ahead`` of it.
        ``act`` is told of them once: as soon as those rules were looked at whose policies are ``early``, which wait for
        no others; where there are none, or for ``everything``, at the end.

        What is decided over one view is committed and announced before another is read, that one first which has
        waited longest for what it costs. Once a round has taken READING, it reads no more of them: ``behind`` says that
        some wait for the next round; with ``everything`` none does.
        """
        started = time.monotonic()
        self._ahead = ahead
        self._notifications.settle(self._states.take_settled())
        self._forget_removed_rules(now)
        self._take_given(now)
        if new_data:
            self._views.outdate()
        freshness, table = self._probe.read(self._query, now, ahead, new_data=new_data)
        self._views.put("data_freshness", table)
        if self._groups is None:
            self._views.put("tenant_groups", ENGINE_VIEWS["tenant_groups"].empty_table())
        self._views.put("sampled_tenants", self._sampled(now, ahead))
        definitions = self._definitions()
        due = [(self._order(rule, started), rule) for rule in self._rules if self._is_due(rule, now)]
        due.sort(key=itemgetter(0))
        self.behind, has_read = False, False
        acted, at_the_end = False, everything or not self._early
        for (*_, tables), group in groupby(due, key=lambda one: (*one[0][1:4], one[1].tables)):
            found = [rule for _, rule in group]
            if not (acted or at_the_end) and found[0].key not in self._early:
                act(tuple(self._evaluations.values()))
                acted = True
            must_read = not freshness.stale and self._views.outdated(tables)
            late = has_read and time.monotonic() - started > READING
            if must_read and not everything and (late or not self._views.may_read(tables)):
                self.behind = True
                continue
            has_read = has_read or must_read
            self._looked |= dict.fromkeys((rule.key for rule in found), now)
            self._evaluate(found, freshness, definitions, now + timedelta(seconds=time.monotonic() - started))
        if self._notifications.is_due(now):  # when no rule was due
            self._commit((), (), (), freshness.as_of, now)
        self._end_acknowledgements(now)
        evaluations = tuple(self._evaluations.values())
        self.snapshot = Snapshot(now, freshness, evaluations, tuple(self._resolved.values()), ahead)
        if not acted:
            act(evaluations)
        return evaluations

    def close(self, now: datetime) -> None:
        """Write down how far the rules came."""
        try:
            self._states.commit(now, None, memories=self._memories, ahead=self._ahead)
        finally:
            self._views.close()

    def _order(self, rule: Rule, at: float) -> tuple[Any, ...]:
        """What overran goes last, so that it delays nobody; whom policies in a hurry ask goes first, and rules that
        can wait go behind those that cannot."""
        urgency = self._views.urgency(rule.tables, at)
        waits, later = self._patience(rule) is not None, rule.key not in self._early
        return rule.key in self._overruns, later, waits, not reads_lake(rule), -urgency, sorted(rule.tables)

    def _answer(self, rule: Rule, sql: str, at: datetime, now: datetime) -> pa.Table:
        """Rows of ``rule`` as of ``at``; an Overrun is noted, and raised again unasked as long as the rule rests."""
        self._overruns.check(rule.key, now)
        self._views.refresh(rule.tables)
        try:
            rows = self._views.query(sql, at)
        except Overrun as error:
            raise self._overruns.note(rule.key, error, now) from error
        self._overruns.forgive(rule.key)
        return rows

    def _is_due(self, rule: Rule, now: datetime) -> bool:
        last = self._evaluations.get(rule.key)
        if last is None or not is_due(rule, last.evaluated_at, now):
            return last is None
        return is_due(rule, self._looked.get(rule.key), now, self._patience(rule))

    def _patience(self, rule: Rule) -> timedelta | None:
        last = self._evaluations.get(rule.key)
        if last is None or not last.ok or last.stale:
            return None
        return patience_with(rule, self._memories.get(rule.key, RuleMemory()), self._settings.interval)

    def _evaluate(self, rules: Sequence[Rule], freshness: Freshness, definitions: Definitions, now: datetime) -> None:
        transitions: list[Transition] = []
        rewritten = []
        for rule in rules:
            if "rule_health" in rule.tables:
                self._views.put("rule_health", self._health(now))
            if "notification_health" in rule.tables:
                receivers = [receiver.name for receiver in self._settings.receivers]
                self._views.put("notification_health", self._states.notification_health(receivers, now))
            memory = self._memories.get(rule.key, RuleMemory())

            def query(expr: str, rule: Rule = rule) -> pa.Table:
                if "tenant_groups" in rule.tables and self._groups is not None:
                    self._views.refresh({"tenant_backlog_now"})
                    self._views.put("tenant_groups", self._groups(self._views.query, now))
                told = bound(expr, SOME_TIME, definitions)
                return self._answer(rule, told, freshness.watermark or now + self._ahead, now)

            outcome = evaluate(rule, memory, query, freshness, now, self._identities[rule.key])
            if outcome.rewritten:
                rewritten.append(rule.key)
            self._memories[rule.key] = outcome.memory
            self._note_health(rule, outcome.evaluation, now)
            self._evaluations[rule.key] = outcome.evaluation
            transitions += outcome.transitions
        self._commit(transitions, rewritten, rules, freshness.as_of, now)

    def _sampled(self, now: datetime, ahead: timedelta) -> pa.Table:
        if self._tenants is None:
            return ENGINE_VIEWS["sampled_tenants"].empty_table()
        return self._tenants.read(now, ahead)

    def _note_health(self, rule: Rule, evaluation: RuleEvaluation, now: datetime) -> None:
        if evaluation.ok:
            self._failing_since.pop(rule.key, None)
        elif rule.key not in self._failing_since:
            self._failing_since[rule.key] = now
            log.error("rule %s of group %s: %s", rule.name, rule.group, evaluation.error)

    def _health(self, now: datetime) -> pa.Table:
        rows = [
            {
                "rule_group": evaluation.group,
                "rule": evaluation.rule,
                "ok": evaluation.ok,
                "stale": evaluation.stale,
                "error": evaluation.error,
                "failing_seconds": (now - self._failing_since.get(key, now)).total_seconds(),
                "alerts": len(evaluation.alerts),
            }
            for key, evaluation in self._evaluations.items()
        ]
        return pa.Table.from_pylist(rows, schema=ENGINE_VIEWS["rule_health"])

    def _commit(
        self,
        transitions: Sequence[Transition],
        rewritten: Iterable[tuple[str, str]],
        rules: Sequence[Rule],
        as_of: datetime | None,
        now: datetime,
    ) -> None:
        for transition in transitions:
            alert = transition.alert
            key = (alert.group, alert.rule, alert.fingerprint)
            if transition.to_state is AlertState.INACTIVE and transition.from_state.is_firing:
                self._resolved[key] = Resolved(alert, now)
            else:
                self._resolved.pop(key, None)
            log.info("%s %s: %s → %s (%s)", alert.rule, dict(alert.labels), *_words(transition))
        beat = self._heartbeat is None or now - self._heartbeat >= HEARTBEAT
        plans = bool(transitions) or self._notifications.is_due(now)
        if not (plans or rewritten or beat):
            return
        forgotten = self._to_be_forgotten(now)
        planned = Planned()
        if plans:
            at = Instant(now, self._ahead, as_of)
            planned = self._notifications.plan(self._notices(as_of), self._given, at)
        memories = self._memories if beat else {rule.key: self._memories[rule.key] for rule in rules}
        self._states.commit(
            now,
            as_of,
            transitions=transitions,
            memories=memories,
            rewritten=rewritten,
            forgotten=forgotten,
            decisions=planned.decisions,
            messages=planned.messages,
            purged=planned.purged,
            ahead=self._ahead,
        )
        self._heartbeat = now if beat else self._heartbeat
        for gone in forgotten:
            del self._resolved[gone.alert.group, gone.alert.rule, gone.alert.fingerprint]
            self._notifications.outdate()  # its group may be gone with it
        self._notifications.committed(planned)
        if planned.messages:
            # Whoever delivers asks what is the case now, at once.
            self.snapshot = replace(self.snapshot, evaluations=tuple(self._evaluations.values()))
            self._published()

    def _take_given(self, now: datetime) -> None:
        """Learn what people and other programs said since, and when it was to end."""
        if self._api_state is None:
            return
        given, known = self._api_state.given, self._given
        if given is not known:
            self._given = given
            self._notifications.outdate()
        elif self._received_due is None or now < self._received_due:
            return
        memories, transitions = step_received(self._memories, given.received, now)
        self._memories = {key: one for key, one in self._memories.items() if key[0] != GROUP} | memories
        self._received_due = next_end(given.received, now)
        if transitions:
            self._commit(transitions, (), (), None, now)

    def _end_acknowledgements(self, now: datetime) -> None:
        """Who looked after an alert that is over looks after it no more."""
        if self._api_state is None or not self._given.acknowledgements:
            return
        known = {notice.alert.fingerprint for notice in self._notices(None) if notice.resolved_at is None}
        over = self._given.acknowledgements.keys() - known
        self._api_state.release(over, Author("sojourn", "resolved"), now + self._ahead)

    def _to_be_forgotten(self, now: datetime) -> list[Resolved]:
        """Resolved alerts are remembered as long as somebody still believes that they fire."""
        old = [gone for gone in self._resolved.values() if now - gone.at > RESOLVED_KEPT]
        if not old:
            return []
        believed = self._notifications.believed()
        return [gone for gone in old if gone.alert.fingerprint not in believed]

    def _notices(self, as_of: datetime | None) -> list[Notice]:
        told = [
            Notice(alert, None, None if group == GROUP else as_of)
            for (group, _), memory in self._memories.items()
            for alert in firing(memory.instances)
        ]
        return told + [Notice(gone.alert, gone.at, as_of) for gone in self._resolved.values()]

    def _forget_removed_rules(self, now: datetime) -> None:
        known = {rule.key for rule in self._rules}
        for key in [key for key in self._memories if key not in known and key[0] != GROUP]:
            memory = self._memories.pop(key)
            transitions = [removed(tracked.alert) for tracked in memory.alerts.values()]
            self._commit(transitions, (), (), None, now)
            self._states.forget_rule(key)


def _words(transition: Transition) -> tuple[str, str, str]:
    return transition.from_state.value, transition.to_state.value, transition.reason


def _read_by(sql: str) -> frozenset[str]:
    """The views that a policy asks, if it is a query over what rules may read; UserError otherwise. Statements of a
    kind, with other instants or names, are understood once."""
    return _read_by_once(without_values(sql)[0])


@lru_cache(maxsize=1024)
def _read_by_once(sql: str) -> frozenset[str]:
    return frozenset(tables_of(check(sql, {*VIEWS, *TABLES})))
