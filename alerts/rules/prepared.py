"""A rule's statement, understood once, run at each evaluation time: checking one takes longer than most take to run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from alerts.rules.expression import bound
from lake.definitions import Definitions
from lake.select import canonical, for_duckdb

#: Stands for the evaluation time while a statement is understood.
_SOME_TIME = datetime.fromisoformat("2001-02-03T04:05:06.789012+00:00")
_SOME = _SOME_TIME.isoformat(timespec="microseconds")


class Prepared:
    """``expr`` over ``tables``, in DuckDB's dialect. UserError where it is no read-only SELECT over them."""

    def __init__(self, expr: str, tables: Collection[str], definitions: Definitions) -> None:
        self._text = for_duckdb(canonical(bound(expr, _SOME_TIME, definitions), tables))

    def at(self, time: datetime) -> str:
        """The statement as of ``time``."""
        told = time.astimezone(UTC).isoformat(timespec="microseconds")
        return self._text.replace(_SOME, told).replace(_SOME.replace("T", " "), told)
