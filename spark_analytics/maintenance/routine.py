"""One round of upkeep over the whole lake: what ``sojourn maintain`` does, and the analysis beside its stream.

Every step is one atomic commit, or removes what no commit needs any more: it may be killed at any instant, run twice at
once, and beside any number of writers and readers; the next round finishes what one has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from lake.store import Lake
from lake.tables import TABLES
from spark_analytics.catching_up.gaps import Gaps
from spark_analytics.gold import STATE_TABLES
from spark_analytics.maintenance import bronze, levels, marks, merging, opening, states, vacuum
from spark_analytics.maintenance.retention import STREAMED, Retention
from spark_analytics.retained_versions import retain_versions, retained_versions

#: Told what is being done now, and to which table.
Told = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to one table: ``rows`` that it has less, old ``days`` dropped, and what replaced files went.

    ``merges``: those that a preview foresees.
    """

    table: str
    rows: int
    days: int
    vacuumed: vacuum.Vacuumed
    merges: int = 0


def run_maintenance(
    lake: Lake,
    retention: Retention,
    *,
    thorough: bool = True,
    vacuum_hours: int | None = None,
    now: datetime | None = None,
    told: Told | None = None,
) -> list[Done]:
    """One round. Not ``thorough``: only what a stream of commits makes pressing by the minute. ``now`` is the latest
    that an event's time can be; how old files and days of bronze are, the wall clock says.

    SojournError where a table cannot be used, the disk is full or a stream's checkpoint is damaged; what was done until
    then is done.
    """
    told = told or _ignore
    clock = datetime.now(UTC)
    now = now or clock
    there = [name for name in TABLES if lake.exists(name)]
    rows = dict.fromkeys(TABLES, 0)
    if "partials" in there:
        told("rolling up", "partials")
        rows["partials"] += levels.roll_up(lake, retention, now)
        if thorough:
            told("folding old hours of", "partials")
            rows["partials"] += opening.fold(lake, retention, now)
    # What is settled is known only when nothing is missing: a failure may be what history has yet to tell.
    if thorough and {"partials", "marks"} <= set(there) and not Gaps(lake).open():
        told("pruning", "marks")
        rows["marks"] += marks.prune(lake, retention, now)
    told("keeping the present of", "every table")
    retained = retain_versions(lake, [name for name in there if name not in STREAMED], retention.versions_for, clock)
    # Read once: what a table's pruning replaces of epochs that are over leaves their beginnings and corrections.
    epochs = cache(lambda: states.Epochs(lake))
    done = []
    for name in there:
        if not thorough and name in STREAMED:
            told("shortening the log of", name)
            vacuum.shorten_log(lake, name, retention.log_for(name), clock)
        if name in STATE_TABLES:
            told("pruning", name)
            rows[name] += states.prune(lake, name, retention, now, epochs, thorough=thorough)
        if not thorough and name not in merging.GOLD_TABLES:
            continue
        days = 0
        if thorough and retention.bronze_for is not None and name in bronze.TABLES_BY_DAY:
            told("dropping old days of", name)
            days = bronze.drop_days(lake, name, retention.bronze_for, clock)
        if name not in STATE_TABLES:
            told("merging small files of", name)
            merging.merge(lake, name, now)
        vacuumed = vacuum.Vacuumed()
        if thorough:
            told("vacuuming", name)
            vacuum.set_properties(lake, name, retention.replaced_for)
            vacuumed = vacuum.vacuum(lake, name, retention, clock, retained, dry_run=False, vacuum_hours=vacuum_hours)
        done.append(Done(name, rows[name], days, vacuumed))
    return done


def shorten_logs(lake: Lake, retention: Retention) -> None:
    """What presses between two rounds: the logs that Spark lists for each batch. Errors as of a round."""
    for name in STREAMED:
        if lake.exists(name):
            vacuum.shorten_log(lake, name, retention.log_for(name), datetime.now(UTC))


def preview(lake: Lake, retention: Retention, *, vacuum_hours: int | None = None) -> list[Done]:
    """What :func:`run_maintenance` would do now, as far as it can be told beforehand; ``rows``: to be rolled up or
    dropped.

    What the round itself replaces is not counted: it goes in a later one.
    """
    now, retained = datetime.now(UTC), retained_versions(lake)
    done = []
    for name in (name for name in TABLES if lake.exists(name)):
        rows = 0
        if name == "partials":
            rows = levels.rows_due(lake, retention, now)
        elif name == "marks" and lake.exists("partials"):
            rows = marks.prunable(lake, retention, now)
        days = 0
        if retention.bronze_for is not None and name in bronze.TABLES_BY_DAY:
            days = len(bronze.old_days(lake, name, retention.bronze_for, now))
        vacuumed = vacuum.vacuum(lake, name, retention, now, retained, dry_run=True, vacuum_hours=vacuum_hours)
        done.append(Done(name, rows, days, vacuumed, merging.mergeable(lake, name, now)))
    return done


def _ignore(doing: str, table: str) -> None:
    """Nobody is watching."""


def lock_path(root: Path) -> Path:
    """The lock that keeps two maintenances from doing the same work; either would survive the other."""
    return Lake(root).state_path("locks", "maintain.lock")
