"""One alert, ready to be read aloud: what it says, since when, how it came, who was told, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from urllib.parse import urlsplit

from alerts.models import AlertState
from dashboard.services.alerting import AlertCard, alert_card, firing_since, is_watchdog, severity_rank
from dashboard.services.because import Because, because, value_and_threshold
from dashboard.services.keys import QueueKey, Row
from dashboard.services.overview import Fact
from dashboard.services.say import UNKNOWN, clock, decimal, duration, instant
from lake.definitions import Definitions

#: What an alert's history and its deliveries show at most.
STEPS, DELIVERIES = 20, 20
#: Changes through which an alert fired on that are told one by one; more in a row are told as one.
MOST_APART = 3
_GROUP_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_OUTCOMES = {"delivered": "delivered", "retry": "failed, tried again", "failed": "given up", "refused": "refused"}


@dataclass(frozen=True, slots=True)
class AlertLine:
    """One alert in the table: pending, firing, or resolved within the day; ``since`` then."""

    fingerprint: str
    card: AlertCard
    resolved: bool
    since: datetime
    value: str = UNKNOWN
    threshold: str = UNKNOWN


#: What a file says of each alert.
COLUMNS = ("Alert", "State", "Severity", "Since", "Value", "Threshold", "About", "Summary", "Fingerprint")


def alert_cells(line: AlertLine) -> tuple[str, ...]:
    """``line`` by :data:`COLUMNS`."""
    card = line.card
    state = "resolved" if line.resolved else card.state
    figures = card.since, line.value, line.threshold
    return card.title, state, card.severity, *figures, card.about, card.summary, line.fingerprint


@dataclass(frozen=True, slots=True)
class Step:
    """One change of an alert's state, or one attempt to tell a receiver of it."""

    when: str
    what: str
    why: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class AlertStory:
    """Everything that a page says of one alert. ``runbook`` is an address of the web, or empty."""

    line: AlertLine
    facts: tuple[Fact, ...]
    notes: tuple[tuple[str, str], ...]
    runbook: str
    changes: tuple[Step, ...]
    deliveries: tuple[Step, ...]


def alert_lines(
    states: Iterable[Row],
    changes: Iterable[Row],
    keys: Sequence[QueueKey],
    now: datetime,
    since: datetime,
    figures: Callable[[Row], tuple[str, str]] = lambda row: value_and_threshold(row, None, Definitions()),
) -> tuple[AlertLine, ...]:
    """Every alert that fires or is pending, the loudest first, and then those that were resolved after ``since``.

    ``figures`` say a row's value and threshold.
    """
    began = firing_since(changes)
    ranked = []
    for row in states:
        state = AlertState(row["state"])
        over = state is AlertState.INACTIVE
        if is_watchdog(row) or (over and (row["since"] < since or row["fingerprint"] not in began)):
            continue
        at: datetime = row["since"]
        if state.is_firing:
            at = began.get(row["fingerprint"], at)
        line = AlertLine(row["fingerprint"], alert_card(row, state, at, keys, now), over, at, *figures(row))
        newest = -at.timestamp() if over else at.timestamp()
        ranked.append((over, not line.card.firing, severity_rank(line.card.severity), newest, line.card.title, line))
    return tuple(entry[-1] for entry in sorted(ranked, key=lambda entry: entry[:-1]))


def alert_story(
    line: AlertLine,
    state: Row,
    changes: Iterable[Row],
    deliveries: Iterable[Row],
    now: datetime,
    why: Because | None = None,
    say: Callable[[float | None], str] = decimal,
) -> AlertStory:
    """What is known of the alert ``line``, whose row of ``alert_states`` is ``state``; ``why`` it fires, if asked;
    its values as ``say`` says them.

    A delivery tells of a group of alerts: those whose group has this alert's labels are its own.
    """
    notes = dict(state.get("annotations") or {})
    mine = sorted((row for row in changes if row["fingerprint"] == line.fingerprint), key=lambda row: row["at"])
    why = why or because(state, None, Definitions(), now)
    facts = [
        *why.facts,
        Fact("Data then", clock(state.get("data_as_of"), now, seconds=True), now.tzname() or ""),
        Fact("Rule", state["rule"], state["rule_group"]),
    ]
    return AlertStory(
        line,
        tuple(facts),
        tuple((name, text) for name, text in sorted(notes.items()) if name not in ("summary", "runbook_url")),
        _address(notes.get("runbook_url", "")),
        _changes(mine, now, say)[::-1][:STEPS],
        tuple(_delivery(row, now) for row in deliveries if _is_told(row["group_key"], state["labels"]))[:DELIVERIES],
    )


def _address(text: str) -> str:
    """``text`` if it is an address that a browser may follow."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in ("http", "https") and parts.netloc else ""


def _changes(rows: Sequence[Row], now: datetime, say: Callable[[float | None], str]) -> tuple[Step, ...]:
    """``rows`` of one alert's history, the oldest first, as steps: what only came and went while it fired is one."""
    found: list[Step] = []
    for came_and_went, group in groupby(rows, key=_came_and_went):
        run = list(group)
        if not came_and_went or len(run) < MOST_APART:
            found += (_change(row, now, say) for row in run)
            continue
        since = f"since {instant(run[0]['at'], now, seconds=True)}"
        what = f"kept firing, though it did not match {sum(row['to_state'] == 'keep_firing' for row in run)} times"
        found.append(Step(f"{instant(run[-1]['at'], now, seconds=True)}", what, f"{since}; {run[-1]['reason']}"))
    return tuple(found)


def _came_and_went(row: Row) -> bool:
    """Whether an alert went on firing through this change."""
    return AlertState(row["from_state"]).is_firing and AlertState(row["to_state"]).is_firing


def _change(row: Row, now: datetime, say: Callable[[float | None], str]) -> Step:
    value = "" if row["value"] is None else f", value {say(row['value'])}"
    what = f"{row['from_state']} → {row['to_state']}{value}"
    return Step(f"{instant(row['at'], now, seconds=True)}", what.replace("_", " "), row["reason"])


def _delivery(row: Row, now: datetime) -> Step:
    outcome = _OUTCOMES.get(row["outcome"], row["outcome"])
    took = "" if row["duration_seconds"] is None else f" in {duration(row['duration_seconds'])}"
    tried = f", attempt {row['attempt']}" if row["attempt"] > 1 else ""
    why = row["error"] or (f"HTTP {row['status_code']}" if row["status_code"] else "")
    what = f"{row['receiver']}: {row['status']} {outcome}{took}{tried}"
    return Step(f"{instant(row['at'], now, seconds=True)}", what, why, row["outcome"] != "delivered")


def _is_told(group_key: str, labels: Mapping[str, str]) -> bool:
    """Whether a group with this key holds an alert with ``labels``: the labels of the group end its key."""
    group = _GROUP_LABEL.findall(group_key.rpartition(":{")[2])
    return all(labels.get(name, "") == re.sub(r"\\(.)", r"\1", value) for name, value in group)
