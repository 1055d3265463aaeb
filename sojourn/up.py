"""``sojourn up``: the parts around the user's own brokers, supervised until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from lake.errors import UserError
from lake.files import only_one
from lake.store import Lake
from lake.visible import visible
from sojourn.parts import PARTS, part_child
from sojourn.settings import Settings
from sojourn.supervise.patience import Patience
from sojourn.supervise.supervisor import TICK_SECONDS, Event, State, Supervisor

STOP_SECONDS = 8.0


def up(settings: Settings, config: Path | None, root: Path, without: Sequence[str], stop: threading.Event) -> None:
    """Run the parts until ``stop`` is set. UserError, with the part's own words, where one refuses to start."""
    if unknown := sorted(set(without) - set(PARTS)):
        raise UserError(f"there is no part {unknown[0]!r}", f"parts are {', '.join(PARTS)}")
    console = Console(stderr=True)
    lake = Lake(root)
    lake.create()
    children = [part_child(name, settings, config, root) for name in PARTS if name not in without]
    supervisor = Supervisor(
        root / "state" / "logs", root / "state" / "run" / "processes.json", lambda event: _say(console, event)
    )
    with only_one(lake.state_path("run", "up.lock"), "sojourn up"):
        try:
            for child in children:
                supervisor.start(child)
            _wait(console, supervisor, stop)
            _say_ready(console, settings, root, supervisor)
            while not stop.is_set():
                supervisor.tick()
                if all(state is State.FAILED for state in supervisor.states().values()):
                    raise supervisor.failure(children[0].name)
                time.sleep(TICK_SECONDS)
        finally:
            supervisor.stop(within=STOP_SECONDS)


def _wait(console: Console, supervisor: Supervisor, stop: threading.Event) -> None:
    """Until all are ready, however long that takes on a busy machine: who refuses to run, or dies, says so itself."""
    patience = Patience(lambda text: console.print(text, style="dim", soft_wrap=True))

    def stopped() -> bool:
        states = supervisor.states()
        patience.tell(lambda: ", ".join(name for name, state in states.items() if state is not State.READY))
        return stop.is_set()

    supervisor.wait_ready(unless=stopped, patient=True)


def _say(console: Console, event: Event) -> None:
    console.print(
        f"[bold]{event.child}[/]: {escape(visible(event.text))}", style="red" if event.bad else "", soft_wrap=True
    )


def _say_ready(console: Console, settings: Settings, root: Path, supervisor: Supervisor) -> None:
    names = ", ".join(supervisor.states())
    console.print(f"running: {names}; lake {escape(str(root))}; logs {escape(str(supervisor.logs))}", soft_wrap=True)
    if "dashboard" in supervisor.states():
        from dashboard.run import address
        from dashboard.settings import DashboardSettings

        console.print(f"dashboard: {address(settings.section('dashboard', DashboardSettings))}", soft_wrap=True)
