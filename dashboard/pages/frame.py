"""What every page has around it: settings, the repository, live renewal, the banner, first steps and errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st
from pydantic import TypeAdapter

from alerts.models import AlertState
from alerts.objectives import SloEntry, rules_of
from alerts.rules.model import RuleEntry
from dashboard import rule_files
from dashboard.evaluation import evaluation, said_now
from dashboard.pages import choose, markup
from dashboard.people import present
from dashboard.repository import Repository
from dashboard.run import GROUPS_VARIABLE, LAKE_VARIABLE, OBJECTIVES_VARIABLE, SETTINGS_VARIABLE
from dashboard.services import pipeline
from dashboard.services.alerting import renewed
from dashboard.services.because import value_and_threshold
from dashboard.services.freshness import Evaluation, Freshness, Level, freshness, incomplete, intervals, newest, unread
from dashboard.services.groups import Declared
from dashboard.services.keys import Row
from dashboard.services.say import ago, duration, instant, listing
from dashboard.settings import DashboardSettings
from lake.errors import SojournError
from lake.state import REMEDY, UNFINISHED, is_unfinished
from lake.visible import visible

log = logging.getLogger(__name__)
_OBJECTIVES = TypeAdapter(tuple[SloEntry, ...])
_GROUPS = TypeAdapter(tuple[Declared, ...])


#: What the server was told when it was started is read once; a test tells another one.
_settings = lru_cache(8)(DashboardSettings.model_validate_json)
_objectives = lru_cache(8)(_OBJECTIVES.validate_json)
_groups = lru_cache(8)(_GROUPS.validate_json)


def settings() -> DashboardSettings:
    """The settings that the server was started with."""
    return _settings(os.environ.get(SETTINGS_VARIABLE) or "{}")


def objectives() -> tuple[SloEntry, ...]:
    """The objectives that the alert process evaluates, as the server was told of them."""
    return _objectives(os.environ.get(OBJECTIVES_VARIABLE) or "[]")


def groups() -> tuple[Declared, ...]:
    """The groups of tenants that entitlements declare, as the server was told of them."""
    return _groups(os.environ.get(GROUPS_VARIABLE) or "[]")


def rule(name: str) -> RuleEntry | None:
    """The rule ``name``: as its file has it, or as an objective makes it."""
    made = (one for slo in objectives() for one in rules_of(slo) if one.alert == name)
    return rule_files.of(name, rule_files.told()).entry or next(made, None)


def as_said_now(lake: Repository, rows: list[Row]) -> list[Row]:
    """``rows`` of ``alert_states``, with what alerts that fire say now, where the alert process tells."""
    return renewed(rows, said_now(lake.root, sum(AlertState(row["state"]).is_firing for row in rows)))


def figures_of(lake: Repository) -> Callable[[Row], tuple[str, str]]:
    """What says the value and the threshold of a row of ``alert_states``, in the unit of its rule."""
    definitions, rules = lake.definitions, cache(rule)
    return lambda row: value_and_threshold(row, rules(row["rule"]), definitions)


def repository() -> Repository:
    """The lake that the server was started for."""
    return Repository(Path(os.environ.get(LAKE_VARIABLE) or "lake-data").expanduser().absolute())


def viewers_now() -> datetime:
    """Now, in the time zone that the browser tells; in UTC where it tells none.

    Its offset is that of now throughout: no hour of a chart is there twice when the clocks are changed.
    """
    now = datetime.now(UTC)
    try:
        there = now.astimezone(ZoneInfo(st.context.timezone or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a name that nobody knows
        return now
    name = there.tzname() or ""
    offset = there.utcoffset() or timedelta()
    return now.astimezone(timezone(offset, f"UTC{name}" if name[:1] in "+-" else name)) if offset else now


def live(body: Callable[[Repository, list[Row], datetime], None]) -> None:
    """Show ``body(repository, health, now)`` and renew it every few seconds, without moving the rest of the page."""
    choose.forget_missing()
    st.html(markup.style_sheet())
    st.fragment(run_every=settings().refresh_seconds)(_guarded)(body)


def _guarded(body: Callable[[Repository, list[Row], datetime], None]) -> None:
    now = viewers_now()
    lake = repository()
    if present() is None:  # the sign-in has ended while the page was open
        st.rerun()
    try:
        lake = lake.at_one_instant(settings().refresh_seconds)
        health = lake.health()
        if not health:
            _first_steps(lake.root)
            return
        body(lake, health, now)
    except SojournError as error:
        log.warning("the lake could not be shown: %s", visible(str(error)))
        st.html(markup.title("The lake could not be read"))
        st.html(markup.banner("This page tries again by itself", str(error), quiet=False))
        st.html(markup.note("`sojourn doctor` says more."))


def trust() -> None:
    """Say, above a page that runs something and is not renewed itself, what all others say of their data, and renew
    that: how old they are, whether rules are evaluated, who is not told."""
    st.fragment(run_every=settings().refresh_seconds)(_trust)()


def _trust() -> None:
    now = viewers_now()
    if present() is None:  # the sign-in has ended while the page was open
        st.rerun()
    try:
        lake = repository().at_one_instant(settings().refresh_seconds)
        health = lake.health()
        fresh = age_of_data(lake, health, now)
        st.html(markup.note(as_of_line(lake, fresh, now)))
    except SojournError as error:
        log.warning("the lake could not be shown: %s", visible(str(error)))
        st.html(markup.banner("The lake could not be read", str(error), quiet=False))


def rules_ran(lake: Repository) -> bool | None:
    """Whether an alert rule has been evaluated; None where nobody knows."""
    return None if "alert_transitions" in lake.unread else bool(lake.alert_transitions())


def age_of_data(lake: Repository, health: list[Row], now: datetime) -> Freshness | None:
    """How fresh the rows are; shows the banner if they are not, another if earlier events are still being read, and one
    for each journal that cannot be read."""
    limit = settings().stale_after_seconds
    fresh = freshness(newest(health), lake.heartbeats(), now, limit, lake.read_at, intervals(health))
    if fresh is not None and fresh.level is not Level.FRESH:
        st.html(markup.banner(fresh.title, fresh.reason, quiet=fresh.level is Level.QUIET))
    if (gap := lake.put_off()) is not None:
        st.html(markup.banner(*incomplete(gap, now), quiet=True))
    for table, why in lake.unread.items():
        st.html(markup.banner(*unread(table, why), quiet=False))
    return fresh


def headline(said: str, fresh: Freshness | None, now: datetime) -> str:
    """The page's heading, ``said`` of now; where the data are old, of when it is true."""
    if fresh is not None and fresh.level is Level.STALE:
        said = f"At {instant(fresh.as_of, now, seconds=True)}: {said}"
    return markup.title(said)


