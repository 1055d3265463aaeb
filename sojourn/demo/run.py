"""The demo from start to finish: start everything, let the scenario play, drain, measure, tell."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from alerts.control.receipts import AFTER, EVERY, TIMEOUT
from lake.definitions import Definitions
from lake.errors import SojournError
from lake.files import only_one, write_atomically
from lake.reader import Reader
from lake.store import Lake
from lake.tables import PARTIALS
from sojourn.demo import cast, measure, receipt, scenario
from sojourn.demo.broker import Broker, StreamReading, provision
from sojourn.demo.freshness import Freshness
from sojourn.demo.layout import DEFAULT_LAKE, Layout
from sojourn.demo.look import Looker
from sojourn.demo.patience import missing
from sojourn.demo.report import Report
from sojourn.demo.screen import Screen
from sojourn.demo.settings_file import WINDOW_SECONDS, settings_text
from sojourn.settings import load
from sojourn.supervise.patience import Patience
from sojourn.supervise.supervisor import TICK_SECONDS, Event, State, Supervisor
from spark_analytics.runtime.archive import make_later
from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java

#: How long the queue may take to be empty once nobody sends any more, the lake to show what the broker counted, the
#: alert and the limit to be over, and the lake after Ctrl-C. On a busy machine each comes, only later.
DRAIN_SECONDS, FLUSH_SECONDS, OVER_SECONDS, HASTY_FLUSH_SECONDS = 180.0, 60.0, 120.0, 2.0
#: How long a receipt may take after its limit's release, until it is given up; how often it is looked for; and how long
#: who waited for it has to read it.
RECEIPT_SECONDS, RECEIPT_EVERY_SECONDS, READ_SECONDS = AFTER.total_seconds() + TIMEOUT + 3 * EVERY, 2.0, 120.0
STOP_SECONDS, HASTY_STOP_SECONDS = 8.0, 5.0
INTERRUPTED = 130


def run(*, duration: float | None, headless: bool, lake: Path | None, stop: threading.Event, mode: str = "auto") -> int:
    """Run the demo, with its policy in ``mode``; the exit code: 0 all as it must be, 1 not so, 130 interrupted."""
    plan = scenario.Scenario.lasting(duration or scenario.DEFAULT_DURATION)
    layout = Layout((lake or DEFAULT_LAKE).expanduser().absolute())
    store = Lake(layout.lake)
    store.create()
    with only_one(store.state_path("run", "demo.lock"), "a demo on this lake"):
        demo = _Demo(plan, layout, headless, stop, mode)
        with demo.screen:
            report = demo.play()
    if report is None:
        demo.screen.say("interrupted before there was anything to tell")
        return INTERRUPTED
    make_later()  # the archive of Java's classes: the next demo starts with two thirds of Java's work
    return _tell(demo, report)


def _console() -> Console:
    """As wide as the terminal; wide enough for the table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


def _tell(demo: _Demo, report: Report) -> int:
    write_atomically(demo.layout.report, report.as_json())
    console = demo.screen.console
    console.print(report.as_table(), soft_wrap=not console.is_terminal)
    if report.interrupted:
        demo.screen.say("interrupted: what is above was counted in haste")
        return INTERRUPTED
    for problem in report.problems:
        demo.screen.say(f"✗ {problem}", "bold red")
    if report.receipt is not None:
        demo.screen.say(f"receipt, by the lab: {report.receipt.reason}")
    if report.dry_run:
        demo.screen.say(f"nobody was limited: {scenario.NOISY} was to be, and what the others waited is above", "bold")
    elif not report.problems:
        demo.screen.say(
            f"✓ {scenario.NOISY}, and nobody else, was named and throttled; nothing was lost or doubled", "bold green"
        )
    demo.screen.say(f"the same as JSON: {demo.layout.report}")
    demo.screen.say(f"""ask the lake: sojourn sql --lake {demo.layout.lake} "SELECT * FROM tenant_backlog_now" """)
    return 1 if report.problems else 0


