"""What somebody who runs the demo sees while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lake.visible import visible
from sojourn.demo import scenario

LIVE_SECONDS = 1.0
PLAIN_SECONDS = 5.0
BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Status:
    """One look at the demo; ``elapsed`` counts from the scenario's start, before it from our own. None: not known."""

    phase: str
    elapsed: float
    total: float
    held: int | None = None
    backlogs: Mapping[str, int] = field(default_factory=dict)
    noisy: Sequence[str] = ()
    quiet_p99: float | None = None
    freshness: float | None = None
    alerts: Sequence[str] = ()
    limits: Sequence[str] = ()
    shed: int = 0
    troubles: Sequence[str] = ()

    def line(self) -> str:
        """The look in one plain line."""
        parts = [f"{self.elapsed:4.0f} s", f"{self.phase:<11}", f"backlog {_number(self.held)}"]
        parts += [f"quiet p99 {_seconds(self.quiet_p99)}", f"gold {_seconds(self.freshness)} old"]
        parts += [f"alerts: {', '.join(self.alerts) or 'none'}", f"limits: {', '.join(self.limits) or 'none'}"]
        return " · ".join(parts)


class Screen:
    """Shows a :class:`Status` whenever it is given one; sentences stay above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._shown_at = -PLAIN_SECONDS

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, sentence: str, style: str = "") -> None:
        """Print a sentence that stays."""
        self.console.print(escape(visible(sentence)), style=style, soft_wrap=True, highlight=False)

    @property
    def wants(self) -> bool:
        """Whether a look would be shown now: without a terminal a look is a line, and dearer than it is worth."""
        pause = LIVE_SECONDS if self._live else PLAIN_SECONDS
        return time.monotonic() - self._shown_at >= pause

    def show(self, status: Status) -> None:
        """Show where things stand."""
        self._shown_at = time.monotonic()
        if self._live:
            self._live.update(_rendered(status), refresh=True)
        else:
            self.say(status.line())


def _rendered(status: Status) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    done = min(1.0, max(0.0, status.elapsed / status.total)) if status.total else 0.0
    bar = Text("━" * round(done * BAR_WIDTH), "green") + Text("━" * (BAR_WIDTH - round(done * BAR_WIDTH)), "dim")
    grid.add_row(
        "phase", Text(f"{status.phase}  ", "bold") + bar + Text(f"  {max(0, status.total - status.elapsed):.0f} s")
    )
    grid.add_row("backlog", f"{_number(status.held)} messages (the broker's own count)")
    grid.add_row("quiet p99", f"{_seconds(status.quiet_p99)} AgeOfFirstAttempt, all tenants but {scenario.NOISY}")
    grid.add_row("gold", f"{_seconds(status.freshness)} old")
    grid.add_row("alerts", Text(visible(", ".join(status.alerts)) or "none", "bold red" if status.alerts else "dim"))
    held_back = f"; {status.shed:,} messages held back" if status.shed else ""
    limits = visible(", ".join(status.limits)) or "none"
    grid.add_row("limits", Text(limits + held_back, "bold yellow" if status.limits else "dim"))
    parts: list[RenderableType] = [Text(), grid]
    if status.backlogs:
        parts += [Text(), _tenants(status)]
    parts += [Text(visible(trouble), "red") for trouble in status.troubles[-3:]]
    return Group(*parts)


def _tenants(status: Status) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("tenant")
    table.add_column("backlog", justify="right")
    table.add_column("", min_width=BAR_WIDTH)
    most = max(1, *status.backlogs.values())
    for tenant in scenario.TENANTS:
        count = status.backlogs.get(tenant, 0)
        style = "bold red" if tenant in status.noisy else ""
        bar = "█" * round(BAR_WIDTH * count / most) if most >= 20 else "█" * min(BAR_WIDTH, count)
        table.add_row(Text(tenant, style), Text(f"{count:,}", style), Text(bar, style or "cyan"))
    return table


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
