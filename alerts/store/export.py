"""Transitions and deliveries flow from the store into the lake's Delta tables, each exactly once."""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import Any

import pyarrow as pa

from alerts.store.database import Database, from_us, from_us_or_none, transaction
from lake.errors import SojournError
from lake.store import Lake
from lake.tables import TABLES

log = logging.getLogger(__name__)

#: Rows moved in one commit; more wait for the next.
BATCH = 5_000
#: Commits after which small files are rewritten into few.
COMPACT_EVERY = 200

_TRANSITIONS = (
    "SELECT id, at, data_as_of, rule_group, rule, fingerprint, labels, annotations, from_state, to_state, value,"
    " reason, inputs FROM transitions WHERE id > ? ORDER BY id LIMIT ?"
)
_DELIVERIES = (
    "SELECT id, at, delivery_id, receiver, group_key, status, alerts, attempt, outcome, status_code, error,"
    " duration_seconds, data_as_of FROM deliveries WHERE id > ? ORDER BY id LIMIT ?"
)


class Exporter:
    """Copies new rows into the lake; the last row's number is the commit's version, so that none is copied twice.

    One exporter belongs to one thread, with a connection and a lake of its own.
    """

    def __init__(self, connection: Database, lake: Lake) -> None:
        self._db = connection
        self._lake = lake
        store_id = connection.execute("SELECT value FROM meta WHERE key = 'store_id'").fetchone()[0]
        self._app_id = f"alerts-{store_id}"
        self._commits = 0

    def export(self) -> int:
        """Copy everything that is new; returns how many rows."""
        return self._copy("alert_transitions", "transitions", _TRANSITIONS) + self._copy(
            "deliveries", "deliveries", _DELIVERIES
        )

    def _copy(self, table: str, source: str, select: str) -> int:
        copied = 0
        while True:
            waiting = self._db.execute(f"SELECT EXISTS (SELECT 1 FROM {source})").fetchone()[0]
            if not waiting:
                return copied
            done = self._lake.committed(table, self._app_id) or 0
            cursor = self._db.execute(select, [done, BATCH])
            names = [column[0] for column in cursor.description]
            rows = [_decoded(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
            if rows:
                last = rows[-1]["id"]
                columns = pa.Table.from_pylist(
                    [{name: value for name, value in row.items() if name != "id"} for row in rows],
                    schema=TABLES[table].schema,
                )
                self._lake.append(table, columns, app_id=self._app_id, version=last)
                self._compact_sometimes(table)
                copied += len(rows)
                done = last
            with transaction(self._db):
                self._db.execute(f"DELETE FROM {source} WHERE id <= ?", [done])
            if len(rows) < BATCH:
                return copied

    def _compact_sometimes(self, table: str) -> None:
        self._commits += 1
        if self._commits % COMPACT_EVERY == 0:
            self._lake.compact(table)


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    row["at"] = from_us(row["at"])
    row["data_as_of"] = from_us_or_none(row["data_as_of"])
    for name in ("labels", "annotations", "inputs"):
        if row.get(name) is not None:
            row[name] = list(json.loads(row[name]).items())
    return row


def export_quietly(exporter: Exporter) -> None:
    """Export, and leave it to the next time if the lake cannot be written: nothing is lost meanwhile."""
    try:
        exporter.export()
    except (SojournError, sqlite3.Error) as error:
        log.warning("alert history waits for the lake: %s", error)
