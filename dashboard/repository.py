"""The one place that queries the lake, and the only one that caches.

Rows are cached under the versions of the tables they came from, so an open page that nothing happened to costs a
look at the versions, and never shows what is no longer true. A lake that several sessions watch is read once.
History is dearer than the present: it is asked for at a pace that leaves most of the machine to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar, cast

import streamlit as st

from dashboard import queries
from dashboard.behind import Behind
from dashboard.heartbeats import heartbeats
from dashboard.pace import Pace
from dashboard.questions import recent as recently
from dashboard.renewed import Renewed
from dashboard.services.freshness import Heartbeats
from dashboard.services.keys import QueueKey, Row
from dashboard.services.series import Span
from dashboard.services.trends import Recent
from dashboard.shared import Once
from lake.definitions import Definitions
from lake.errors import SojournError
from lake.foretell import Asked, Foretold, foretell, foretell_all
from lake.scoped import Scope
from lake.sql.parameters import can_be_named
from lake.tables import TABLES
from lake.versions import Versions
from lake.why import Told, tell
from lake.worker.worker import Worker

T = TypeVar("T")
#: For how long the lake's versions are believed unchanged; also how often the links of the chain are felt for.
BELIEVED_SECONDS = 1.0
#: One part in how many of the time may go into reading what is now, and what was; what is now is never older than this.
SHARES = {"present": 2, "past": 8}
OLDEST_SECONDS = {"present": 10.0, "past": math.inf}
_KEPT_RESULTS = 200
#: For how long a page waits for history that was never asked for; then it is shown without, and filled in later.
FIRST_SECONDS = 1.0
#: The same for what a heading says besides; and of so many queues at most it says since when a tenant is noisy.
HEADING_SECONDS = 0.05
MOST_DATED = 6
#: The process that reads history ends when nobody asks it for so long.
PAST_IDLE_SECONDS = 600.0
_past_limits: dict[str, Any] = {"idle_seconds": PAST_IDLE_SECONDS}
#: For how long a page waits for what is newer than what it has.
PRESENT_SECONDS = 0.3
#: Things that pages have made of one reading: those of a second or two, for whoever looks then.
MOST_MADE = 100
#: For how long it is tried to read all that a page says of now without a commit in between.
TRIED_SECONDS = 0.15
#: A reading that takes longer than this is begun ahead, by so much more than it takes, for the page that is to show it:
#: what came in that time is on the screen with the next.
QUICK_SECONDS, AHEAD_SECONDS = 0.1, 0.15


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the lake says of now: of which versions of its tables, when that was read, the rows by their SQL, of which
    journals none could be read and why, and what pages have made of them."""

    token: tuple[Any, ...]
    at: datetime
    rows: Mapping[str, list[Row]]
    unread: Mapping[str, str]
    made: Once = field(default_factory=lambda: Once(MOST_MADE))


