"""The stages below the `…_now` views, served from memory instead of being worked out from all of history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from lake.definitions import Definitions
from lake.now.fold import Fold
from lake.now.outcome import Outcome
from lake.now.present import Present
from lake.tables import TIMESTAMP
from lake.views import render
from lake.views.catalogue import SAMPLED_NOW, complete
from lake.views.model import View

#: The stages that can be served.
SERVED = ("stage_tenants_now", "stage_concurrency_now", "stage_queues_now", "stage_age_rows_now", "stage_newest")
_QUEUES, _AGES, _NEWEST = "stage_queues_now", "stage_age_rows_now", "stage_newest"


class Served:
    """The served stages of the lake at ``root``, under its ``definitions``. Belongs to one thread."""

    def __init__(self, root: Path, definitions: Definitions, translate: Callable[[str], str]) -> None:
        self._present = Present(root, definitions)
        queues = View(_QUEUES, complete(resources.files("lake.now").joinpath("queues.sql").read_text("utf-8")))
        self._steps = [(view.name, translate(render(view, definitions))) for view in (*SAMPLED_NOW, queues)]
        self._connection = duckdb.connect(config={"threads": "1", "enable_external_access": "false"})
        self._connection.execute("CREATE MACRO timestamp_micros(micros) AS make_timestamptz(micros)")
        self._outcomes: dict[str, Outcome] = {}
        self._tables: dict[str, pa.Table] = {}
        self._sampled: tuple[Any, ...] | None = None
        self.generation = 0

    def close(self) -> None:
        """Let go of what is held."""
        self._connection.close()
        self._outcomes.clear()
        self._tables.clear()
        self._present.forget()

    def refresh(self) -> None:
        """Take in what was committed; :attr:`generation` changes if anything was."""
        if self._present.refresh() or not self.generation:
            self._tables.clear()
            self._outcomes = {broker: Outcome(broker, fold) for broker, fold in self._present.folds.items()}
            self.generation += 1

    @property
    def folds(self) -> dict[str, Fold]:
        """By broker; others, with other numbers for their keys, once the lake was read anew."""
        return self._present.folds

    def outcomes(self) -> dict[str, Outcome]:
        """What the folds have come to, by broker."""
        return self._outcomes

    def table(self, name: str) -> pa.Table | None:
        """The rows of stage ``name``; None where there are none, or what was kept cannot tell them."""
        if name not in self._tables:
            tables = self._worked_out(name)
            if not tables:
                return None
            self._tables[name] = pa.concat_tables(tables)
        return self._tables[name]

    def _worked_out(self, name: str) -> list[pa.Table]:
        if name == _AGES:
            ages = self._present.ages()
            return [] if ages is None else [ages.table()]
        if name == _NEWEST:
            return [self._newest()]
        known = {broker: outcome for broker, outcome in self._outcomes.items() if outcome.has_keys}
        if name == _QUEUES:
            return [self._queues()] if self._outcomes else []
        if name == "stage_tenants_now":
            return [outcome.tenants() for outcome in known.values()]
        limits = self._limits() if known else {}
        return [outcome.concurrency(limits.get(broker, {})) for broker, outcome in known.items()]

    def _limits(self) -> dict[str, dict[tuple[str, str], int | None]]:
        queues = self.table(_QUEUES)
        limits: dict[str, dict[tuple[str, str], int | None]] = {}
        if queues is not None:
            columns = ("broker", "queue", "subscriber", "in_flight_limit")
            for broker, queue, subscriber, limit in zip(
                *(queues.column(name).to_pylist() for name in columns), strict=True
            ):
                limits.setdefault(broker, {})[queue, subscriber] = limit
        return limits

    def _newest(self) -> pa.Table:
        folds, samples = self._present.folds, self._present.samples.rows
        sampled = dict(zip(*(column.to_pylist() for column in _maxima(samples, "broker", "sampled_at")), strict=True))
        events = [fold.as_of_us if fold.state.names else None for fold in folds.values()]
        return pa.table(
            {
                "broker": pa.array(list(folds), pa.string()),
                "as_of": pa.array(events, pa.timestamp("us")).cast(TIMESTAMP),
                "sampled_at": pa.array([sampled.get(broker) for broker in folds], TIMESTAMP),
            }
        )

    def _queues(self) -> pa.Table:
        connection, folds = self._connection, self._present.folds
        consumers = [(broker, *names) for broker, fold in folds.items() for names in fold.consumers.items()]
        tables = {
            "folded_queues": pa.concat_tables([outcome.queues() for outcome in self._outcomes.values()]),
            "kept_samples": self._present.samples.rows,
            "stage_consumers": _columns(("broker", "queue", "subscriber"), consumers, pa.string()),
            "stage_levels": pa.table(
                {
                    "broker": pa.array(list(folds), pa.string()),
                    **{
                        name: pa.array([getattr(fold, name) for fold in folds.values()], pa.int64())
                        for name in ("as_of_us", "now_second", "minutes_until", "hours_until")
                    },
                    "opened_until": pa.array([-1] * len(folds), pa.int64()),  # history alone asks for it
                }
            ),
        }
        for name, table in tables.items():
            connection.register(name, table)
        # What samples say depends on them, the clocks and who consumes: mostly the events alone have gone on.
        rests_on = self._present.samples.rows, tables["stage_levels"].drop_columns(["as_of_us"]), consumers
        if self._sampled is None or not all(map(_same, rests_on, self._sampled)):
            for name, sql in self._steps[:-1]:
                connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
            self._sampled = rests_on
        return connection.sql(self._steps[-1][1]).to_arrow_table()


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def _maxima(rows: pa.Table, by: str, column: str) -> list[pa.ChunkedArray]:
    grouped = rows.group_by(by).aggregate([(column, "max")])
    return [grouped.column(by), grouped.column(f"{column}_max")]


def _columns(names: tuple[str, ...], rows: Sequence[tuple[str, ...]], kind: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array([row[place] for row in rows], kind) for place, name in enumerate(names)})
