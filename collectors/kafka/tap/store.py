"""The tap's rows in bronze, exactly once: one commit holds them and how far each partition and group has come."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from collectors.bronze import Bronze
from collectors.isolate import RowIsolator, append_rejected, is_of_rows
from collectors.records import Rejected, stamp
from lake.tables import MESSAGE_EVENTS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """What is to be committed at once, and never changed again, so that it can be repeated."""

    rows: pa.Table | None
    positions: Mapping[str, int]
    lost: tuple[tuple[str, Rejected], ...] = ()  # label of the partition, and what went by unread there


class Store:
    """Bronze as one tap writes it. Belongs to bronze's thread."""

    def __init__(self, bronze: Bronze, source: str, compact_every: int) -> None:
        self._bronze = bronze
        self._source = source
        self._compact_every = compact_every
        self._commits = 0
        self._isolator = RowIsolator(bronze, source, f"{source}#//apart")
        self._isolator.recover()

    def write(self, commit: Commit) -> int:
        """Write it, wholly or – after an error – not yet: repeat the same commit until it succeeds.

        Rows that cannot be written go to ``rejected_records``, and keep none of the others out; returns how many.
        """
        refused = self._isolator.recover()
        for label, record in commit.lost:
            position = {f"{self._source}#lost/{label}": record.position}
            append_rejected(self._bronze, [record], self._source, positions=position)
        if commit.positions:
            rows = MESSAGE_EVENTS.schema.empty_table() if commit.rows is None else _stamped(commit.rows, self._source)
            refused += self._append(rows, commit.positions)
        self._commits += 1
        if self._commits % self._compact_every == 0:
            self._bronze.compact("message_events")
        return refused

    def _append(self, rows: pa.Table, positions: Mapping[str, int]) -> int:
        try:
            self._bronze.append("message_events", rows, positions=positions)
        except Exception as error:
            if not is_of_rows(error):
                raise
            if all((self._bronze.committed("message_events", key) or 0) >= at for key, at in positions.items()):
                return 0  # written, and something failed behind it
            log.exception("%s: a batch cannot be written as it is: its rows are set apart", self._source)
            return self._isolator.append("message_events", rows, positions)
        return 0

    def reached(self, key: str) -> int | None:
        """What was committed under ``key``."""
        return self._bronze.committed("message_events", key)

    def generation(self, topic: str, identity: str) -> int:
        """How often ``topic``, with this ``identity`` now, was recreated since it was first followed."""
        known = self.reached(topic_key(self._source, topic, identity))
        if known is not None:
            return known
        newest = self.reached(topic_key(self._source, topic))
        return 0 if newest is None else newest + 1


def _stamped(rows: pa.Table, source: str) -> pa.Table:
    for name, column in stamp(source, rows.num_rows).items():
        rows = rows.append_column(name, column)
    return rows


def position_key(source: str, label: str) -> str:
    """The application id that says how far a partition was read."""
    return f"{source}#{label}"


def group_key(source: str, group: str, label: str) -> str:
    """The application id that says up to where a group's ends were told."""
    return f"{source}#{quote(group, safe='')}/{label}"


def topic_key(source: str, topic: str, identity: str = "") -> str:
    """The application id that says which generation of ``topic`` the one of ``identity`` is; without: the newest."""
    return f"{source}#topic/{topic}/{identity}"
