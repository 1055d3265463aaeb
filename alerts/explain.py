"""Why somebody was told of an alert, or was not: read from the store, by the same stages that decided it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from alerts.models import AlertInstance
from alerts.notify.payload import iso
from alerts.notify.plan import Notice, group_of, merged, ways
from alerts.routing.inhibit import SHIPPED
from alerts.routing.muting import muting
from alerts.routing.route import taken
from alerts.routing.settings import routes_of
from alerts.settings import AlertSettings
from alerts.store import States
from alerts.store.database import Database, Store, from_us, reading
from alerts.store.given import given_in
from lake.clock import ZERO
from lake.errors import UserError

#: Decisions and attempts that are told of one group.
MOST_LINES = 10


@dataclass(frozen=True, slots=True)
class Known:
    """An alert of the store; ``resolved_at`` None while it fires."""

    alert: AlertInstance
    resolved_at: datetime | None = None


def explain(store: Store, settings: AlertSettings, fingerprint: str, shown: datetime) -> list[str]:
    """Lines for people about the alert whose fingerprint begins with ``fingerprint``, as the store knows it.

    ``shown`` is what the wall clock shows.

    UserError if there is no such alert, or more than one.
    """
    with reading(store) as database:
        ahead = _ahead(database)
        return list(_lines(database, settings, fingerprint, shown - ahead, ahead))


def journal(store: Store, last: int) -> list[str]:
    """The ``last`` lines of who told the alert process what, the newest first."""
    with reading(store) as database:
        rows = database.execute(
            "SELECT at, who, peer, what, subject, detail FROM journal ORDER BY id DESC LIMIT ?", [last]
        ).fetchall()
    return [f"{iso(from_us(at))} {who} ({peer}) {' '.join(rest)}".rstrip() for at, who, peer, *rest in rows]


def _lines(db: Database, settings: AlertSettings, wanted: str, now: datetime, ahead: timedelta) -> Iterator[str]:
    states = States(db)
    memories, resolved = states.load()
    firing = [tracked.alert for memory in memories.values() for tracked in memory.alerts.values()]
    known = {one.alert.fingerprint: Known(one.alert, one.at) for one in resolved}
    known |= {alert.fingerprint: Known(alert) for alert in firing}
    alert, resolved_at = _found(known, wanted)
    yield f"{alert.labels.get('alertname', alert.rule)} {alert.fingerprint}"
    yield f"  labels    {_pairs(alert.labels)}"
    since = iso((alert.fired_at or alert.active_since) + ahead)
    over = "" if resolved_at is None else f", resolved at {iso(resolved_at + ahead)}"
    yield f"  state     {alert.state if resolved_at is None else 'fired'} since {since}{over}"
    labels = {
        notice.alert.fingerprint: notice.alert.labels
        for notice in merged(Notice(one) for one in firing if one.state.is_firing)
    }
    given = given_in(db)
    inhibitions = [*(SHIPPED if settings.builtin else ()), *(one.rule for one in settings.route.inhibit)]
    held = muting(labels, tuple(given.silences.values()), inhibitions, given.acknowledgements, now)
    if alert.fingerprint in held:
        yield f"  held      {held[alert.fingerprint].why}"
    told = states.read_told()
    taken_by = {route.key for route in taken(routes_of(settings.route), alert.labels)}
    reached = ways(alert, settings.receivers, settings.route)
    for receiver in settings.receivers:
        mine = [route for one, route in reached if one.name == receiver.name]
        if not mine:
            yield f"  {receiver.name}: not told: {_why_not(settings, receiver.name, alert, taken_by)}"
        for route in mine:
            group = group_of(alert, receiver, route)
            entry = told.get(group)
            yield f"  {receiver.name}: in the group {group[1]}"
            if muted := route.muted(now + ahead):
                yield f"    now {muted}"
            if entry is not None and alert.fingerprint in entry.firing:
                yield f"    was told that it fires; last heard of the group at {iso(entry.sent_at + ahead)}"
            elif entry is not None and alert.fingerprint in entry.resolved:
                yield f"    was told that it is resolved, at {iso(entry.sent_at + ahead)}"
            else:
                yield "    was not told that it fires"
            yield from _decisions(db, group, alert.fingerprint)
            yield from _waiting(db, group)


def _found(known: dict[str, Known], wanted: str) -> tuple[AlertInstance, datetime | None]:
    found = [key for key in known if key.startswith(wanted.lower())] if wanted else []
    if len(found) != 1:
        what = f"no alert has the fingerprint {wanted}" if not found else f"{len(found)} alerts begin with {wanted}"
        raise UserError(what, "see the fingerprint in a notification or with `amtool alert query -o json`")
    one = known[found[0]]
    return one.alert, one.resolved_at


def _why_not(settings: AlertSettings, receiver: str, alert: AlertInstance, taken_by: set[str]) -> str:
    if receiver == settings.route.watchdog:
        return "it hears of the watchdog alone"
    routes = [route for route in routes_of(settings.route) if route.key in taken_by]
    if not any(route.tells(receiver) for route in routes):
        return f"the alert takes the route {', '.join(route.key for route in routes)}"
    match = next(one.match for one in settings.receivers if one.name == receiver)
    wrong = [f"{name}={value}" for name, value in match.items() if alert.labels.get(name) != value]
    return f"its match asks for {', '.join(wrong)}" if wrong else "only the watchdog's receiver hears of the watchdog"


def _decisions(db: Database, group: tuple[str, str], fingerprint: str) -> Iterator[str]:
    rows = db.execute(
        "SELECT at, sent, reason, firing, resolved, muted FROM decisions WHERE receiver = ? AND group_key = ?"
        " ORDER BY id DESC LIMIT ?",
        [*group, MOST_LINES],
    ).fetchall()
    for at, sent, reason, firing, resolved, muted in reversed(rows):
        why = json.loads(muted or "{}").get(fingerprint)
        held = f" [this alert: {why}]" if why else ""
        what = f"sent ({firing} firing, {resolved} resolved): " if sent else ""
        yield f"    {iso(from_us(at))} {what}{reason}{held}"


def _waiting(db: Database, group: tuple[str, str]) -> Iterator[str]:
    rows: Sequence[tuple[str, str, int]] = db.execute(
        "SELECT id, status, attempts FROM outbox WHERE receiver = ? AND group_key = ? ORDER BY sequence LIMIT ?",
        [*group, MOST_LINES],
    ).fetchall()
    for id, status, attempts in rows:
        yield f"    {id} ({status}) is not delivered yet, after {attempts} attempts"


def _ahead(db: Database) -> timedelta:
    row = db.execute("SELECT value FROM meta WHERE key = 'clock_ahead'").fetchone()
    return timedelta(microseconds=int(row[0])) if row else ZERO


def _pairs(labels: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
