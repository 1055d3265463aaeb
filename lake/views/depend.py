"""What a view rests on: views build on one another, and all of them on tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import sqlglot

from lake.definitions import Definitions
from lake.select import tables_of
from lake.tables import TABLES
from lake.views.catalogue import VIEWS, render


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
            pending |= _reads(name) - seen
    return tuple(name for name in TABLES if name in seen), tuple(name for name in VIEWS if name in seen)


@cache
def _reads(view: str) -> frozenset[str]:
    return frozenset(tables_of(sqlglot.parse_one(render(VIEWS[view], Definitions()), read="spark")))
