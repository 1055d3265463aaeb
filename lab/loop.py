"""The controller's loop in the simulated world: the metrics' definitions, and :func:`alerts.laws.throttle.decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts.laws.observation import Observation
from alerts.laws.throttle import Alert, Harm, Kind, Limit, Verdict, decide
from lab.entitled import Entitled
from lab.noisy import noisy_ones
from lab.queue import Account, Queue
from lab.scenario import Scenario

#: A tenant is noisy for so long before its alert fires, and quiet for so long before it is gone (seconds): the shipped
#: rule's, which the lab may not read; a test holds the two together, and an alert's life to the alerts' own.
FIRES_AFTER, GONE_AFTER = 2, 10
RECENT_SECONDS = 5


@dataclass(slots=True)
class Watch:
    """What the loop remembers of one tenant."""

    noisy: bool = False
    noisy_ticks: int = 0
    quiet_ticks: int = GONE_AFTER + 1
    firing: bool = False
    named: bool = False  # at any time
    limit: Limit | None = None
    harm: Harm | None = None

    def judge(self, noisy: bool) -> None:
        """One more second, and an alert on noisy tenants with `for` and `keep_firing_for`."""
        self.noisy = noisy
        self.noisy_ticks = self.noisy_ticks + 1 if noisy else 0
        self.quiet_ticks = 0 if noisy else self.quiet_ticks + 1
        self.firing = self.noisy_ticks > FIRES_AFTER or (self.firing and self.quiet_ticks <= GONE_AFTER)
        self.named |= self.firing


@dataclass(slots=True)
class Loop:
    """Looks at ``queue`` once a second; acts only if ``controlled``. ``quiet_ages`` are the quiet tenants' oldest."""

    queue: Queue
    scenario: Scenario
    controlled: bool
    entitled: Entitled | None = None
    watches: dict[str, Watch] = field(default_factory=dict)
    verdicts: list[tuple[float, str, Verdict]] = field(default_factory=list)
    quiet_ages: list[tuple[float, float]] = field(default_factory=list)
    backlogs: list[tuple[float, int]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to look."""
        self.watches = {name: Watch() for name in self.queue.accounts}
        self.queue.at(1.0, self._tick)
        if self.entitled is not None:
            self.entitled.start()

    def _tick(self) -> None:
        now, accounts = self.queue.now, self.queue.accounts
        worked = {name: _sum(item.processing, now, self.scenario.window_seconds) for name, item in accounts.items()}
        noisy = noisy_ones({name: watch.noisy for name, watch in self.watches.items()}, accounts, worked, now)
        for name, watch in self.watches.items():
            watch.judge(noisy[name])
        self.queue.told_noisy({name for name, is_noisy in noisy.items() if is_noisy})
        suspects = {tenant.name for tenant in self.scenario.tenants if tenant.suspect}
        self.quiet_ages.append((now, _oldest(accounts, now, leaving_out=suspects)))
        self.backlogs.append((now, self.queue.backlog))
        if self.controlled:
            limited = {name for name, watch in self.watches.items() if watch.firing or watch.limit is not None}
            for name in sorted(limited):
                self._act(name, self.watches[name], limited)
        self.queue.at(now + 1.0, self._tick)

    def _act(self, name: str, watch: Watch, limited: set[str]) -> None:
        now, terms = self.queue.now, self.scenario.terms
        if watch.limit is not None and watch.limit.valid_until <= now:
            watch.limit = None
        alert = Alert.ACTIVE if watch.firing else Alert.GONE
        verdict = decide(terms, self._observe(name, limited), watch.limit, alert, now, watch.harm)
        watch.harm = verdict.harm
        if verdict.kind not in (Kind.WAIT, Kind.HOLD):
            self.verdicts.append((now, name, verdict))
        before, watch.limit = watch.limit, verdict.limit
        if watch.limit is None:
            if before is not None:
                self.queue.at(now + self.scenario.lag_seconds, lambda: self.queue.release(name))
        elif verdict.kind is not Kind.WAIT:
            rate, until = watch.limit.rate, watch.limit.valid_until
            self.queue.at(now + self.scenario.lag_seconds, lambda: self.queue.limit(name, rate, until))

    def _observe(self, name: str, limited: set[str]) -> Observation:
        accounts, now, window = self.queue.accounts, self.queue.now, self.scenario.window_seconds
        elapsed = min(window, now)
        noisy = {key for key, watch in self.watches.items() if watch.noisy}
        oldest = _oldest(accounts, now)
        recent = min(RECENT_SECONDS, now)
        arrivals = {key: _sum(account.arrivals, now, RECENT_SECONDS) / recent for key, account in accounts.items()}
        usual = {key: _sum(account.arrivals, now, window) / elapsed for key, account in accounts.items()}
        return Observation(
            data_age_seconds=self.scenario.lag_seconds,
            sample_age_seconds=self.scenario.lag_seconds,
            depth=sum(account.ready for account in accounts.values()),
            coverage=1.0,
            backlog=self.queue.backlog,
            quiet_age_seconds=_oldest(accounts, now, leaving_out=noisy | limited),
            calm=oldest <= self.scenario.terms.target_seconds,
            completion_rate=sum(_sum(account.completions, now, window) for account in accounts.values()) / elapsed,
            active_tenants=sum(
                1 for account in accounts.values() if account.backlog or _sum(account.arrivals, now, window)
            ),
            arrival_rate=arrivals[name],
            others_rate=sum(arrivals.values()) - arrivals[name],
            finish_rate=sum(_sum(account.completions, now, RECENT_SECONDS) for account in accounts.values()) / recent,
            usual_rate=usual[name],
            others_usual=sum(usual.values()) - usual[name],
            ready=sum(account.ready for account in accounts.values()),
        )


def _sum(seconds: Mapping[int, float], now: float, window: int) -> float:
    """The sum over the last ``window`` whole seconds before ``now``."""
    return sum(seconds.get(second, 0) for second in range(int(now) - window, int(now)))


def _oldest(accounts: Mapping[str, Account], now: float, leaving_out: set[str] | None = None) -> float:
    ages = [
        now - next(iter(account.backlog.values()))
        for name, account in accounts.items()
        if account.backlog and name not in (leaving_out or ())
    ]
    return max(ages, default=0.0)
