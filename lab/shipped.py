"""What is shipped, run in the simulated world: the rule on noisy tenants, and the controller that acts on it.

Nothing is simulated of them but the clock, the views (:mod:`lab.metrics`) and the disk. What they decide reaches the
producers as it would through the limits API: from its board, a lag later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

from alerts.answer import Identities
from alerts.control.active_limit import ActiveLimit, Entry, Key
from alerts.control.actuators import LIMITS_API
from alerts.control.actuators.limits_api import LimitsApi
from alerts.control.board import Board, ServedLimit
from alerts.control.controller import Controller
from alerts.control.groups import Groups
from alerts.control.journal import Journal
from alerts.control.settings import ControlSettings
from alerts.control.state import State
from alerts.evaluate import Freshness, RuleMemory, evaluate
from alerts.models import RuleEvaluation
from alerts.rules.loader import BUILTIN, load_file
from alerts.rules.model import Rule
from lab.metrics import Metrics, instant, second
from lab.queue import Queue
from lab.scenario import Scenario
from lab.together import Together
from lake.clock import ZERO, Clock, Epoch
from lake.errors import SojournError

#: The files of the rules whose alerts policies act on; of the second those alone that are ``early``.
NOISY, FILLING = "noisy_tenant.yml", "filling_tenant.yml"
#: That of the rule on tenants that count as one.
GROUPS = "noisy_group.yml"


class Decision(NamedTuple):
    """What was decided about one tenant, as the journal tells it; rates in messages/s."""

    at: float
    tenant: str
    decision: str
    before: float | None
    after: float | None
    reason: str


@cache
def shipped_rule(file: str = NOISY) -> Rule:
    """The rule in that built-in file, on noisy tenants unless another one is named."""
    (rule,) = load_file(BUILTIN / file)
    return rule


class Alerts:
    """The life of one shipped rule's alerts; ``fired`` are the tenants that it ever fired for."""

    def __init__(self, metrics: Metrics | Together, file: str = NOISY) -> None:
        self.fired: set[str] = set()
        self._rule, self._metrics = shipped_rule(file), metrics
        self._memory, self._identities = RuleMemory(), Identities()
        self._last: RuleEvaluation | None = None

    def step(self, now: float) -> RuleEvaluation:
        """One evaluation. SojournError where it failed."""
        at = instant(now)
        if self._last is not None and not self._memory.alerts and not len(self._metrics.places(self._rule.expr)):
            self._last = replace(
                self._last, evaluated_at=at, data_as_of=at
            )  # as the engine: nothing changed, nothing asked
            return self._last
        found = evaluate(
            self._rule, self._memory, self._metrics.matching, Freshness(at, at, False), at, self._identities
        )
        if found.evaluation.error is not None:
            raise SojournError(found.evaluation.error)
        self._memory = found.memory
        self.fired |= {one.alert.labels["tenant"] for one in found.transitions if one.alert.state.is_firing}
        self._last = found.evaluation
        return self._last


class Controlled:
    """The shipped controller, under the scenario's policy, at ``queue``."""

    def __init__(self, queue: Queue, scenario: Scenario, metrics: Metrics, groups: Groups | None = None) -> None:
        name = shipped_rule().actions[0]
        policy = scenario.policy.model_copy(update={"name": name, "mode": "auto", "actuator": LIMITS_API})
        self._queue, self._metrics, self._lag = queue, metrics, timedelta(seconds=scenario.lag_seconds).total_seconds()
        self._board, self._state = Board(), Forgetful()
        self._controller = Controller(
            ControlSettings(policies=(policy,)),
            scenario.target,
            self._state,
            Unwritten(),
            {LIMITS_API: LimitsApi(self._board)},
            Path(os.devnull),  # there is no kill switch in it
            Clock(lambda: instant(queue.now), lambda: queue.now),
            groups,
            window_seconds=scenario.window_seconds,
        )
        self._served: dict[str, ServedLimit] = {}
        #: Whom a limit held at any time: of a group its members.
        self.limited: set[str] = set()
        self._version = self._board.snapshot.version

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All that was decided so far."""
        return tuple(
            Decision(second(one.at), one.tenant or "", one.decision, one.before, one.after, one.reason)
            for one in self._state.entries
        )

    def step(self, evaluations: Sequence[RuleEvaluation]) -> None:
        """One step of the controller; producers hear of what it changed a lag later."""
        now = self._queue.now
        self._controller.step(instant(now), evaluations, self._metrics.answer)
        snapshot = self._board.snapshot
        if snapshot.version == self._version:
            return
        self._version = snapshot.version
        before, self._served = self._served, {limit.tenant: limit for limit in snapshot.limits}
        self.limited |= self._served.keys()
        for tenant in before.keys() - self._served.keys():
            self._queue.at(now + self._lag, lambda tenant=tenant: self._queue.release(tenant))  # type: ignore[misc]
        for tenant, limit in self._served.items():
            if before.get(tenant) != limit:
                self._queue.at(now + self._lag, lambda limit=limit: self._obey(limit))  # type: ignore[misc]

    def _obey(self, limit: ServedLimit) -> None:
        self._queue.limit(limit.tenant, limit.rate, second(limit.valid_until), burst=limit.burst)


class Forgetful(State):
    """The controller's memory for one run, which nobody reads again but its ``entries``."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def active_limits(self) -> dict[Key, ActiveLimit]:
        """None: each run begins anew."""
        return {}

    def blocked(self) -> dict[Key, float]:
        """None: there are no operators."""
        return {}

    def shift(self, epoch: Epoch) -> timedelta:
        """The simulation's clock is the only one."""
        return ZERO

    def commit(
        self,
        changes: Mapping[Key, ActiveLimit | None],
        entries: Iterable[Entry],
        blocks: Mapping[Key, float] | None = None,
        *,
        ahead: timedelta | None = None,
        epoch: Epoch | None = None,
    ) -> None:
        """Remember the journal's ``entries``."""
        self.entries += entries


class Unwritten(Journal):
    """A journal without a lake."""

    def __init__(self) -> None:
        """There is nothing to open."""

    def flush(self) -> bool:
        """Nothing waits."""
        return True

    def full(self) -> bool:
        """Nor is anything too much."""
        return False