@dataclass
class _Demo:
    plan: scenario.Scenario
    layout: Layout
    headless: bool
    stop: threading.Event
    mode: str = "auto"
    screen: Screen = field(default_factory=lambda: Screen(_console()))
    troubles: list[str] = field(default_factory=list)

    def play(self) -> Report | None:
        """Everything between the first process and the last; None if it was interrupted before the surge."""
        self.started = time.time()
        self.layout.prepare()
        self.broker = Broker.below(self.layout.broker)
        self.supervisor = Supervisor(
            self.layout.logs, self.layout.lake / "state" / "run" / "processes.json", self._on_event
        )
        self.freshness = Freshness(self.layout.lake / PARTIALS.path)
        self.looker = Looker(self.layout, self.broker, self.plan, self.freshness)
        try:
            self._start()
            self._until(lambda: self._elapsed() >= self.plan.traffic_seconds)
            return self._finish()
        finally:
            self.freshness.stop()
            self.supervisor.stop(within=HASTY_STOP_SECONDS if self.stop.is_set() else STOP_SECONDS)

    def _start(self) -> None:
        """Start every process, then the scenario's clock once the first metrics are there."""
        layout, supervisor = self.layout, self.supervisor
        ensure_java()
        ensure_jars()  # here, where its progress can be seen, and not in a child
        self.screen.say(f"lake: {layout.lake} (again on the same lake continues it)")
        ports = cast.Ports.free()
        write_atomically(layout.settings, settings_text(layout, self.broker, ports, mode=self.mode))
        Definitions(window_seconds=WINDOW_SECONDS, target_seconds=scenario.TARGET_SECONDS).save(layout.lake)
        parts = cast.parts(layout, self.broker, load(layout.settings))
        supervisor.start(parts["analyze"])  # the slowest to be ready
        supervisor.start(self.broker.child())
        if not self._ready("broker"):
            return
        asyncio.run(provision(self.broker.url))
        supervisor.start(cast.receiver(layout, ports))
        supervisor.start(parts["collect"])
        supervisor.start(parts["alert"])
        self.freshness.start()
        if not self._ready("collect"):  # what came and went before its tap, the broker could not tell any more
            return
        for child in (*cast.consumers(self.broker), *cast.producers(layout, self.broker, ports, self.plan)):
            supervisor.start(child)
        if not self._ready():
            return
        patience = Patience(lambda text: self.screen.say(text, "dim"))
        # Nothing is looked at meanwhile: there is nothing to see, and Spark needs the processor.
        self._until(lambda: self.freshness.first_metrics, meanwhile=lambda: patience.tell(lambda: missing(layout.lake)))
        if not self.freshness.first_metrics:
            return
        self.screen.say(f"first metrics {time.time() - self.started:.0f} s after the start", "dim")
        if not self.headless:
            supervisor.start(parts["dashboard"])
            if not self._ready("dashboard"):
                return
            self.screen.say(f"dashboard: http://127.0.0.1:{ports.dashboard}", "bold")
        if self.mode == "approve":
            where = "sojourn actions approve ID" if self.headless else f"http://127.0.0.1:{ports.dashboard}/actions"
            self.screen.say(f"{scenario.NOISY} is limited once somebody approves it: {where}", "bold")
        layout.start_clock(time.time())

    def _ready(self, *names: str) -> bool:
        """Wait for the named children, or all, however long they take; False if we are told to stop meanwhile."""
        patience = Patience(lambda text: self.screen.say(text, "dim"))

        def stopped() -> bool:
            patience.tell(lambda: ", ".join(self._unready(names)))
            return self.stop.is_set()

        self.supervisor.wait_ready(*names, unless=stopped, patient=True)
        return not self.stop.is_set()

    def _unready(self, names: tuple[str, ...]) -> list[str]:
        """Those of the named children, or of all, that are not ready yet."""
        states = self.supervisor.states()
        return [name for name in names or states if states[name] is not State.READY]

    def _finish(self) -> Report | None:
        """Let the queue drain and the lake catch up, then measure; in haste, and maybe nothing, if interrupted."""
        hasty = self.stop.is_set()
        if hasty:
            self.screen.say("stopping …")
        start = self.layout.clock_start()
        self._stop_all("producer", within=2.0)
        if start is None or (hasty and self._elapsed() < self.plan.phases[1].begins):
            return None
        # Whoever stopped consuming before would leave the alert firing for good.
        self._await(DRAIN_SECONDS, lambda: "the queue to be empty" if self._reading().held else "")
        self._stop_all("consumer", within=3.0)
        reader, reading = Reader(self.layout.lake), self._reading()
        patience = time.time() + (HASTY_FLUSH_SECONDS if hasty else FLUSH_SECONDS)
        while not (balance := measure.balance(reader, reading)).exact and time.time() < patience:
            self._pause()
            reading = self._reading()
        if not hasty:
            self._await(OVER_SECONDS, lambda: self._to_come(reader, start))
            if self.mode == "approve":
                self._await_receipt(start)
        return self._measured(reader, balance, start, hasty)

    def _to_come(self, reader: Reader, start: float) -> str:
        """What is to be over before it can be told; while that cannot be read, it is not."""
        entries = measure.webhooks(self.layout.webhooks, start)
        try:
            return " and ".join(measure.to_come(reader, entries, scenario.NOISY, start))
        except SojournError as error:
            return f"the lake: {error}"

    def _await(self, seconds: float, missing: Callable[[], str]) -> None:
        """Go on until nothing is ``missing``, and say what is; for so long at most."""
        patience, until = Patience(lambda text: self.screen.say(text, "dim")), time.time() + seconds

        def done() -> bool:
            if not (what := missing()) or time.time() > until:
                return True
            patience.tell(lambda: what)
            return False

        self._until(done)

    def _await_receipt(self, start: float) -> None:
        """Give who approved the limit its receipt, which the alert process works out a while after its release, and the
        time to read it on the page."""
        about = measure.enforced(Reader(self.layout.lake), start)
        if not any(action["decision"] in measure.BEGINNINGS for action in about):
            return
        self.screen.say("the limit's receipt comes within some three minutes; Ctrl-C ends the demo before", "dim")
        if self._paused_until(RECEIPT_SECONDS, lambda: receipt.told(self.layout.lake, about) is not None):
            self.screen.say("the limit's receipt is there, on the page Actions too; Ctrl-C ends the demo", "bold")
            self._paused_until(0.0 if self.headless else READ_SECONDS, lambda: False)

    def _paused_until(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Keep the children alive for so long, or until ``done``, which is told, or until we are told to stop."""
        patience = time.time() + seconds
        while time.time() < patience and not self.stop.wait(RECEIPT_EVERY_SECONDS):
            self.supervisor.tick()
            if done():
                return True
        return False

    def _measured(self, reader: Reader, balance: measure.Balance, start: float, hasty: bool) -> Report:
        _, surge, after = self.plan.phases
        surge_at, end = start + surge.begins, start + self.plan.traffic_seconds
        first = measure.first_attempts(reader, start)
        quiet = [one for one in first if one.tenant != scenario.NOISY]
        entries = measure.webhooks(self.layout.webhooks, start)
        actions = measure.enforced(reader, start)
        detected, resolved = measure.alert_moments(reader, scenario.NOISY, surge_at)
        about = [action for action in actions if action["tenant"] == scenario.NOISY]
        moments = measure.Moments(
            surge=surge_at,
            surge_ends=start + after.begins,
            detected=detected,
            webhook=measure.first_webhook(entries, scenario.NOISY),
            throttled=_first(about, *measure.BEGINNINGS),
            recovered=measure.recovery(quiet, surge_at, min(end, time.time())),
            resolved=resolved,
            released=_released(about),
        )
        return Report(
            moments=moments,
            ages=measure.quiet_ages(quiet, moments),
            webhook_delays=measure.webhook_delays(reader, entries, start),
            freshness=self.freshness.between(start, min(end, time.time())),
            balance=balance,
            accused=frozenset(measure.accused(reader, start)),
            throttled=frozenset(measure.throttled(actions)),
            unverified_webhooks=sum(not entry["verified"] for entry in entries),
            shed=self.looker.shed(),
            restarts={name: count for name in self.supervisor.states() if (count := self.supervisor.restarts(name))},
            interrupted=hasty,
            dry_run=self.mode == "dry_run",
            receipt=None
            if hasty
            else receipt.told(self.layout.lake, about) or receipt.of_surge(self.layout.lake, about, self.looker.shed()),
        )

    def _until(self, done: Callable[[], bool], meanwhile: Callable[[], None] | None = None) -> None:
        """Keep the children alive until ``done``, or until we are told to stop; and the screen moving, or whatever is
        to be done ``meanwhile``."""
        while not self.stop.is_set() and not done():
            self.supervisor.tick()
            if failed := [name for name, state in self.supervisor.states().items() if state is State.FAILED]:
                raise self.supervisor.failure(failed[0])
            if meanwhile is not None:
                meanwhile()
            elif self.screen.wants:
                self.screen.show(self.looker.look(time.time(), self.troubles))
            time.sleep(TICK_SECONDS)

    def _pause(self) -> None:
        self.supervisor.tick()
        time.sleep(0.3)

    def _elapsed(self) -> float:
        start = self.layout.clock_start()
        return time.time() - start if start is not None else -1.0

    def _stop_all(self, kind: str, within: float) -> None:
        if names := [name for name in self.supervisor.states() if name.startswith(kind)]:
            self.supervisor.stop(*names, within=within)

    def _reading(self) -> StreamReading:
        return self.broker.reading()

    def _on_event(self, event: Event) -> None:
        self.troubles.append(f"{event.child}: {event.text}")
        self.screen.say(f"{event.child}: {event.text}", "red" if event.bad else "dim")


def _first(actions: list[dict[str, object]], *decisions: str) -> float | None:
    for action in actions:
        if action["decision"] in decisions:
            return float(action["at"].timestamp())  # type: ignore[attr-defined]
    return None


def _released(actions: list[dict[str, object]]) -> float | None:
    """When the tenant was let go for good; None while a limit is in force."""
    last = next(
        (action for action in reversed(actions) if action["decision"] in ("throttle", "relax", "release")), None
    )
    return _first([last], "release") if last else None
