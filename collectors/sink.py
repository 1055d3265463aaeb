"""Writing bronze exactly once: a batch's number is the Delta transaction version of the tap that made it.

The commit that holds a batch also says how far the source was read, so a crash at any instant leaves both or neither,
and whoever restarts reads on from there. Three tables take part:

* ``message_events`` holds the position: every batch ends with a commit there.
* ``event_summaries`` comes first, if the batch was rolled up. A crash between the two is fixed from a *redo file*
  with the batch's single events, written before either; :meth:`Sink.recover` finishes the batch.
* ``rejected_records`` has a numbering of its own, by the position of the last record refused. Whether a record can be
  read depends on the record alone, so what is read again after a crash is refused again, and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from collectors.bronze import Bronze
from collectors.buffer import STEP_BITS, Batch
from collectors.isolate import RowIsolator, append_rejected, is_of_rows, sifted
from collectors.records import Event, Rejected, events_table, now_us
from collectors.redo import read_table, write_table
from collectors.rollup import Rollup
from lake.errors import UserError
from lake.tables import EVENT_SUMMARIES

log = logging.getLogger(__name__)

_STATE, _REDO = "state.arrow", "redo.arrow"
_SEALED_AT = b"sealed_at"


class Sink:
    """The bronze tables as one source writes them. It belongs to one thread, as its lake does."""

    def __init__(self, lake: Bronze, *, broker: str, source: str, app_id: str, compact_every: int = 150) -> None:
        self.lake = lake
        self.broker = broker
        self.source = source
        self.app_id = app_id
        self._compact_every = compact_every
        self._commits = 0
        self._isolator = RowIsolator(lake, source, app_id)
        self._folder = lake.state_path("collect", _file_name(app_id), "x").parent

    def recover(self) -> int | None:
        """The number of the last batch written, after finishing one that a crash cut in two; None before the first."""
        self._isolator.recover()
        summarised = self.lake.committed("event_summaries", self.app_id)
        written = self.lake.committed("message_events", self.app_id)
        if summarised is not None and (written is None or summarised > written):
            path = self._folder / f"{summarised}.{_REDO}"
            if not path.exists():
                raise UserError(f"the lake's file {path} is missing", "restore it, or collect into a new lake")
            redo = read_table(path)
            self._append("message_events", redo, summarised)
            log.info("%s: finished the batch that an earlier run was stopped in", self.source)
            written = summarised
        self._forget(keep=written)
        return written

    def state(self) -> tuple[pa.Table, int] | None:
        """What the last roll-up left to remember, and when it was made (microseconds); None if there was none."""
        written = self.lake.committed("message_events", self.app_id)
        versions = [version for version in self._versions(_STATE) if written is not None and version <= written]
        if not versions:
            return None
        table = read_table(self._folder / f"{max(versions)}.{_STATE}")
        return table, int(table.schema.metadata[_SEALED_AT])

    def write(self, batch: Batch) -> int:
        """Write ``batch``, wholly or – after an error – not yet: repeat the same batch until it succeeds.

        Events that cannot be written go to ``rejected_records``, and keep none of the others out; returns how many.
        """
        refused = self._isolator.recover()
        self._refuse(batch.rejected)
        if batch.events or batch.rollup is not None:
            events, bad = self._table(batch.events)
            refused += len(bad)
            if batch.rollup is not None:
                assert batch.state is not None
                write_table(self._folder / f"{batch.version}.{_STATE}", batch.state)
                write_table(self._folder / f"{batch.version}.{_REDO}", events)
                refused += self._append("event_summaries", self._rows(batch.rollup, bad), batch.version)
            if bad:
                append_rejected(self.lake, bad, self.source)
            refused += self._append("message_events", events, batch.version)
            if batch.rollup is not None:
                self._forget(keep=batch.version)
        self._commits += 1
        if self._commits % self._compact_every == 0:
            for name in ("message_events", "event_summaries", "rejected_records"):
                self.lake.compact(name)
        return refused

    def _table(self, events: Sequence[Event]) -> tuple[pa.Table, list[Rejected]]:
        """``events`` as rows, and those of which no row can be made."""
        try:
            return events_table(events, self.broker, self.source), []
        except Exception as error:
            if not is_of_rows(error):
                raise
        good, bad = sifted(events, lambda some: events_table(some, self.broker, self.source))
        return events_table(good, self.broker, self.source), bad

    def _rows(self, rollup: Rollup, bad: list[Rejected]) -> pa.Table:
        """The rows of ``rollup``; none, and a record in ``bad``, where none can be made of it."""
        try:
            return rollup.table(self.broker, self.source)
        except Exception as error:
            if not is_of_rows(error):
                raise
            log.exception("%s: what was rolled up cannot be written", self.source)
            bad.append(Rejected(0, now_us(), f"a roll-up cannot be written: {type(error).__name__}", "", rollup.events))
            return EVENT_SUMMARIES.schema.empty_table()

    def _append(self, name: str, rows: pa.Table, version: int) -> int:
        """Append with the batch's number; row by row where it must be. Returns how many rows were refused."""
        try:
            self.lake.append(name, rows, app_id=self.app_id, version=version)
        except Exception as error:
            if not is_of_rows(error):
                raise
            if (self.lake.committed(name, self.app_id) or 0) >= version:
                return 0  # written, and something failed behind it
            log.exception("%s: a batch cannot be written as it is: its rows are set apart", self.source)
            return self._isolator.append(name, rows, {self.app_id: version})
        return 0

    def _refuse(self, rejected: Sequence[Rejected]) -> None:
        if not rejected:
            return
        app_id = f"{self.app_id}#rejected"
        done = self.lake.committed("rejected_records", app_id)
        new = [record for record in rejected if done is None or record.position << STEP_BITS > done]
        if new:
            version = max(record.position for record in new) << STEP_BITS
            append_rejected(self.lake, new, self.source, app_id=app_id, version=version)

    def _versions(self, kind: str) -> list[int]:
        return [int(path.name.split(".", 1)[0]) for path in self._folder.glob(f"[0-9]*.{kind}")]

    def _forget(self, keep: int | None) -> None:
        """Remove redo files that are of no more use, and every state but the newest that counts."""
        for version in self._versions(_REDO):
            (self._folder / f"{version}.{_REDO}").unlink(missing_ok=True)
        states = self._versions(_STATE)
        newest = max((version for version in states if keep is not None and version <= keep), default=None)
        for version in states:
            if version != newest:
                (self._folder / f"{version}.{_STATE}").unlink(missing_ok=True)


def sealed(table: pa.Table) -> pa.Table:
    """``table`` with the time at which it was made."""
    metadata = dict(table.schema.metadata or {})
    return table.replace_schema_metadata({**metadata, _SEALED_AT: str(now_us()).encode()})


def _file_name(app_id: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in app_id)
