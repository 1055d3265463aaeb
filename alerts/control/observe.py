"""What the metrics say about the queues and tenants that may be acted on: three SELECTs for all of them together.

What laws of their own are judged by (:mod:`alerts.control.signals`) is asked beside them, where one is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from alerts.control import statements
from alerts.control.active_limit import Target
from alerts.control.signals import with_deliveries, with_publishing, with_work
from alerts.laws.costs import relative
from alerts.laws.observation import Observation
from lake.clock import ZERO, age

Query = Callable[[str], pa.Table]
_Row = dict[str, Any]
_Queue = tuple[str, str]  # broker, queue
#: What is usual is told anew so many times in as long as it is counted over.
RENEWED = 6


def observe(
    query: Query,
    targets: Iterable[Target],
    now: datetime,
    recent_seconds: int,
    ahead: timedelta = ZERO,
    members: Mapping[Target, frozenset[str]] = MappingProxyType({}),
    signals: Mapping[str, float] = MappingProxyType({}),
    usual_seconds: int = 0,
    remembered: Usually | None = None,
    brief_seconds: int = 0,
    held: Collection[Target] = (),
) -> dict[Target, Observation]:
    """An observation of each target whose queue is in the metrics; several subscribers of a queue count as the worst.

    A target that is a group is its ``members`` together.

    ``recent_seconds`` is how far back a tenant's arrivals are counted: the views' window would still show, for a
    minute, what came before a limit. ``brief_seconds`` is the same for what is to be seen ``lately``, too.
    What is usual is told by the views' window, or by so many seconds before now
    (``usual_seconds``) where that is too short to tell; what is ``remembered`` of it is not read again at each look.
    Quiet tenants are those neither noisy nor in ``targets``; beside a group all are that are neither of it nor
    ``held`` by a limit: who is noisy is told by the number of tenants, of which a group is many.
    ``signals`` of :data:`~alerts.control.signals.SIGNALS` are measured, too, each over so many seconds.
    The wall clock is ``ahead`` of ``now``: what comes from the future by both has a negative age.
    """
    wanted = frozenset(target for target in targets if statements.literal(target.broker) is not None)
    if not wanted:
        return {}
    units = _Units(wanted, members)
    scope = statements.Scope.of(wanted, frozenset(units.names))
    tenants = _subscriptions(query(statements.tenants(scope)).to_pylist(), units)
    health = _by_queue(query(statements.health(scope)).to_pylist())
    as_of = {queue[0]: max(item.as_of for item in found) for queue, found in tenants.items() if found}
    remembered = remembered or Usually()
    seconds = 0 if remembered.knows(scope, as_of, usual_seconds) else usual_seconds
    sql = statements.flows(scope, as_of, recent_seconds, seconds, brief_seconds) if as_of else None
    flows = {} if sql is None else _flows(query(sql).to_pylist(), units)
    if usual_seconds:
        flows = remembered.added(flows, scope, as_of, told=seconds > 0)
    observations = {}
    for target in sorted(wanted):
        queue = (target.broker, target.queue)
        backlogs = [item.backlog for item in tenants.get(queue, ())]
        if backlogs and None not in backlogs and health.get(queue):  # unknown while history is incomplete
            flow = flows.get(queue, _Flow())
            usual = _usual(tenants[queue], target.tenant)
            if usual_seconds:
                usual = flow.usual(target.tenant, remembered.until(target.broker), usual_seconds)
            seen = _observation(target.tenant, tenants[queue], health[queue], flow, recent_seconds, usual, now, ahead)
            if members.get(target):
                seen = _beside_group(seen, target, tenants[queue], flow, held, recent_seconds)
            if flow.briefly is not None:
                seen = replace(seen, lately=_lately(seen, target.tenant, flow.briefly, brief_seconds))
            observations[target] = seen
    if observations and "deliveries" in signals:
        sql = statements.deliveries(scope, as_of, signals["deliveries"], recent_seconds)
        observations = with_deliveries(observations, query(sql).to_pylist(), units.of, recent_seconds)
    if observations and "work" in signals:
        work, bounds = (query(sql(scope)).to_pylist() for sql in (statements.work, statements.prefetch))
        observations = with_work(observations, work, bounds, units.of)
    if observations and "publishing" in signals:
        brokers, wall = {target.broker for target in observations}, now + ahead
        rows = query(statements.publishing(scope, brokers, wall, signals["publishing"])).to_pylist()
        observations = with_publishing(observations, rows, wall, signals["publishing"])
    return observations


class _Units:
    """Whose row is whose: a tenant's is its own, and its group's, as far as they are wanted."""

    def __init__(self, wanted: Iterable[Target], members: Mapping[Target, frozenset[str]]) -> None:
        self._units: dict[tuple[str, str, str], tuple[str, ...]] = {}  # by broker, queue, tenant
        self.names: set[str] = set()
        self._groups = frozenset((one.broker, one.queue, one.tenant) for one in wanted if members.get(one))
        for target in wanted:
            for name in members.get(target) or (target.tenant,):
                one = (target.broker, target.queue, name)
                self._units[one] = (*self._units.get(one, ()), target.tenant)
                self.names.add(name)

    def of(self, row: _Row) -> tuple[str, ...]:
        """The targets, by name, that ``row`` is of."""
        if row["target"] is None:
            return ()
        # A tenant's name may be wanted in one queue and not in another.
        return self._units.get((row["broker"], row["queue"], row["target"]), ())

    def group(self, row: _Row, names: tuple[str, ...]) -> str | None:
        """The wanted group, by name, that ``row`` of the targets ``names`` is of."""
        if not self._groups:
            return None
        return next((name for name in names if (row["broker"], row["queue"], name) in self._groups), None)


@dataclass(slots=True)
class _Subscription:
    """One subscriber's view of a queue, summed over all its tenants."""

    as_of: datetime
    backlog: int | None = None
    ready: int | None = None
    completion_rate: float = 0.0
    active_alone: int = 0
    active_groups: set[str] = field(default_factory=set)
    quiet_age: float = 0.0
    quiet_ready: int = 0
    arrival_rate: float = 0.0
    of_target: dict[str, float] = field(default_factory=dict)
    own_backlog: dict[str, int] = field(default_factory=dict)
    #: Of each tenant that is named: whose it is, its oldest message's age, how many wait.
    named: dict[str, tuple[tuple[str, ...], float, int]] = field(default_factory=dict)

    @property
    def active_tenants(self) -> int:
        """A group is one."""
        return self.active_alone + len(self.active_groups)