@dataclass(frozen=True, slots=True)
class Repository:
    """What the pages may ask about the lake at ``root``; every answer is rows of the public views."""

    root: Path
    read: Mapping[str, list[Row]] = field(default_factory=dict)  # what one page has read at one instant, by its SQL
    read_at: datetime | None = None  # when that was, in UTC
    unread: Mapping[str, str] = field(default_factory=dict)  # why, by journal: its rows are unknown, and read as none
    made: Once | None = None  # what pages have made of that reading
    aside: bool = False  # asked behind the pages, where nobody waits
    kept: dict[str, list[Row]] | None = None  # where what is read of history is put down, for who shows it

    def at_one_instant(self, again_seconds: float | None = None) -> Repository:
        """The same, with every answer about the present from one reading, however long the page takes to ask.

        Where a new reading takes longer than PRESENT_SECONDS, it is the one before: a page tells how old its rows are.
        One that takes any time is begun ahead of when the page asks again, in ``again_seconds``.
        """
        root = str(self.root)
        renewed, pace = _renewed(root), _pace(root, "present")

        def newest() -> tuple[tuple[Any, ...], Callable[[], _Reading]]:
            token = pace.token(_token(root), monotonic())
            return token, lambda: _Reading(token, datetime.now(UTC), *_paced(root, pace))

        def begin() -> None:
            with suppress(SojournError, RuntimeError):  # the next page is told; the process is ending
                renewed.begin(*newest(), ahead=True)

        told = renewed.answer(*newest(), PRESENT_SECONDS)
        wait = (again_seconds or 0.0) - renewed.took - AHEAD_SECONDS
        if renewed.took > QUICK_SECONDS and wait > 0:
            renewed.ahead(wait, begin, renewed.took + 2 * AHEAD_SECONDS)
        rows: dict[str, list[Row]] = {sql: [dict(row) for row in of] for sql, of in told.rows.items()}
        read_at = None if told.token == _token(root) else told.at
        return replace(self, read=rows, read_at=read_at, unread=told.unread, made=told.made)

    def once(self, name: Hashable, now: datetime, make: Callable[[], T]) -> T:
        """What ``make`` makes of this reading, once for all who look at it in the same second and time zone, and not
        once for each; nobody may change it. ``now`` is the viewer's."""
        if self.made is None:
            return make()
        return self.made.of((name, int(now.timestamp()), now.utcoffset(), now.tzname()), make)

    def health(self) -> list[Row]:
        """``queue_health_now``."""
        return self._rows(queries.HEALTH)

    def totals(self) -> list[Row]:
        """Sums over the tenants of each queue."""
        return self._rows(queries.TOTALS)

    def noisy_tenants(self) -> list[Row]:
        """The noisy tenants, each with ``noisy_since``."""
        rows = self._rows(queries.NOISY)
        by_queue: dict[QueueKey, list[Row]] = {}
        for row in rows:
            by_queue.setdefault(QueueKey.of(row), []).append(row)
        since: dict[tuple[QueueKey, str], datetime] = {}
        for key, mine in list(by_queue.items())[:MOST_DATED]:
            told = self._noisy_since(key, tuple(row["tenant"] for row in mine))
            since |= {(key, row["tenant"]): row["noisy_since"] for row in told}
        return [{**row, "noisy_since": since.get((QueueKey.of(row), row["tenant"]))} for row in rows]

    def _noisy_since(self, key: QueueKey, tenants: tuple[str, ...]) -> list[Row]:
        """Since when; who is noisy is known all the same."""
        sql = queries.noisy_since(key, tenants)
        try:
            return self.behind(("noisy", key), lambda past: past.of_queue(key, sql), HEADING_SECONDS) or []
        except SojournError:
            return []

    def tenants(self, key: QueueKey, top: int) -> list[Row]:
        """The noisiest, then largest tenants of one queue, from ``tenant_backlog_now``."""
        return self._rows(queries.tenants(key, top))

    def concurrency(self, key: QueueKey) -> Row | None:
        """Little's law, measured in flight and limit of one queue now."""
        rows = self._rows(queries.concurrency_now(key))
        return rows[0] if rows else None

    def alert_states(self) -> list[Row]:
        """``alert_states`` without the inactive ones, with ``state``."""
        return self._rows(queries.ALERT_STATES)

    def alert_transitions(self, since: datetime | None = None) -> list[Row]:
        """The newest of ``alert_transitions``."""
        return self._journal("alert_transitions", queries.alert_transitions(since))

    def actions(self, since: datetime | None = None) -> list[Row]:
        """The newest of ``actions``."""
        return self._journal("actions", queries.actions(since))

    def deliveries(self, since: datetime) -> list[Row]:
        """The newest of ``deliveries``."""
        return self._journal("deliveries", queries.deliveries(since))

    def newest_deliveries(self) -> list[Row]:
        """The newest attempts to tell receivers (receiver, outcome, at), however old."""
        return self._rows(queries.NEWEST_DELIVERIES)

    def refused(self, since: datetime) -> list[Row]:
        """What collectors could not take (source, reason, rows), the most first."""
        return self._rows(queries.refused(since))

    def last_decisions(self, since: datetime) -> list[Row]:
        """The newest of ``actions`` for each policy and subject."""
        return self._journal("actions", queries.last_decisions(since))

    def limits(self) -> list[Row]:
        """``limits``: what is in force."""
        now = datetime.now(UTC)
        return [row for row in self._rows(queries.LIMITS) if row["valid_until"] > now]

    def put_off(self) -> Row | None:
        """What the analysis has deferred to read the newest first (since, events); None where history is complete."""
        rows = self._rows(queries.OPEN_GAPS)
        return rows[0] if rows else None

    def history_bounds(self, key: QueueKey) -> tuple[datetime, datetime]:
        """From when and until when the histories below go."""
        (row,) = self.of_queue(key, queries.beginning(key))
        until: datetime = next(row["as_of"] for row in self.health() if QueueKey.of(row) == key)
        return row["first"] or until, until

    def backlog_changes(self, key: QueueKey, span: Span, top: int) -> list[Row]:
        """Changes of backlog (at, tenant, backlog): the ``top`` tenants by name, all others as tenant null."""
        return self.of_queue(key, queries.backlog_changes(key, span, top))

    def rate_changes(self, key: QueueKey, span: Span) -> list[Row]:
        """Changes of the queue's arrival and completion rates (at, arrival_rate, completion_rate)."""
        return self.of_queue(key, queries.rate_changes(key, span, self.definitions.window_seconds))

    def concurrency_changes(self, key: QueueKey, span: Span) -> list[Row]:
        """Changes of the queue's Little's-law concurrency (at, littles_law)."""
        return self.of_queue(key, queries.concurrency_changes(key, span, self.definitions.window_seconds))

    def health_history(self, key: QueueKey, span: Span) -> list[Row]:
        """The last in flight, limit and depth in each bin of ``span`` (at, in_flight, in_flight_limit, depth)."""
        return self.of_queue(key, queries.health_history(key, span))

    def once_noisy(self, key: QueueKey, span: Span) -> list[str]:
        """The tenants that were noisy at some instant of ``span``."""
        return [row["tenant"] for row in self.of_queue(key, queries.once_noisy(key, span))]

    def first_attempt_cells(self, key: QueueKey, span: Span, noisy: Sequence[str]) -> list[Row]:
        """Histogram cells of AgeOfFirstAttempt (at, who, index, count); who is ``noisy`` or ``quiet``."""
        return self.of_queue(key, queries.first_attempt_cells(key, span, noisy))

    def recent(self, keys: Sequence[QueueKey], span: Span) -> Recent:
        """The last hour of all of ``keys`` by minute, in four questions however many there are; nothing of those that
        no statement can name."""
        keys = [key for key in keys if can_be_named(key.broker, key.queue, key.subscriber)]
        window = self.definitions.window_seconds
        since = span.instants[0]
        tails = self._scanned(recently.tails(keys, span, since))
        if self._past(recently.FINISHED)[0]["finished"]:
            asked = recently.backlogs(keys, span), recently.rates(keys, span, window), recently.depths(keys, span)
        else:
            changes = queries.backlogs_changes(keys, span), queries.rates_changes(keys, span, window)
            asked = *changes, queries.depths(keys, span)
        backlogs, rates, states = map(self._past, asked)
        return Recent(tails=tails, backlogs=backlogs, rates=rates, states=states)

    def why(self, key: QueueKey) -> Told | None:
        """Why first attempts wait longer than they did, looking back an hour."""
        return tell(self._of_flows, key.broker, key.queue, key.subscriber)

    def now(self, sql: str) -> list[Row]:
        """The rows of one of :mod:`dashboard.questions` about the present."""
        return self._rows(sql)

    def past(self, sql: str) -> list[Row]:
        """The rows of one of :mod:`dashboard.questions` about history, read at its pace."""
        return self._past(sql)

    def foretell(self, row: Row, ready: int | None) -> Foretold:
        """What comes of the queue in ``row`` of ``queue_health_now``, of which ``ready`` messages wait: when it is
        drained, its waits pass the target, or its retention deletes what nobody has read."""
        return foretell(self._of_flows, Asked.of(row, ready), self.definitions.target_seconds)

    def foretell_all(self, queues: Iterable[tuple[Row, int | None]]) -> dict[QueueKey, Foretold]:
        """:meth:`foretell` of many queues, each by its row and what waits there, by one statement."""
        asked = (Asked.of(row, ready) for row, ready in queues)
        found = foretell_all(self._of_flows, asked, self.definitions.target_seconds)
        return {QueueKey(*name): told for name, told in found.items()}

    def heartbeats(self) -> Heartbeats:
        """When each link of the chain last wrote to the lake."""
        return _heartbeats(str(self.root))

    @property
    def definitions(self) -> Definitions:
        """The lake's window and target."""
        return Definitions.load(self.root)

    def _rows(self, sql: str) -> list[Row]:
        if sql in self.read:
            return self.read[sql]
        return self._at_pace("present", sql)

    def _journal(self, table: str, sql: str) -> list[Row]:
        return [] if table in self.unread else self._rows(sql)

    def behind(
        self,
        question: Hashable,
        work: Callable[[Repository], T],
        first_seconds: float | None = None,
        *,
        patient: bool = False,
    ) -> T | None:
        """What ``work`` made of the lake's history last, however old; None while it was not worked out yet.

        ``question`` tells what it is about. It is worked out anew behind the pages, when the lake has changed. Who
        never saw an answer waits ``first_seconds`` for it; who is ``patient`` has it begun when the pace allows.
        """
        root = str(self.root)
        past = replace(self, aside=True)
        wait = FIRST_SECONDS if first_seconds is None else first_seconds
        found: T | None = _behind(root).answer(question, _token(root), lambda: work(past), wait, patient=patient)
        return found

    def remembered(
        self, question: Hashable, work: Callable[[Repository], T], first_seconds: float | None = None
    ) -> tuple[Repository, T] | None:
        """As :meth:`behind`, for who draws from the very answers that ``work`` has asked for: a repository that has
        them, and what ``work`` made of them."""

        def put_down(past: Repository) -> tuple[dict[str, list[Row]], T]:
            kept: dict[str, list[Row]] = {}
            return kept, work(replace(past, kept=kept))

        found = self.behind(question, put_down, first_seconds)
        return None if found is None else (replace(self, read={**self.read, **found[0]}), found[1])

    def of_queue(self, key: QueueKey, sql: str) -> list[Row]:
        """The rows of a question about the history of ``key``'s queue alone."""
        return self._past(sql, (key.broker, key.queue))

    def _of_flows(self, sql: str) -> list[Row]:
        """What the law of waiting asks: what is now, and partials of a short time or of one queue."""
        return self._rows(sql) if "_now " in sql else self._scanned(sql)

    def _scanned(self, sql: str) -> list[Row]:
        """The rows of a question about few columns of a large table, of which nothing is held."""
        return self._past(sql, hold=False)

    def _past(self, sql: str, scope: tuple[str, str] | None = None, *, hold: bool = True) -> list[Row]:
        if sql in self.read:
            return self.read[sql]
        if not self.aside:
            return self._at_pace("past", sql, scope, hold=hold)
        rows = _asked(str(self.root), "past", sql, scope, hold=hold)
        if self.kept is not None:
            self.kept[sql] = rows
        return rows

    def _at_pace(self, tense: str, sql: str, scope: tuple[str, str] | None = None, *, hold: bool = True) -> list[Row]:
        root = str(self.root)
        pace = _pace(root, tense)
        token = pace.token(_token(root), monotonic())
        begun = monotonic()
        rows = cast("list[Row]", _rows(root, (tense, *token), sql, scope, hold))
        pace.spent(monotonic() - begun)
        return rows


