"""``sojourn top``: the overview in a terminal, for whoever has no browser at hand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.errors import SojournError
from lake.stopping import stopping
from lake.visible import visible
from sojourn.cli.actions import said_now
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, say_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dashboard.services.alerting import AlertCard, LimitCard
    from dashboard.services.freshness import Freshness
    from dashboard.services.keys import QueueKey
    from dashboard.services.overview import QueueCard
    from lake.foretell import Foretold
    from lake.reader import Reader

#: Alerts, limits, forecasts and characters of a name that one screen shows.
ALERTS, LIMITS, FORETOLD, NAME = 6, 4, 3, 40
#: Of which queues it is foretold when they are drained.
TROUBLED = ("needs you", "watch")
#: From so many characters on there is room for all columns; below, for these.
WIDE, NARROW = 130, ("Oldest, quiet", "Backlog", "In → out", "Drained")
_SHORT = {"Oldest, quiet": "Oldest"}
#: By fingerprint what alerts that fire say now.
Said = Mapping[str, Mapping[str, str]]
_UNTOLD: Said = MappingProxyType({})
_SIGNS = {"needs you": "▲", "watch": "◆", "unknown": "?", "keeps up": "✓"}
_STYLES = {"needs you": "bold red", "watch": "yellow", "keeps up": "green"}


def top(
    every: Annotated[float, typer.Option("--every", min=0.5, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once, and print it as one JSON object.")] = False,
    queues: Annotated[int, typer.Option("--queues", min=1, help="Queues in the table, the worst first.")] = 20,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Watch the queues in a terminal: what is wrong, who is affected, whether it drains, what acts. Ctrl-C ends it."""
    settings, root = existing(config, lake)
    limit = settings.section("dashboard", part("dashboard.settings").DashboardSettings).stale_after_seconds
    reader = part("lake.reader").Reader(root)

    def said() -> Said:
        return said_now(settings, root)

    if as_json:
        say_json(snapshot(reader, root, datetime.now(UTC), limit, queues, said()))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if once or not sys.stdout.isatty():
        console.print(screen(reader, root, datetime.now(UTC), limit, queues, console.width, said()))
        return
    with stopping() as stop:
        _watch(console, reader, root, limit, queues, every, stop, said)


def _watch(
    console: Any,
    reader: Reader,
    root: Path,
    limit: float,
    queues: int,
    every: float,
    stop: threading.Event,
    said: Callable[[], Said],
) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            try:
                shown = screen(reader, root, datetime.now(UTC), limit, queues, console.width, said())
            except SojournError as error:
                shown = Text(f"the lake could not be read: {visible(str(error))}; trying again", style="bold red")
            live.update(shown, refresh=True)
            stop.wait(every)


def screen(
    reader: Reader, root: Path, now: datetime, limit: float, queues: int, width: int, said: Said = _UNTOLD
) -> RenderableType:
    """The lake at ``now`` as one screen, ``width`` characters wide; data older than ``limit`` seconds are called old.

    Raises SojournError.
    """
    from rich.console import Group
    from rich.text import Text

    seen = _seen(reader, now, said)
    if seen is None and (unknown := _unknown(root)):
        return Text(f"{unknown}.")
    if seen is None:
        return Text(
            f"No queue has been seen yet in the lake at {visible(str(root))}: `sojourn doctor` says what is wrong."
        )
    lines = [
        Text(visible(seen.headline), style="bold"),
        *_freshness(seen.health, root, now, limit),
        *(
            # Where nobody tells what it says now, it says what it did when it began, and so the instant stands first.
            Text(f"▲ {card.severity if card.firing else 'pending'} {card.since}: {visible(card.summary or card.title)}")
            for card in seen.alerts[:ALERTS]
        ),
        *(
            Text(f"◆ {visible(card.tenant, NAME)} on {visible(card.queue, NAME)}: {card.limit}, {card.expires}")
            for card in seen.limits[:LIMITS]
        ),
    ]
    lines += _coming(seen, reader, root, now)
    more = len(seen.cards) - queues
    below = [Text(f"{more:,} more queues: --queues", style="dim")] if more > 0 else []
    return Group(*lines, _table(seen.cards[:queues], part("dashboard.services.overview").COLUMNS, width), *below)


