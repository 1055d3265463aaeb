"""Brings `tenant_state`, `queue_state` and `age_state` up to what gold's partials and the samples have come to.

What is written is a cache: lost or half written, the next writer begins a new epoch with a row for every key.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.definitions import Definitions
from lake.now.serve import Served
from lake.store import Lake
from lake.tables import AGE_STATE, QUEUE_STATE, TENANT_STATE
from spark_analytics.state import raw
from spark_analytics.state.differ import Differ
from spark_analytics.state.finish import Finisher

log = logging.getLogger(__name__)

APP_ID = "sojourn-state"
#: In this order: who has read a revision of the last one finds it in the others.
TABLES_IN_ORDER = (AGE_STATE.name, TENANT_STATE.name, QUEUE_STATE.name)
#: An epoch ends after so many revisions, or when it has so many rows for each key: a cold reader reads one epoch.
MOST_REVISIONS = 200
ROWS_A_KEY = 3
LEAST_ROWS = 2000

_COMPARED = {
    TENANT_STATE.name: (
        "queue_key", "backlog", "in_flight", "ready", "oldest_second", "noisy", "window_enqueued", "window_finished",
        "window_received", "window_processing_count", "window_processing_sum", "processing_bucket",
        "concurrency_limit",
    ),
    QUEUE_STATE.name: (
        "has_events", "depth", "in_flight_limit", "noisy_tenants", "dead_lettered", "dlq_depth", "mode",
        "mode_since_us", "consumers", "delayed", "acked", "status", "retention_margin", "prefetch",
        "visibility_timeout_seconds", "dead_letter_for", "lost", "transactional_lag", "transactional_age_seconds",
        "estimated",
        "backlog", "events_in_flight", "broker_in_flight", "oldest_second", "quiet_oldest_second", "window_seconds",
        "window_enqueued", "window_finished", "window_received", "window_retries", "there", "there_change", "there_us",
        "polls", "empty_polls", "backlog_when_sampled", "sampled_us", "told_age_seconds", "sample_staleness_seconds",
    ),
    AGE_STATE.name: ("start_second", "bucket_seconds", "count", "total_seconds", "max_seconds", "skewed"),
}  # fmt: skip


class Writer:
    """Writes the finished state of the lake at ``root``. One at a time; belongs to one thread."""

    def __init__(self, root: Path) -> None:
        self._lake = Lake(root)
        self._definitions: Definitions | None = None
        self._served: Served | None = None
        self._finisher: Finisher | None = None
        self._generation = 0
        self._folds: object = None
        self._revision = max((self._lake.committed(name, APP_ID) or 0 for name in TABLES_IN_ORDER), default=0)
        self._end_epoch()

    def close(self) -> None:
        """Let go of what is held."""
        if self._served is not None:
            self._served.close()
        self._served = self._finisher = None

    @property
    def late(self) -> bool:
        """Whether something came too late to be told where it belongs: a step without patience puts it right."""
        return self._served is not None and self._served.late

    def step(self, *, patient: bool = False) -> bool:
        """Commit what has changed since the last step; whether anything had. Raises LakeError, UserError.

        A step without patience folds all of history anew where something came late by more than can be taken back.
        """
        served, finisher = self._up_to_date()
        if finisher.refresh():
            self._end_epoch()
            self._generation = 0
        served.refresh(patient=patient)
        if served.generation == self._generation:
            return False
        if served.folds is not self._folds:
            self._end_epoch()  # other folds number their keys otherwise
        self._folds = served.folds
        if not self._write(served, finisher):
            self._end_epoch()
            self._write(served, finisher)
        self._generation = served.generation
        return True

    def _up_to_date(self) -> tuple[Served, Finisher]:
        definitions = Definitions.load(self._lake.root)
        if self._served is None or self._finisher is None or definitions != self._definitions:
            self.close()
            self._definitions = definitions
            self._served = Served(self._lake.root, definitions)
            self._finisher = Finisher(self._lake.root, definitions)
            self._end_epoch()
            self._generation = 0
        return self._served, self._finisher

    def _end_epoch(self) -> None:
        self._epoch: int | None = None
        self._numbers = {name: raw.Numbers() for name in TABLES_IN_ORDER}
        self._differs = {name: Differ(columns) for name, columns in _COMPARED.items()}
        self._written = self._revisions = 0
        self._ages_told = True
        self._told_at: dict[str, tuple[Any, Any]] = {}

    def _write(self, served: Served, finisher: Finisher) -> bool:
        """Write what differs from what was written; False where the epoch cannot tell it and another has to begin."""
        queues = raw.queues(served, self._numbers[QUEUE_STATE.name])
        if queues is None:
            return True
        there = {
            AGE_STATE.name: raw.ages(served, self._numbers[AGE_STATE.name]),
            TENANT_STATE.name: raw.tenants(served.outcomes(), queues, self._numbers[TENANT_STATE.name]),
            QUEUE_STATE.name: queues,
        }
        told = there[AGE_STATE.name] is not None
        if self._epoch is not None and told != self._ages_told:
            return False
        self._ages_told = told
        changed: dict[str, pa.Table] = {}
        for name, rows in there.items():
            if rows is None:
                continue
            mask = self._differs[name].changed(rows)
            if mask is None:
                return False
            changed[name] = rows.filter(pa.array(mask))
        if not self._clocks(queues, changed):
            return True
        self._commit(changed, queues, finisher)
        keys = sum(rows.num_rows for rows in there.values() if rows is not None)
        if self._revisions >= MOST_REVISIONS or self._written > max(LEAST_ROWS, ROWS_A_KEY * keys):
            self._end_epoch()
        return True

    def _clocks(self, queues: pa.Table, changed: dict[str, pa.Table]) -> bool:
        """Have a row of each broker whose time went on among the changed queues; whether anything is to be written.

        Each of its rows tells the broker's time, and a revision of the other tables counts once this one has it.
        """
        clocks = dict(zip(*(_list(queues, name) for name in ("broker", "now_us")), strict=True))
        samples = dict(zip(*(_list(queues, name) for name in ("broker", "newest_sample_at")), strict=True))
        now = {broker: (clocks[broker], samples[broker]) for broker in clocks}
        told = set(_list(changed[QUEUE_STATE.name], "broker"))
        moved = {broker for broker, clock in now.items() if self._told_at.get(broker) != clock} - told
        self._told_at = now
        anything = any(rows.num_rows for rows in changed.values())
        if anything and not told and not moved:
            moved = {next(iter(now))}
        first = {broker: row for row, broker in reversed(list(enumerate(_list(queues, "broker"))))}
        more = [first[broker] for broker in sorted(moved)]
        if more:
            changed[QUEUE_STATE.name] = pa.concat_tables([changed[QUEUE_STATE.name], queues.take(pa.array(more))])
        return anything or bool(more)

    def _commit(self, changed: dict[str, pa.Table], queues: pa.Table, finisher: Finisher) -> None:
        self._revision += 1
        self._revisions += 1
        self._epoch = self._epoch or self._revision
        for name in TABLES_IN_ORDER:
            rows = changed.get(name)
            if rows is None or rows.num_rows == 0:
                continue
            finished = finisher.finished(name, rows, queues, self._epoch, self._revision)
            staged = self._lake.stage(name)
            staged.append(finished)
            self._lake.add(name, staged, app_id=APP_ID, version=self._revision)
            self._written += finished.num_rows


def _list(rows: pa.Table, column: str) -> list[Any]:
    found: list[Any] = rows.column(column).to_pylist()
    return found