@st.cache_resource(max_entries=8, show_spinner=False)
def _worker(root: str, tense: str) -> Worker:
    """Pages read in processes of their own: what one of them asks neither holds up nor ends the dashboard, and what was
    never holds up what is. That of the past ends when nobody asks it."""
    return Worker(Path(root)) if tense == "present" else Worker(Path(root), spare=False, **_past_limits)


def warm(root: Path) -> None:
    """Have the process that reads the present up, and the lake's newest rows in it, before anybody asks."""
    with suppress(SojournError):  # whoever asks is told
        for sql in queries.PRESENT:
            _worker(str(root), "present").query(sql)


@st.cache_resource(max_entries=4, show_spinner=False)
def _behind(root: str) -> Behind:
    return Behind()


@st.cache_resource(max_entries=8, show_spinner=False)
def _pace(root: str, tense: str) -> Pace:
    return Pace(SHARES[tense], OLDEST_SECONDS[tense])


@st.cache_resource(max_entries=4, show_spinner=False)
def _versions(root: str) -> Versions:
    return Versions(Path(root))


@st.cache_resource(max_entries=4, show_spinner=False)
def _renewed(root: str) -> Renewed[_Reading]:
    return Renewed()


@st.cache_data(ttl=BELIEVED_SECONDS, max_entries=4, show_spinner=False)
def _token(root: str) -> tuple[Any, ...]:
    return _versions(root).token()


