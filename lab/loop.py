"""Looks at the simulated queue once a second: what is measured of it, and what the shipped control does about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lab.entitled import Entitled
from lab.metrics import Metrics
from lab.queue import Queue
from lab.scenario import Scenario
from lab.shipped import FILLING, GROUPS, Alerts, Controlled, Decision
from lab.together import Together


@dataclass(slots=True)
class Loop:
    """Looks at ``queue``; acts only if ``controlled`` or ``entitled``, and judges who is noisy only if ``judging`` or
    to act. ``quiet_ages`` are the oldest of tenants that are not reported apart. ``demand`` are the seconds in which
    something was asked for that was not worked on: it waited, its producer held it, or shed it."""

    queue: Queue
    scenario: Scenario
    controlled: bool = False
    entitled: bool = False
    glances: bool = False
    judging: bool = False
    quiet_ages: list[tuple[float, float]] = field(default_factory=list)
    backlogs: list[tuple[float, int]] = field(default_factory=list)
    demand: set[int] = field(default_factory=set)
    alerts: Alerts | None = None
    metrics: Metrics | None = None
    _early: Alerts | None = None
    _of_groups: Alerts | None = None
    _together: Together | None = None
    _controller: Controlled | None = None
    _quiet: list[bool] = field(default_factory=list)
    _shed: int = 0

    def start(self) -> None:
        """Begin to look."""
        self._quiet = [not tenant.suspect for tenant in self.scenario.tenants]
        metrics = Metrics(self.queue, self.scenario)
        if self.judging or self.controlled:
            self.metrics, self.alerts = metrics, Alerts(metrics)
        if self.controlled:
            self._early = Alerts(metrics, FILLING) if self.scenario.policy.early else None
            if self.scenario.together:
                self._together = Together(self.queue, metrics)
                self._of_groups = Alerts(self._together, GROUPS)
            groups = self._together.groups if self._together is not None else None
            self._controller = Controlled(self.queue, self.scenario, metrics, groups)
        self.queue.at(1.0, self._tick)
        if self.entitled:
            Entitled(self.queue, self.scenario, metrics, glances=self.glances).start()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What the controller decided so far."""
        return self._controller.decisions if self._controller is not None else ()

    @property
    def limited(self) -> set[str]:
        """Whom a limit of the controller's held so far."""
        return self._controller.limited if self._controller is not None else set()

    def _tick(self) -> None:
        now = self.queue.now
        self.queue.at(now + 1.0, self._tick)
        oldest = [account.oldest for account in self.queue.accounts.values()]
        longest = min((at for at, quiet in zip(oldest, self._quiet, strict=True) if quiet), default=math.inf)
        self.quiet_ages.append((now, max(0.0, now - longest)))
        self.backlogs.append((now, self.queue.backlog))
        self._note_demand(int(now) - 1)
        if self.metrics is None or self.alerts is None:
            return
        self.metrics.look(oldest)
        self.queue.told_noisy(self.metrics.noisy)
        if self._together is not None:
            self._together.look()
        rules = (self.alerts, self._early, self._of_groups)
        evaluations = [alerts.step(now) for alerts in rules if alerts is not None]
        if self._controller is not None:
            self._controller.step(evaluations)

    def _note_demand(self, second: int) -> None:
        accounts = self.queue.accounts.values()
        shed = sum(account.shed for account in accounts)
        if shed > self._shed or any(account.held or account.ready > 0 for account in accounts):
            self.demand.add(second)
        self._shed = shed
