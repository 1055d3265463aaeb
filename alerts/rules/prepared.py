"""A rule's statement, understood once, run at each evaluation time: checking one takes longer than most take to run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from alerts.rules.expression import bound
from lake.definitions import Definitions
from lake.select import canonical, for_duckdb

#: Stands for the evaluation time while a statement is understood.
SOME_TIME = datetime.fromisoformat("2001-02-03T04:05:06.789012+00:00")
_SOME = SOME_TIME.isoformat(timespec="microseconds")
_SPOKEN = (_SOME, _SOME.replace("T", " "))


def names_time(text: str) -> bool:
    """Whether a statement that was bound at SOME_TIME has other answers at other times, as far as it says."""
    return any(some in text for some in _SPOKEN)


def at_time(text: str, time: datetime) -> str:
    """A statement that was bound at SOME_TIME, in either dialect, as of ``time``."""
    told = time.astimezone(UTC).isoformat(timespec="microseconds")
    for some in _SPOKEN:
        text = text.replace(some, told)
    return text


class Prepared:
    """``expr`` over ``tables``, in DuckDB's dialect. UserError where it is no read-only SELECT over them."""

    def __init__(self, expr: str, tables: Collection[str], definitions: Definitions) -> None:
        self._text = for_duckdb(canonical(bound(expr, SOME_TIME, definitions), tables))

    def at(self, time: datetime) -> str:
        """The statement as of ``time``."""
        return at_time(self._text, time)