@dataclass(slots=True)
class _Flow:
    """What came into a queue and what was finished of it in the last seconds."""

    enqueued: float = 0.0
    #: From tenants that nobody names.
    unnamed: float = 0.0
    of_target: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    #: By target, and of all under "": seconds of work, and messages finished.
    work: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: By tenant that is named: the targets that it is of, what came from it, seconds of its work, how many finished.
    named: dict[str, tuple[tuple[str, ...], float, float, float]] = field(default_factory=dict)
    #: By tenant that is named, and under "" of all others, the oldest of what was tried for the first time.
    first_age: dict[str, float] = field(default_factory=dict)
    #: By subscriber, seconds of work.
    worked: dict[str, float] = field(default_factory=dict)
    #: The same over a longer time, where that is asked for; ``since`` is its first second of which anything is known.
    usually: _Flow | None = None
    #: The same over a shorter time, where that is asked for.
    briefly: _Flow | None = None
    since: float = math.inf

    def usual(self, tenant: str, end: float, seconds: int) -> tuple[float, float, float]:
        """What ``tenant`` and the others sent and consumers finished a second until ``end``, in that second and the
        ``seconds`` before it, as far as anything is known of them."""
        if self.usually is None:
            return 0.0, 0.0, 0.0
        span = max(1.0, min(seconds + end % 1.0, end - self.since))
        own = self.usually.of_target.get(tenant, 0.0)
        return own / span, max(0.0, self.usually.enqueued - own) / span, self.usually.slowest / span

    def oldest_first(self, tenants: Iterable[str], sent: float) -> float | None:
        """The oldest message of ``tenants`` at its first attempt; None where none began, or nobody tells.

        Of those who ``sent`` nothing, anybody's: who comes next waits no longer, in whatever order they came.
        """
        ages = [self.first_age[tenant] for tenant in tenants if tenant in self.first_age]
        return max(ages or (() if sent else self.first_age.values()), default=None)

    def rivals(self, tenant: str, seconds: float) -> tuple[float, ...]:
        """What each other tenant that is named sends a second, in messages of the queue's mean cost."""
        whole = self.work.get("", (0.0, 0.0))
        others = (one for one in self.named.values() if tenant not in one[0])
        return tuple(came / seconds * relative((work, finished), whole) for _, came, work, finished in others)

    def add(self, subscriber: str, names: Iterable[str], enqueued: float, finished: float) -> None:
        """What came from one tenant, of whom these targets are, and was finished of it."""
        self.enqueued += enqueued
        self.finished[subscriber] = self.finished.get(subscriber, 0.0) + finished
        for name in names:
            self.of_target[name] = self.of_target.get(name, 0.0) + enqueued

    def add_row(self, row: _Row, names: tuple[str, ...], span: str = "") -> None:
        """What ``row`` tells of a time whose columns begin so."""
        subscriber = row["subscriber"]
        came, finished, work = row[span + "enqueued"], row[span + "finished"], row.get(span + "work")
        self.add(subscriber, names, came, finished)
        if not names:
            self.unnamed += came
        else:
            _, before, seconds, messages = self.named.get(row["target"], ((), 0.0, 0.0, 0.0))
            worked = (seconds + work, messages + finished) if work else (seconds, messages)
            self.named[row["target"]] = names, before + came, *worked
        if work:  # whose work nobody tells, of him no cost is known
            self.worked[subscriber] = self.worked.get(subscriber, 0.0) + work
            for name in ("", *names):
                seconds, messages = self.work.get(name, (0.0, 0.0))
                self.work[name] = seconds + work, messages + finished

    def in_hand(self, seconds: float) -> float | None:
        """How many messages were in work on average, where least were; None where nobody tells."""
        return min(self.worked.values()) / seconds if self.worked else None

    def costs(self, tenant: str) -> tuple[float, float]:
        """What a message of ``tenant``, and one of all others, costs beside the queue's mean."""
        whole, own = self.work.get("", (0.0, 0.0)), self.work.get(tenant, (0.0, 0.0))
        others = max(0.0, whole[0] - own[0]), max(0.0, whole[1] - own[1])
        return relative(own, whole), relative(others, whole)

    @property
    def slowest(self) -> float:
        """What the slowest subscriber that works finished: its consumers are who a tenant could keep busy."""
        return min((count for count in self.finished.values() if count > 0), default=0.0)