@st.cache_data(ttl=300, max_entries=_KEPT_RESULTS, show_spinner=False)
def _rows(root: str, token: tuple[Any, ...], sql: str, scope: tuple[str, str] | None, hold: bool) -> list[Any]:
    return _asked(root, token[0], sql, scope, hold=hold)


def _asked(root: str, tense: str, sql: str, scope: tuple[str, str] | None, *, hold: bool) -> list[Any]:
    about = None if scope is None else Scope(*scope)
    rows: list[Row] = _worker(root, tense).query(sql, about, hold=hold).to_pylist(maps_as_pydicts="lossy")
    return rows


def _paced(root: str, pace: Pace) -> tuple[dict[str, list[Row]], dict[str, str]]:
    begun = monotonic()
    try:
        return _present(root)
    finally:
        pace.spent(monotonic() - begun)


def _present(root: str) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """Every question about the present, answered between two commits where the lake rests for long enough; and which
    journals could not be read, with the reason.

    What rests on tables that have not changed since it was asked last is not asked again, nor who is noisy where the
    health of all queues says that nobody is.
    """
    worker, versions, begun, known = _worker(root, "present"), _versions(root), monotonic(), _known(root)
    while True:
        before = _resting(versions)
        read, unread = dict[str, list[Row]](), dict[str, str]()
        for sql, version in before.items():
            asked_at, rows = known.get(sql, (None, []))
            if sql == queries.NOISY and not any(row["noisy_tenants"] for row in read[queries.HEALTH]):
                rows = []
            elif version != asked_at:
                try:
                    rows = worker.query(sql).to_pylist(maps_as_pydicts="lossy")
                except SojournError as error:
                    [table, *_] = queries.RESTS_ON[sql]
                    if table not in queries.JOURNALS:
                        raise
                    read[sql], unread[table] = [], str(error)
                    continue
            known[sql] = version, rows
            read[sql] = rows
        if _resting(versions) == before or monotonic() - begun > TRIED_SECONDS:
            return read, unread


def _resting(versions: Versions) -> dict[str, tuple[int, ...]]:
    """Of each question about the present the versions of the tables that it rests on."""
    at = dict(zip(TABLES, versions.token(), strict=True))
    return {sql: tuple(at[table] for table in tables) for sql, tables in queries.RESTS_ON.items()}


@st.cache_resource(max_entries=4, show_spinner=False)
def _known(root: str) -> dict[str, tuple[tuple[int, ...] | None, list[Row]]]:
    """By question the newest answer, and the versions of its tables: for one thread at a time, the one that reads."""
    return {}


@st.cache_data(ttl=BELIEVED_SECONDS, max_entries=4, show_spinner=False)
def _heartbeats(root: str) -> Heartbeats:
    return heartbeats(Path(root))
