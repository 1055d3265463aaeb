"""A bound on how many tenants gold tells apart: those that come later are counted together, as ``other``.

Each (queue, tenant) costs a row a second in gold, and in every reader. A tenant once told apart stays so, whatever
comes after it, or its backlog would not add up: its arrivals would be its own and its ends those of ``other``.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake

log = logging.getLogger(__name__)

#: Stands for all tenants beyond the bound.
OTHER = "other"


class Tenants:
    """The tenants that gold tells apart: those that it holds, and then the first to come, ``most`` of them in all."""

    def __init__(self, lake: Lake, most: int) -> None:
        self._lake = lake
        self._most = most
        self._known: set[str] | None = None
        self._told = False

    def bounded(self, rows: pa.Table) -> pa.Table:
        """``rows`` (with a column ``tenant``) with the tenants beyond the bound renamed."""
        column = rows.column("tenant")
        names = set(pc.unique(column).cast(pa.string()).drop_null().to_pylist())
        known = self._loaded()
        fresh = names - known
        room = max(0, self._most - len(known))
        if len(fresh) <= room:
            known |= fresh
            return rows
        # In a fixed order: a batch that is done again after a crash must choose the same.
        ordered = sorted(fresh)
        known |= set(ordered[:room])
        return rows.set_column(rows.column_names.index("tenant"), "tenant", self._folded(column, ordered[room:]))

    def _folded(self, column: pa.ChunkedArray, beyond: list[str]) -> pa.ChunkedArray:
        if not self._told:
            self._told = True
            log.warning("more than %d tenants: those that come now are counted together, as %r", self._most, OTHER)
        names = column.cast(pa.string())
        folded = pc.if_else(pc.is_in(names, value_set=pa.array(beyond, pa.string())), OTHER, names)
        return folded.dictionary_encode() if pa.types.is_dictionary(column.type) else folded

    def _loaded(self) -> set[str]:
        if self._known is None:
            self._known = set()
            for batch in self._lake.ensure("partials").to_pyarrow_dataset().to_batches(columns=["tenant"]):
                self._known |= set(pc.unique(batch.column(0)).to_pylist())
        return self._known
