"""What policies do, propose and would have done, and the journal of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dashboard.services.alerts import Step
from dashboard.services.keys import Row
from dashboard.services.say import UNKNOWN, duration, instant, rate

#: Rows of the journal that a page shows.
LINES = 50
_OVER = frozenset({"release", "revoke", "expire"})
_OUTCOMES: Mapping[str, str] = {
    "applied": "",
    "proposed": "proposed",
    "dry_run": "dry run",
    "refused": "refused",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A limit that a policy proposes, or would have set: nobody obeys it."""

    action: str
    tenant: str
    queue: str
    limit: str
    policy: str
    until: str
    reason: str
    proposed: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal. ``inputs``: what the decision saw, as it was written down."""

    when: str
    what: str
    outcome: str
    policy: str
    reason: str
    inputs: str
    bad: bool
    seen: tuple[tuple[str, str], ...] = ()  # the same to be read: a name and a short figure each
    action: str = ""
    actuator: str = ""


#: The columns of the journal as a file: the first fields of :class:`Entry`.
COLUMNS = ("When", "What", "Outcome", "Policy", "Reason", "Inputs")


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody asked for: ``outcome`` is ``asked``, ``done``, ``refused`` or ``failed``, the last with ``why``."""

    at: str
    who: str
    role: str
    what: str
    about: str
    outcome: str
    why: str = ""


def suggestions(decisions: Iterable[Row], now: datetime) -> tuple[Suggestion, ...]:
    """What is proposed, and then what is on trial, at ``now``. ``decisions``: the newest row of each subject."""
    found = [
        Suggestion(
            row["action_id"],
            row["tenant"] or "all tenants",
            row["queue"],
            rate(row["after"]),
            row["policy"],
            f"until {instant(row['valid_until'], now, seconds=True)}" if row["valid_until"] else "",
            row["reason"],
            row["outcome"] == "proposed",
        )
        for row in decisions
        if row["outcome"] in ("proposed", "dry_run")
        and row["decision"] not in _OVER
        and (row["valid_until"] is None or row["valid_until"] > now)
    ]
    return tuple(sorted(found, key=lambda one: (not one.proposed, one.queue, one.tenant)))


def journal(actions: Iterable[Row], now: datetime, most: int = LINES) -> tuple[Entry, ...]:
    """What policies decided, the newest first."""
    rows = sorted(actions, key=lambda row: row["at"], reverse=True)[:most]
    return tuple(
        Entry(
            f"{instant(row['at'], now, seconds=True)}",
            f"{row['decision']} {row['tenant'] or 'all tenants'} on {row['queue']}{_step(row)}",
            str(_OUTCOMES.get(row["outcome"], row["outcome"])),
            f"{row['policy']}, by {row['rule']}" if row["rule"] else row["policy"],
            row["reason"],
            _inputs(row["inputs"]),
            row["outcome"] in ("refused", "failed"),
            tuple((name, _short(value)) for name, value in sorted((row["inputs"] or {}).items())),
            row["action_id"],
            row["actuator"],
        )
        for row in rows
    )


def steps(told: Iterable[Change], now: datetime) -> tuple[Step, ...]:
    """What people asked for on pages, the newest first, as steps of a story; one that has ended is one step."""
    return tuple(
        Step(
            f"{instant(datetime.fromisoformat(one.at), now, seconds=True)}",
            f"{one.what} {one.about}: {one.outcome}",
            f"{one.who}, {one.role}" + (f": {one.why}" if one.why else ""),
            one.outcome in ("refused", "failed"),
        )
        for one in _settled(told)
    )


def _settled(told: Iterable[Change]) -> list[Change]:
    """Without the lines that only say of what has ended that it was asked for. ``told``: the newest first."""
    found: list[Change] = []
    ended: Counter[tuple[str, str, str]] = Counter()
    for one in told:
        mine = (one.who, one.what, one.about)
        if one.outcome == "asked" and ended[mine]:
            ended[mine] -= 1
            continue
        ended[mine] += one.outcome in ("done", "failed")
        found.append(one)
    return found


def _step(row: Row) -> str:
    if row["decision"] == "redrive":  # its rate is no limit of anybody's
        return f" from {(row['inputs'] or {}).get('source', UNKNOWN)}"
    before, after = (rate(row[name]) if row[name] is not None else "no limit" for name in ("before", "after"))
    if before == after:
        return ""
    lasts = row["valid_until"] - row["at"] if row["valid_until"] and row["after"] is not None else None
    return f": {before} → {after}" + (f", for {duration(lasts.total_seconds())}" if lasts else "")


def _short(value: str) -> str:
    """A figure to three digits; any other text as it is."""
    try:
        return f"{float(value):.3g}" if "." in value else value
    except ValueError:
        return value


def _inputs(inputs: Mapping[str, str] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted((inputs or {}).items()))
