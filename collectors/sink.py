"""Writing bronze exactly once: a batch's number is the Delta transaction version of the tap that made it.

The commit that holds a batch also says how far the source was read, so a crash at any instant leaves both or neither,
and whoever restarts reads on from there. Three tables take part:

* ``message_events`` holds the position: every batch ends with a commit there.
* ``event_summaries`` comes first, if the batch was rolled up. A crash between the two is mended from a *redo file*
  with the batch's single events, written before either; :meth:`Sink.recover` finishes the batch.
* ``rejected_records`` has a numbering of its own, by the position of the last record refused. Whether a record can be
  read depends on the record alone, so what is read again after a crash is refused again, and skipped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from collectors.bronze import Bronze
from collectors.buffer import STEP_BITS, Batch
from collectors.records import Rejected, events_table, now_us, rejected_table
from lake.errors import UserError
from lake.files import private

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
        self._folder = lake.state_path("collect", _file_name(app_id), "x").parent

    def recover(self) -> int | None:
        """The number of the last batch written, after finishing one that a crash cut in two; None before the first."""
        summarised = self.lake.committed("event_summaries", self.app_id)
        written = self.lake.committed("message_events", self.app_id)
        if summarised is not None and (written is None or summarised > written):
            path = self._folder / f"{summarised}.{_REDO}"
            if not path.exists():
                raise UserError(f"the lake's file {path} is missing", "restore it, or collect into a new lake")
            redo = _read(path)
            self.lake.append("message_events", redo, app_id=self.app_id, version=summarised)
            log.info("%s: finished the batch that an earlier run was stopped in", self.source)
            written = summarised
        self._tidy(keep=written)
        return written

    def state(self) -> tuple[pa.Table, int] | None:
        """What the last roll-up left to remember, and when it was made (microseconds); None if there was none."""
        written = self.lake.committed("message_events", self.app_id)
        versions = [version for version in self._versions(_STATE) if written is not None and version <= written]
        if not versions:
            return None
        table = _read(self._folder / f"{max(versions)}.{_STATE}")
        return table, int(table.schema.metadata[_SEALED_AT])

    def write(self, batch: Batch) -> None:
        """Write ``batch``, wholly or – after an error – not yet: repeat the same batch until it succeeds."""
        self._refuse(batch.rejected)
        if batch.events or batch.rollup is not None:
            events = events_table(batch.events, self.broker, self.source)
            if batch.rollup is not None:
                assert batch.state is not None
                _write(self._folder / f"{batch.version}.{_STATE}", batch.state)
                _write(self._folder / f"{batch.version}.{_REDO}", events)
                rows = batch.rollup.table(self.broker, self.source)
                self.lake.append("event_summaries", rows, app_id=self.app_id, version=batch.version)
            self.lake.append("message_events", events, app_id=self.app_id, version=batch.version)
            if batch.rollup is not None:
                self._tidy(keep=batch.version)
        self._commits += 1
        if self._commits % self._compact_every == 0:
            for name in ("message_events", "event_summaries", "rejected_records"):
                self.lake.compact(name)

    def _refuse(self, rejected: Sequence[Rejected]) -> None:
        if not rejected:
            return
        app_id = f"{self.app_id}#rejected"
        done = self.lake.committed("rejected_records", app_id)
        new = [record for record in rejected if done is None or record.position << STEP_BITS > done]
        if new:
            version = max(record.position for record in new) << STEP_BITS
            self.lake.append("rejected_records", rejected_table(new, self.source), app_id=app_id, version=version)

    def _versions(self, kind: str) -> list[int]:
        return [int(path.name.split(".", 1)[0]) for path in self._folder.glob(f"[0-9]*.{kind}")]

    def _tidy(self, keep: int | None) -> None:
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


def _write(path: Path, table: pa.Table) -> None:
    draft = path.with_name(f".{path.name}")
    with open(draft, "wb", opener=private) as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _read(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return pa.ipc.open_file(file).read_all()
