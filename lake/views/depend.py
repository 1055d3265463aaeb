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


@lru_cache(maxsize=256)
def columns_below(names: frozenset[str], columns: frozenset[str]) -> frozenset[str]:
    """The columns, and maybe more, of tables on which the ``columns`` of the views ``names`` rest, by name alone."""
    made: dict[str, set[str]] = {}
    found = set(columns)
    for view in below(names)[1]:
        always, of = _made_of(VIEWS[view])
        found |= always
        for name, parts in of.items():
            made.setdefault(name, set()).update(parts)
    pending = set(found)
    while pending:
        pending = {part for name in pending for part in made.get(name, ())} - found
        found |= pending
    return frozenset(found)


@cache
def _made_of(view: View) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """The columns that the rows of ``view`` rest on whatever is asked, and those that each that it names is made of."""
    made: dict[str, set[str]] = {}
    inside: set[int] = set()  # of what some column is made of
    selects = list(_parsed(view).find_all(exp.Select))
    for select in selects:
        for projection in select.expressions:
            parts = list(projection.find_all(exp.Column))
            made.setdefault(projection.alias_or_name, set()).update(part.name for part in parts)
            inside.update(id(part) for part in parts if part.parent_select is select)
    always = frozenset(part.name for part in _parsed(view).find_all(exp.Column) if id(part) not in inside)
    return always, {name: frozenset(parts) for name, parts in made.items()}


@cache
def _reads(view: View) -> frozenset[str]:
    return frozenset(tables_of(_parsed(view)))


def _parsed(view: View) -> Any:
    return parsed(render(view, Definitions()))


@lru_cache(maxsize=256)
def parsed(sql: str) -> Any:
    """The tree of a view's own ``sql``, in Spark's dialect; not to be changed."""
    return sqlglot.parse_one(sql, read="spark")