class Usually:
    """What came and was finished over a longer time, from look to look: a sixth of that time is as good as all of it.

    Whoever is looked at for the first time has it told anew.
    """

    def __init__(self) -> None:
        self._scope: statements.Scope | None = None
        self._as_of: dict[str, datetime] = {}
        self._flows: dict[_Queue, _Flow] = {}

    def knows(self, scope: statements.Scope, as_of: Mapping[str, datetime], seconds: int) -> bool:
        """Whether what was told last is still good for a look at ``scope``."""
        since = ((at - self._as_of[broker]).total_seconds() for broker, at in as_of.items() if broker in self._as_of)
        same = scope == self._scope and as_of.keys() == self._as_of.keys()
        return same and all(0 <= passed < seconds / RENEWED for passed in since)

    def added(
        self, flows: dict[_Queue, _Flow], scope: statements.Scope, as_of: Mapping[str, datetime], *, told: bool
    ) -> dict[_Queue, _Flow]:
        """``flows`` with what is usual, which they were ``told`` themselves, or is remembered."""
        if told:
            self._scope, self._as_of, self._flows = scope, dict(as_of), flows
            return flows
        for queue, known in self._flows.items():
            flow = flows.setdefault(queue, _Flow())
            flow.usually, flow.since = known.usually, known.since
        return flows

    def until(self, broker: str) -> float:
        """The instant up to which it was told (unix seconds)."""
        return self._as_of[broker].timestamp()


