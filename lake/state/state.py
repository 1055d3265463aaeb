"""The present of a lake as the analytics has finished it: what a reader holds instead of history."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lake.absent import completed
from lake.finished import AGE_STATE
from lake.state.held import Held, newest_by
from lake.views import columns_read

#: The columns of ages that are held whatever is asked: what a row is about, and whether it counts.
_AGES_ALWAYS = frozenset({
    "broker", "queue", "subscriber", "tenant", "kind", "bucket_start", "bucket_seconds", "count",
})  # fmt: skip


class State:
    """The newest finished state of the lake at ``root``. Belongs to one thread.

    ``queue_state`` is committed last: what it has come to, the other tables have reached, and no more is shown of them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tenants, self._queues = (
            Held(name, root, columns_read(f"{name}_now")) for name in ("tenant_state", "queue_state")
        )
        self._age_columns = _AGES_ALWAYS
        self._ages = Held(AGE_STATE.name, root, self._age_columns)
        self._clocked: pa.Table | None = None
        self.generation = 0

    @property
    def known(self) -> bool:
        """Whether there is any."""
        return self._queues.epoch >= 0

    def refresh(self) -> None:
        """Take in what was committed; :attr:`generation` changes if anything was. Raises LakeError."""
        if self._queues.refresh():
            self._clocked = None
            self.generation += 1

    def ask(self, columns: frozenset[str] | None) -> None:
        """What follows is asked for the ``columns`` of ages (None: all); those that nobody has asked for are null.

        Histograms are the most of what there is to hold, and few questions are about them.
        """
        all_of_them = frozenset(AGE_STATE.schema.names)
        wanted = (columns_read("age_state_now") or all_of_them) if columns is None else columns & all_of_them
        if not wanted <= self._age_columns:
            self._age_columns |= wanted
            self._ages = Held(AGE_STATE.name, self._root, self._age_columns)
            self.generation += 1

    def table(self, name: str) -> pa.Table:
        """The rows of ``tenant_state_now``, ``queue_state_now`` or ``age_state_now``."""
        match name:
            case "tenant_state_now":
                return self._reached(self._tenants)
            case "age_state_now":
                return completed(self._reached(self._ages), AGE_STATE.schema)
            case _:
                return self._with_clocks()

    def _reached(self, held: Held) -> pa.Table:
        """What a table tells up to the instant of the queues, of whose epoch it may tell nothing."""
        held.refresh(self._queues.epoch, self._queues.revision)
        return held.rows if self.known and held.epoch == self._queues.epoch else held.rows.slice(0, 0)

    def _with_clocks(self) -> pa.Table:
        """The queues' rows with the data time of their broker, to which no row of it is later."""
        if self._clocked is None:
            rows = self._queues.rows
            micros = rows.column("as_of").cast(pa.int64()).to_numpy()
            self._clocked = rows.append_column("as_of_us", pa.array(newest_by(rows.column("broker"), micros)))
        return self._clocked
