"""Samples as they come: which are still needed, which consumer each is of, and what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from lake.now.lived import Consumers
from lake.now.reading import Reading
from lake.snapshot import read_file
from lake.store import conform
from lake.tables import QUEUE_SAMPLES

#: Samples may come this much late, in seconds, and still find the one before them.
SLACK = 120
_PRUNED = ("unavailable", "ingested_at", "ingest_date")
COLUMNS = tuple(name for name in QUEUE_SAMPLES.schema.names if name not in _PRUNED)

#: Of each series the lately taken samples, the one before, and the newest that told what is asked for as the newest.
_NEEDED = """
SELECT * FROM samples JOIN clocks USING (broker)
WINDOW series AS (PARTITION BY broker, queue, subscriber, source)
QUALIFY second > horizon
  OR sampled_at = MAX(CASE WHEN second <= horizon THEN sampled_at END) OVER series
  OR sampled_at = MAX(CASE WHEN depth IS NOT NULL OR in_flight IS NOT NULL OR polls_total IS NULL THEN sampled_at END)
    OVER series
  OR sampled_at = MAX(CASE WHEN in_flight_limit IS NOT NULL THEN sampled_at END) OVER series
  OR sampled_at = MAX(sampled_at) OVER (PARTITION BY broker, queue, subscriber, source, dead_letter_for)
"""


class Samples:
    """The samples that the present rests on."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.forget()

    def forget(self) -> None:
        """Begin again without any."""
        self.rows = QUEUE_SAMPLES.schema.empty_table().select(COLUMNS)
        self._named: dict[tuple[str, str], set[str]] = {}
        self._taken_for: dict[tuple[str, str], bool] = {}
        self._pruned = 0

    def read(self, path: Path) -> pa.Table:
        """The samples in the file ``path``."""
        part = read_file(path)
        for name in part.column_names:
            if name in _PRUNED or name not in QUEUE_SAMPLES.schema.names:
                part = part.drop_columns([name])
        return conform(part, pa.schema([QUEUE_SAMPLES.schema.field(name) for name in COLUMNS]))

    def note(self, rows: pa.Table) -> None:
        """Remember which subscribers samples name."""
        for row in rows.group_by(["broker", "queue", "subscriber"]).aggregate([]).to_pylist():
            if row["subscriber"] is not None:
                self._named.setdefault((row["broker"], row["queue"]), set()).add(row["subscriber"])

    def add(self, rows: pa.Table, consumers: Mapping[str, Consumers]) -> bool:
        """Keep ``rows``; whether samples of before are of another consumer than they were taken to be."""
        self.note(rows)
        self.rows = pa.concat_tables([self.rows, rows])
        places = set(zip(rows.column("broker").to_pylist(), rows.column("queue").to_pylist(), strict=True))
        return self._changed(places, consumers)

    def _changed(self, places: set[tuple[str, str]], consumers: Mapping[str, Consumers]) -> bool:
        changed = False
        for place in places:
            unnamed = self._unnamed(place, consumers)
            changed = changed or self._taken_for.get(place, unnamed) != unnamed
            self._taken_for[place] = unnamed
        return changed

    def doubtful(self, consumers: Mapping[str, Consumers]) -> bool:
        """Whether events that came made samples those of another consumer."""
        return self._changed(set(self._taken_for), consumers)

    def _unnamed(self, place: tuple[str, str], consumers: Mapping[str, Consumers]) -> bool:
        """Whether samples that name a consumer mean the unnamed one of events: `stage_samples` has the rule."""
        known = consumers.get(place[0])
        return len(self._named.get(place, ())) == 1 and known is not None and known.of(place[1]) == frozenset({""})

    def readings(self, rows: pa.Table, consumers: Mapping[str, Consumers]) -> Iterator[tuple[str, str, str, Reading]]:
        """(broker, queue, subscriber, reading without its consumer's number) of each of ``rows``."""
        names = ("broker", "queue", "subscriber", "depth", "in_flight", "oldest_age_seconds", "polls_total")
        columns = [rows.column(name).to_pylist() for name in names]
        micros = rows.column("sampled_at").cast(pa.int64()).to_pylist()
        serves, partly = rows.column("dead_letter_for").to_pylist(), rows.column("unknown_partitions").to_pylist()
        for broker, queue, subscriber, depth, in_flight, age, polls, at, serving, unknown in zip(
            *columns, micros, serves, partly, strict=True
        ):
            reads = depth is not None or in_flight is not None or polls is None
            there = float("nan") if depth is None or unknown else float(depth + (in_flight or 0))
            told_age = float("nan") if age is None else float(age)
            who = "" if self._unnamed((broker, queue), consumers) else subscriber or ""
            yield broker, queue, who, Reading(-1, at, reads, there, told_age, serving is not None)

    def prune(self, now: Mapping[str, int]) -> None:
        """Let go of samples that nothing at the seconds ``now`` (by broker) rests on any more."""
        if self.rows.num_rows < 2 * self._pruned + 1000:
            return
        clocks = pa.table(
            {
                "broker": pa.array(list(now), pa.string()),
                "horizon": pa.array([second - self._window - SLACK for second in now.values()], pa.int64()),
            }
        )
        with duckdb.connect(config={"threads": "1"}) as connection:
            connection.register("all_samples", self.rows)
            connection.register("clocks", clocks)
            connection.execute(
                "CREATE TEMP VIEW samples AS SELECT *, epoch_us(sampled_at) // 1000000 AS second FROM all_samples"
            )
            kept = connection.sql(_NEEDED).to_arrow_table().select(list(COLUMNS))
        self.rows = kept.cast(self.rows.schema)
        self._pruned = self.rows.num_rows
