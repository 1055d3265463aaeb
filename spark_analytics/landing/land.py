"""Parsed records into the lake, each once, whoever read them and however often."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from lake.schema import TIMESTAMP
from lake.store import Lake
from lake.tables import REJECTED_RECORDS, TABLES

REJECTED = REJECTED_RECORDS.name


def landed_id(topic_id: str, partition: int) -> str:
    """The application id under which a table of the lake notes the next offset of one partition to be landed.

    Collectors that wait for their records look it up under the same name.
    """
    return f"kafka:{topic_id}-{partition}"


class Landing:
    """Brings the records of one topic into its bronze table, and those that are no rows into rejected_records.

    One commit holds the rows and, for each partition, the offset behind them. What is below that offset is left out,
    so that records which are read again – after a crash, or with a new checkpoint – are not written again. A topic
    that was recreated has another ``topic_id``, hence offsets of its own.
    """

    def __init__(self, lake: Lake, name: str, topic: str, topic_id: str, compact_every: int) -> None:
        self._lake = lake
        self._name = name
        self._topic = topic
        self._topic_id = topic_id
        self._compact_every = compact_every
        self._batches = 0

    def write(self, parsed: pa.Table) -> tuple[int, int]:
        """Land rows of :func:`spark_analytics.landing.parse.parse`; how many were new rows, how many rejected."""
        reached = _reached(parsed)
        faulty = pc.is_valid(parsed.column("reason"))
        refused = self._new(parsed.filter(faulty), REJECTED, "#rejected")
        if refused.num_rows:
            self._append(REJECTED, self._rejected(refused), _reached(refused), "#rejected")
        rows = self._new(parsed.filter(pc.invert(faulty)), self._name)
        if reached:
            self._append(self._name, _rows(rows, TABLES[self._name].schema), reached)
        self._batches += 1
        if self._batches % self._compact_every == 0:
            self._lake.compact(self._name)
        return rows.num_rows, refused.num_rows

    def _append(self, table: str, rows: pa.Table, reached: Mapping[int, int], part: str = "") -> None:
        positions = {landed_id(self._topic_id, one) + part: next_ for one, next_ in reached.items()}
        self._lake.append(table, rows, positions=positions)

    def _new(self, parsed: pa.Table, table: str, part: str = "") -> pa.Table:
        """Those that ``table`` does not hold."""
        for partition in parsed.column("partition").unique().to_pylist():
            landed = self._lake.committed(table, landed_id(self._topic_id, partition) + part)
            if landed is not None:
                of = pc.equal(parsed.column("partition"), partition)
                done = pc.and_(of, pc.less(parsed.column("offset"), landed))
                parsed = parsed.filter(pc.invert(done))
        return parsed

    def _rejected(self, refused: pa.Table) -> pa.Table:
        now = datetime.now(UTC)
        count = refused.num_rows
        return pa.table(
            {
                "received_at": refused.column("timestamp").cast(TIMESTAMP),
                "source": pa.repeat(f"kafka:{self._topic}", count),
                "reason": refused.column("reason"),
                "raw": refused.column("raw"),
                "count": pa.repeat(pa.scalar(1, pa.int64()), count),
                "ingested_at": pa.repeat(pa.scalar(now, type=TIMESTAMP), count),
                "ingest_date": pa.repeat(pa.scalar(now.date(), type=pa.date32()), count),
            }
        )


def _reached(parsed: pa.Table) -> dict[int, int]:
    """Partition → the offset behind its last record here."""
    last = parsed.select(["partition", "offset"]).group_by("partition").aggregate([("offset", "max")])
    return {row["partition"]: row["offset_max"] + 1 for row in last.to_pylist()}


def _rows(parsed: pa.Table, schema: pa.Schema) -> pa.Table:
    if parsed.num_rows == 0:
        return schema.empty_table()
    rows = parsed.column("row").combine_chunks()
    return pa.table(
        [rows.field(name).cast(kind) for name, kind in zip(schema.names, schema.types, strict=True)], schema=schema
    )
