"""What a view rests on: views build on one another, and all of them on tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from lake.definitions import Definitions
from lake.select import tables_of
from lake.tables import TABLES
from lake.views.catalogue import VIEWS, render
from lake.views.model import View


def below(names: Iterable[str], given: Iterable[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tables and the views that ``names`` rest on, themselves included; views in the order of their building.

    Views that are ``given`` are not looked below.
    """
    return _below(frozenset(names), frozenset(given))


@cache
def _below(names: frozenset[str], given: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pending, seen = set(names), set()
    while pending:
        name = pending.pop()
        seen.add(name)
        if name in VIEWS and name not in given:
            pending |= _reads(VIEWS[name]) - seen
    return tuple(name for name in TABLES if name in seen), tuple(name for name in VIEWS if name in seen)


def columns_read(name: str) -> frozenset[str] | None:
    """The columns, and maybe more, that views read of the table or view ``name``; None: all."""
    # Whoever reads it names it: the others need not be parsed, which is a fifth of what a cold reader does.
    readers = [_parsed(view) for view in VIEWS.values() if name in view.sql and name in _reads(view)]
    if any(reader.find(exp.Star) for reader in readers):
        return None
    return frozenset(column.name for reader in readers for column in reader.find_all(exp.Column))


@cache
def _reads(view: View) -> frozenset[str]:
    return frozenset(tables_of(_parsed(view)))


def _parsed(view: View) -> Any:
    return parsed(render(view, Definitions()))


@lru_cache(maxsize=256)
def parsed(sql: str) -> Any:
    """The tree of a view's own ``sql``, in Spark's dialect; not to be changed."""
    return sqlglot.parse_one(sql, read="spark")