def _subscriptions(rows: Iterable[_Row], units: _Units) -> dict[_Queue, list[_Subscription]]:
    found: dict[_Queue, dict[str | None, _Subscription]] = {}
    for row in rows:
        of_queue = found.setdefault((row["broker"], row["queue"]), {})
        if (item := of_queue.get(row["subscriber"])) is None:
            item = of_queue[row["subscriber"]] = _Subscription(row["as_of"])
        item.as_of = max(item.as_of, row["as_of"])
        if (backlog := row["backlog"]) is not None:
            item.backlog = (item.backlog or 0) + backlog
        if row["ready"] is not None:
            item.ready = (item.ready or 0) + row["ready"]
        item.completion_rate += row["completion_rate"] or 0.0
        item.arrival_rate += (arrivals := row["arrival_rate"] or 0.0)
        if not (names := units.of(row)):
            item.active_alone += row["active_tenants"]
            item.quiet_age = max(item.quiet_age, row["quiet_age"] or 0.0)
            item.quiet_ready += row["quiet_ready"] or 0
            continue
        item.named[row["target"]] = names, row["oldest_age"] or 0.0, row["ready"] or 0
        group = units.group(row, names)
        if group is None:
            item.active_alone += row["active_tenants"]
        elif row["active_tenants"]:
            item.active_groups.add(group)
        for name in names:
            item.of_target[name] = item.of_target.get(name, 0.0) + arrivals
            item.own_backlog[name] = item.own_backlog.get(name, 0) + (backlog or 0)
    return {queue: list(of_queue.values()) for queue, of_queue in found.items()}


def _flows(rows: Iterable[_Row], units: _Units) -> dict[_Queue, _Flow]:
    found: dict[_Queue, _Flow] = {}
    for row in rows:
        place, names = (row["broker"], row["queue"]), units.of(row)
        if (flow := found.get(place)) is None:
            flow = found[place] = _Flow()
        flow.add_row(row, names)
        if (began := row.get("first_age")) is not None:
            whose = row["target"] if names else ""
            flow.first_age[whose] = max(began, flow.first_age.get(whose, 0.0))
        if "brief_enqueued" in row:
            flow.briefly = flow.briefly or _Flow()
            flow.briefly.add_row(row, names, "brief_")
        if "since" in row:
            flow.since = min(flow.since, row["since"].timestamp())
            flow.usually = flow.usually or _Flow()
            flow.usually.add(row["subscriber"], names, row["usually_enqueued"], row["usually_finished"])
    return found