def snapshot(
    reader: Reader, root: Path, now: datetime, limit: float, queues: int, said: Said = _UNTOLD
) -> dict[str, Any]:
    """The same for programs: seconds, messages, messages a second; null is unknown. Raises SojournError.

    ``foretold`` is null of a queue that keeps up, and of those in trouble beyond the first few.
    """
    seen = _seen(reader, now, said)
    if seen is None:
        unknown = _unknown(root) or "no queue has been seen yet"
        return {"at": now, "headline": unknown, "queues": [], "alerts": [], "limits": []}
    key_of = part("dashboard.services.keys").QueueKey.of
    found = _fresh(seen.health, root, now, limit)
    target, words = _target(root), part("dashboard.services.forecast")
    ahead = {key: words.as_json(told, target) for key, told in _foretold(seen, reader, target).items()}
    health, totals = ({key_of(row): row for row in rows} for rows in (seen.health, seen.totals))
    return {
        "at": now,
        "as_of": found.as_of,
        "freshness": found.level.value,
        "headline": seen.headline,
        "queues": [
            {"verdict": card.verdict.word, "sentence": card.sentence, **totals.get(card.key, {}), **health[card.key],
             "foretold": ahead.get(card.key)}
            for card in seen.cards[:queues]
        ],
        "alerts": [{"rule": one.title, "severity": one.severity, "state": one.state, "about": one.about,
                    "summary": one.summary} for one in seen.alerts],
        "limits": seen.in_force,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look found, as the dashboard's services have it; ``health``, ``totals`` and ``in_force`` are rows."""

    health: list[dict[str, Any]]
    totals: list[dict[str, Any]]
    in_force: list[dict[str, Any]]
    headline: str
    cards: tuple[QueueCard, ...]
    alerts: tuple[AlertCard, ...]
    limits: tuple[LimitCard, ...]


def _seen(reader: Reader, now: datetime, said: Said) -> _Seen | None:
    """The lake at ``now``, and what alerts have ``said``; None where no queue has been seen."""
    asked, alerting = part("dashboard.queries"), part("dashboard.services.alerting")
    keys, overview = part("dashboard.services.keys"), part("dashboard.services.overview")

    def query(sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = reader.query(sql).to_pylist(maps_as_pydicts="lossy")
        return rows

    health = query(asked.HEALTH)
    if not health:
        return None
    names = keys.short_names(keys.QueueKey.of(row) for row in health)
    transitions, totals, in_force = query(asked.alert_transitions(None)), query(asked.TOTALS), query(asked.LIMITS)
    states = alerting.renewed(query(asked.ALERT_STATES), said)
    alerts = alerting.alert_cards(states, transitions, list(names), now)
    cards = overview.queue_cards(health, totals, query(asked.NOISY), alerts, now, names)
    headline = overview.headline(cards, alerts, rules_ran=bool(transitions))
    return _Seen(health, totals, in_force, headline, cards, alerts, alerting.limit_cards(in_force, now))


def _unknown(root: Path) -> str:
    """Why nothing is known of the queues of the lake at ``root``, in a line; empty where it holds none."""
    state = part("lake.state")
    return f"{state.UNFINISHED}: {state.REMEDY}" if state.is_unfinished(root) else ""


def _coming(seen: _Seen, reader: Reader, root: Path, now: datetime) -> list[Any]:
    """A line for each queue in trouble of which something is foretold."""
    from rich.text import Text

    words, target = part("dashboard.services.forecast"), _target(root)
    names = {card.key: card.name for card in seen.cards}
    said = {key: words.in_short(told, now, target) for key, told in _foretold(seen, reader, target).items()}
    return [Text(f"→ {visible(names[key], NAME)}: {line}") for key, line in said.items() if line]


def _target(root: Path) -> float:
    seconds: float = part("lake.definitions").Definitions.load(root).target_seconds
    return seconds


def _foretold(seen: _Seen, reader: Reader, target: float) -> dict[QueueKey, Foretold]:
    """What comes of the first queues in trouble."""
    keys, ahead = part("dashboard.services.keys").QueueKey, part("lake.foretell")
    rows = {keys.of(row): row for row in seen.health}
    troubled = [one for one in seen.cards if one.verdict.word in TROUBLED and not one.flows][:FORETOLD]
    asked = (ahead.Asked.of(rows[card.key], card.ready) for card in troubled)
    found = ahead.foretell_all(lambda sql: reader.query(sql).to_pylist(), asked, target)
    return {keys(*name): told for name, told in found.items()}


def _fresh(health: list[dict[str, Any]], root: Path, now: datetime, limit: float) -> Freshness:
    words, beats = part("dashboard.services.freshness"), part("dashboard.heartbeats").heartbeats(root)
    found: Freshness = words.freshness(words.newest(health), beats, now, limit, intervals=words.intervals(health))
    return found


def _freshness(health: list[dict[str, Any]], root: Path, now: datetime, limit: float) -> list[Any]:
    from rich.text import Text

    said, level = part("dashboard.services.say"), part("dashboard.services.freshness").Level
    found = _fresh(health, root, now, limit)
    if found.level is level.FRESH:
        return [
            Text(f"as of {said.instant(found.as_of, now, seconds=True)}, {said.ago(found.as_of, now)}", style="dim")
        ]
    style = "bold red" if found.level is level.STALE else "yellow"
    return [Text(f"{visible(found.title)} {visible(found.reason)}", style=style)]


def _table(cards: tuple[QueueCard, ...], columns: tuple[str, ...], width: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, expand=False)
    table.add_column("Queue", overflow="ellipsis", max_width=NAME)
    table.add_column("", no_wrap=True)
    unknown: str = part("dashboard.services.say").UNKNOWN
    shown = [name for name in columns if width >= WIDE or name in NARROW]
    for name in shown:
        table.add_column(name if width >= WIDE else _SHORT.get(name, name), justify="right", overflow="fold")
    for card in cards:
        word = card.verdict.word
        style = "dim" if word == "keeps up" else ""
        verdict = Text(f"{_SIGNS[word]} {word}", style=_STYLES.get(word, ""))
        told = dict(zip(columns, card.cells, strict=True))
        if width < WIDE and told["Oldest, quiet"] == unknown:  # of samples alone nobody knows who is quiet
            told["Oldest, quiet"] = told["Oldest, all"]
        cells = (Text(visible(told[name])) for name in shown)
        table.add_row(Text(visible(card.name, NAME), style=style), verdict, *cells)
    return table