def headed(said: str, lake: Repository, fresh: Freshness | None, now: datetime) -> None:
    """Show the page's :func:`headline`, and below it the :func:`as_of_line`."""
    st.html(headline(said, fresh, now))
    st.html(markup.note(as_of_line(lake, fresh, now)))


def as_of_line(lake: Repository, fresh: Freshness | None, now: datetime) -> str:
    """When the figures are from, whether rules are evaluated and receivers told, how often the page renews itself."""
    if fresh is None:
        return "no data yet"
    told = [f"As of {instant(fresh.as_of, now, seconds=True)}, {ago(fresh.as_of, now)}"]
    state, beats = evaluation(lake.root), lake.heartbeats()
    if state is Evaluation.RUNS:
        told.append(state.value)
    elif state.value and beats.alerts is not None:  # they were, once
        told.append(f"▲ {state.value}")
    if failing := pipeline.untold(lake.newest_deliveries(), now):
        told.append(f"▲ not told of alerts: {listing(failing)}")
    every = duration(settings().refresh_seconds).replace(" ", "\N{NO-BREAK SPACE}")  # on a phone the line is broken
    return " · ".join((*told, f"renewed every {every}"))


def _first_steps(root: Path) -> None:
    if is_unfinished(root):
        st.title("Nothing is known of the queues yet", anchor=False)
        st.html(markup.banner("The analysis has not run", f"{UNFINISHED}: {REMEDY}.", quiet=False))
        return
    st.title("No queue has been seen yet", anchor=False)
    st.html(markup.note(f"The lake at {root} holds no messages and no readings. As soon as it does, they appear here."))
    st.markdown(
        "| To … | run |\n|---|---|\n"
        "| see the whole system at work on this machine | `sojourn demo` |\n"
        "| watch your own brokers | `sojourn up -c sojourn.toml` |\n"
        "| look into a log of the past | `sojourn replay events.jsonl`, then `sojourn analyze --once` |\n"
        "| find out what is wrong | `sojourn doctor` |\n"
    )