def _observation(
    tenant: str,
    tenants: list[_Subscription],
    health: list[_Row],
    flow: _Flow,
    recent_seconds: int,
    usual: tuple[float, float, float | None],
    now: datetime,
    ahead: timedelta,
) -> Observation:
    """``flow`` is of the ``recent_seconds``; what is ``usual`` are the tenant's arrivals, the others', and what is
    finished of the queue, a second (None: what the slowest subscriber finishes)."""
    # With several subscribers each must be trustworthy and calm, and the slowest one sets the share.
    slowest = min(tenants, key=lambda item: item.completion_rate / max(1, item.active_tenants))
    newest = [age(item.as_of, now, ahead).total_seconds() for item in tenants]
    data_age = min(newest) if min(newest) < 0 else max(newest)  # the worst: from the future, or the oldest
    sample_age = _worst([row["staleness_seconds"] for row in health], max)
    arrival, (own, others) = flow.of_target.get(tenant, 0.0), flow.costs(tenant)
    return Observation(
        data_age_seconds=data_age,
        sample_age_seconds=None if sample_age is None else sample_age + max(0.0, data_age),
        depth=_worst([row["depth"] for row in health], max),
        coverage=_worst([row["coverage"] for row in health], min),
        backlog=float(max(item.backlog or 0 for item in tenants)),
        quiet_age_seconds=max(item.quiet_age for item in tenants),
        calm=all(row["mode"] == "fast" for row in health),
        completion_rate=slowest.completion_rate if usual[2] is None else usual[2],
        active_tenants=slowest.active_tenants,
        arrival_rate=arrival / recent_seconds,
        others_rate=max(0.0, flow.enqueued - arrival) / recent_seconds,
        finish_rate=flow.slowest / recent_seconds,
        usual_rate=usual[0],
        others_usual=usual[1],
        ready=_worst([item.ready for item in tenants], max),
        cost=own,
        others_cost=others,
        cost_rests_on=flow.work.get(tenant, (0.0, 0.0))[1],
        recent_seconds=recent_seconds,
        own_backlog=float(max(item.own_backlog.get(tenant, 0) for item in tenants)),
        in_hand=flow.in_hand(recent_seconds),
        rivals=flow.rivals(tenant, recent_seconds),
        quiet_ready=float(max(item.quiet_ready for item in tenants)),
        quiet_rate=flow.unnamed / recent_seconds,
        quiet_first_age=flow.oldest_first(("",), flow.unnamed),
        first_age=flow.oldest_first((), 0.0),
    )


def _beside_group(
    seen: Observation,
    group: Target,
    tenants: Iterable[_Subscription],
    flow: _Flow,
    held: Collection[Target],
    seconds: int,
) -> Observation:
    """``seen`` of a group, beside which a named tenant is quiet that is neither of it nor ``held``."""
    limited = {one.tenant for one in held if (one.broker, one.queue) == (group.broker, group.queue)}

    def beside(name: str, names: tuple[str, ...]) -> bool:
        return group.tenant not in names and limited.isdisjoint((name, *names))

    age, ready = seen.quiet_age_seconds, seen.quiet_ready or 0.0
    for item in tenants:
        others = [(old, waits) for name, (names, old, waits) in item.named.items() if beside(name, names)]
        age = max(age, *(old for old, _ in others), 0.0)
        ready = max(ready, item.quiet_ready + sum(waits for _, waits in others))
    came = {name: came for name, (names, came, _, _) in flow.named.items() if beside(name, names)}
    sent = flow.unnamed + sum(came.values())
    first_age = flow.oldest_first(("", *came), sent)
    return replace(seen, quiet_age_seconds=age, quiet_ready=ready, quiet_rate=sent / seconds, quiet_first_age=first_age)


def _lately(seen: Observation, tenant: str, flow: _Flow, seconds: int) -> Observation:
    """``seen`` by what came and was finished in so many ``seconds``; consumers have shown what they did before."""
    arrival = flow.of_target.get(tenant, 0.0)
    return replace(
        seen,
        completion_rate=seen.throughput,
        arrival_rate=arrival / seconds,
        others_rate=max(0.0, flow.enqueued - arrival) / seconds,
        finish_rate=flow.slowest / seconds,
        rivals=flow.rivals(tenant, seconds),
        recent_seconds=seconds,
    )


def _usual(tenants: list[_Subscription], tenant: str) -> tuple[float, float, float | None]:
    """What ``tenant`` and the others sent over the window; each subscriber sees the same arrivals, or fewer."""
    seen = max(tenants, key=lambda item: item.arrival_rate)
    own = seen.of_target.get(tenant, 0.0)
    return own, max(0.0, seen.arrival_rate - own), None


def _worst(values: Sequence[float | None], choose: Callable[[list[float]], float]) -> float | None:
    """The worst of ``values``; unknown if one of them is."""
    known = [value for value in values if value is not None]
    return choose(known) if known and len(known) == len(values) else None


def _by_queue(rows: Iterable[_Row]) -> dict[_Queue, list[_Row]]:
    found: dict[_Queue, list[_Row]] = {}
    for row in rows:
        found.setdefault((row["broker"], row["queue"]), []).append(row)
    return found
