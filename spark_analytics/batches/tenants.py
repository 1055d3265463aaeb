"""A bound on how many tenants gold tells apart: those that come later are counted together, as ``other``.

Each (queue, tenant) costs a row a second in gold, and in every reader. A tenant once told apart stays so, whatever
comes after it, or its backlog would not add up: its arrivals would be its own and its ends those of ``other``.
"""

from __future__ import annotations

import logging
from collections.abc import Set

import pyarrow as pa
import pyarrow.compute as pc

from lake.dataset import dataset
from lake.store import Lake
from spark_analytics.transforms import KEY

log = logging.getLogger(__name__)

#: Stands for all tenants beyond the bound.
OTHER = "other"
#: Names of ours, which take no tenant's place.
_OURS = frozenset({OTHER, KEY["tenant"]})


class Tenants:
    """The tenants that gold tells apart: those that it holds, and then the first to come, ``most`` of them in all.

    Which of a batch's new tenants are told apart depends on what stands in the batch, and not on who reads it in which
    pieces: whoever does a batch, or does it again after a crash, must choose the same.
    """

    def __init__(self, lake: Lake, most: int) -> None:
        self._lake = lake
        self._most = most
        self._known: set[str] | None = None
        self._told = False

    @property
    def room(self) -> int:
        """How many tenants may still come that will be told apart."""
        return max(0, self._most - len(self._loaded()))

    @property
    def enough(self) -> int:
        """While there is room, :meth:`admit` needs no more names of a batch than so many, the first in their order.

        They include all that there is room for: at most ``most`` are known already, or ours.
        """
        return self._most + len(_OURS) + 1

    def kept(self) -> frozenset[str] | None:
        """The names that are told apart, all others being :data:`OTHER`; None while there is room for any."""
        return None if self.room else frozenset(self._loaded())

    def admit(self, names: Set[str]) -> None:
        """Take up the tenants of a batch, in the order of their names, while there is room."""
        known = self._loaded()
        fresh = sorted(names - known - _OURS)
        room = self.room
        known.update(fresh[:room])
        if len(fresh) > room and not self._told:
            self._told = True
            log.warning("more than %d tenants: those that come now are counted together, as %r", self._most, OTHER)

    def bounded(self, rows: pa.Table) -> pa.Table:
        """``rows`` with the tenants beyond the bound renamed. Those of its batch were admitted before, if there is not
        room for as many as the batch has rows.
        """
        names = names_of(rows)
        self.admit(names)
        return _renamed(rows, names - self._loaded() - _OURS)

    def _loaded(self) -> set[str]:
        if self._known is None:
            self._known = set()
            for batch in dataset(self._lake.ensure("partials")).to_batches(columns=["tenant"]):
                self._known |= set(pc.unique(batch.column(0)).to_pylist())
            self._known -= _OURS
        return self._known


def folded(rows: pa.Table, kept: Set[str]) -> pa.Table:
    """``rows`` with all tenants renamed that are not among ``kept``."""
    return _renamed(rows, names_of(rows) - kept - _OURS)


def names_of(rows: pa.Table) -> set[str]:
    """The tenants that ``rows`` name."""
    return set(pc.unique(rows.column("tenant")).cast(pa.string()).drop_null().to_pylist())


def _renamed(rows: pa.Table, beyond: Set[str]) -> pa.Table:
    if not beyond:
        return rows
    column = rows.column("tenant")
    names = column.cast(pa.string())
    renamed = pc.if_else(pc.is_in(names, value_set=pa.array(beyond, pa.string())), OTHER, names)
    if pa.types.is_dictionary(column.type):
        renamed = renamed.dictionary_encode()
    return rows.set_column(rows.column_names.index("tenant"), "tenant", renamed)
