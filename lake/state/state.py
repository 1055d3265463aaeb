"""The present of a lake as the analytics has finished it: what a reader holds instead of history."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lake.state.held import Held, newest_by
from lake.state.stages import columns_read


class State:
    """The newest finished state of the lake at ``root``. Belongs to one thread.

    ``queue_state`` is committed last: what it has come to, the other tables have reached, and no more is shown of them.
    """

    def __init__(self, root: Path) -> None:
        self._tenants, self._queues, self._ages = (
            Held(name, root, columns_read(f"{name}_now")) for name in ("tenant_state", "queue_state", "age_state")
        )
        self._clocked: pa.Table | None = None
        self.generation = 0

    @property
    def known(self) -> bool:
        """Whether there is any."""
        return self._queues.epoch >= 0

    @property
    def tells_history(self) -> bool:
        """Whether rows say if something happened in their second: those of before there was that column do not."""
        happened = self._queues.rows.column("happened")
        return self.known and happened.null_count < len(happened)

    def refresh(self) -> None:
        """Take in what was committed; :attr:`generation` changes if anything was. Raises LakeError."""
        if self._queues.refresh():
            self._clocked = None
            self.generation += 1

    def table(self, name: str) -> pa.Table | None:
        """The rows of ``tenant_state_now``, ``queue_state_now`` or ``age_state_now``.

        None for ages that finished state does not have: those over several subscribers take history.
        """
        match name:
            case "tenant_state_now":
                rows = self._reached(self._tenants)
                return self._tenants.rows.slice(0, 0) if rows is None else rows
            case "age_state_now":
                return self._reached(self._ages)
            case _:
                return self._with_clocks()

    def _reached(self, held: Held) -> pa.Table | None:
        """What a table tells up to the instant of the queues; None where it tells nothing of their epoch."""
        held.refresh(self._queues.epoch, self._queues.revision)
        return held.rows if held.epoch == self._queues.epoch else None

    def _with_clocks(self) -> pa.Table:
        """The queues' rows with the data time of their broker, to which no row of it is later."""
        if self._clocked is None:
            rows = self._queues.rows
            micros = rows.column("as_of").cast(pa.int64()).to_numpy()
            self._clocked = rows.append_column("now_us", pa.array(newest_by(rows.column("broker"), micros)))
        return self._clocked
