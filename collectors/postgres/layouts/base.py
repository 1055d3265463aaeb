"""What a layout is: how one library keeps its jobs in tables, as SELECTs with columns of one meaning.

A SELECT of *jobs* has a row for each job that has not ended::

    queue text, tenant text, state text, retry boolean, since timestamptz, began timestamptz, id

``state`` is 'ready' (due: a worker may take it now), 'running' or 'delayed'; ``retry``: it was attempted before;
``since``: when it was due first, or again; ``began``: when its running attempt began. ``id`` may stand in for a
``since`` that only a second look tells (:attr:`Layout.resolve`). One of *dead* jobs has queue, tenant, since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from psycopg import sql

from brokers.tenants import Rule


@dataclass(frozen=True, slots=True)
class Table:
    """One table as the catalogue has it. ``hidden``: row security may keep rows from us; ``indexes``: the condition of
    each partial one without brackets, "by COLUMN" of others that lead with it; ``partition``: it is one."""

    columns: frozenset[str]
    readable: bool
    hidden: bool
    mebibytes: float
    indexes: tuple[str, ...]
    partition: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What is there of one layout: its schema, and the tables in it by name."""

    schema: str
    tables: Mapping[str, Table]
    rules: tuple[Rule, ...] = ()
    scan_at_most: int = 16
    labels: frozenset[str] = frozenset()

    def name(self, table: str) -> str:
        """The table as SQL names it."""
        return f"{quoted(self.schema)}.{quoted(table)}"

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, may be read, and has ``columns``."""
        there = self.tables.get(table)
        return there is not None and there.readable and not there.hidden and there.columns.issuperset(columns)

    def serves(self, table: str, condition: str) -> str | None:
        """None where the rows of ``condition`` (a pattern of what an index is for, as PostgreSQL writes it, without
        brackets) are found by an index of theirs, or in a table small enough to be read whole; else why not."""
        there = self.tables[table]
        leading = f"by {condition.split(' ')[0]}"
        if any(index == leading or re.fullmatch(condition, index) for index in there.indexes):
            return None
        if there.mebibytes <= self.scan_at_most:
            return None
        shown = condition.replace(r"::\S+", "")
        return f"no index of {table} is for {shown}, and it is larger than scan_at_most, {self.scan_at_most} MiB"

    def tenant(self, row: str, columns: str, *, document: str | None = None, headers: str | None = None) -> str:
        """SQL for a job's tenant. ``row``: the alias of the row that ``column:`` looks at, of table ``columns``;
        ``document`` and ``headers``: expressions of type json or jsonb."""
        found = []
        for rule in self.rules:
            if rule.source == "column" and rule.text in self.tables[columns].columns:
                found.append(f"nullif({row}.{quoted(rule.text)}::text, '')")
            elif rule.source == "json" and document is not None:
                path = array(map(str, rule.path))
                # A subquery of its own, so that the document is parsed once.
                named = "CASE WHEN jsonb_typeof(v) IN ('string', 'number') THEN nullif(v #>> '{}', '') END"
                found.append(f"(SELECT {named} FROM (SELECT ({document} #> {path})::jsonb AS v OFFSET 0) AS value)")
            elif rule.source == "header" and headers is not None:
                found.append(f"nullif({headers} ->> {literal(rule.text)}, '')")
        return f"left(coalesce({', '.join(found)}), 256)" if found else "NULL::text"


@dataclass(frozen=True, slots=True)
class Part:
    """One SELECT; ``queues``: those that it alone tells of, where it is one of several."""

    select: str
    queues: tuple[str, ...] = ()


#: A SELECT, or another text; None where there is none. Lacking.
Select = Callable[[Found], str | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """One library. ``tables`` must be there, each with its columns; others may be."""

    name: str
    schema: str
    tables: Mapping[str, tuple[str, ...]]
    jobs: Callable[[Found], list[Part]]
    #: The library's word for what is dead, and the SELECT of it.
    word: str = "failed"
    dead: Select | None = None
    #: queue, paused (boolean), dead_letter_for (text).
    queues: Select | None = None
    #: queue (or a pattern of them), consumers.
    consumers: Select | None = None
    #: Whether a consumer's pattern takes a queue.
    takes: Callable[[str, str], bool] = field(default=lambda pattern, queue: pattern == queue)
    #: SQL of the time since which the job of ``{id}`` waits.
    resolve: Callable[[Found], str] | None = None
    #: Why running jobs are not among *jobs*; None where they are.
    untold_running: Select = field(default=lambda found: None)
    more: Collection[str] = ()
    #: What the names of further tables begin with.
    prefix: str | None = None
    #: The enum whose labels are to be known.
    enum: str | None = None
    untold: Mapping[str, str] = field(default_factory=dict)

    def lacks(self, found: Found) -> tuple[Literal["absent", "strange"], str] | None:
        """Why the layout cannot be read in ``found``: it is not there at all, or not as it is known."""
        first = next(iter(self.tables))
        if first not in found.tables:
            return "absent", f"there is no table {found.schema}.{first}: not migrated yet, or in another schema"
        for name, columns in self.tables.items():
            table = found.tables.get(name)
            if table is None:
                return "strange", f"there is no table {found.schema}.{name}: its schema has a version unknown here"
            if not table.readable:
                return "strange", f"we may not read {found.schema}.{name}: GRANT SELECT on it, and USAGE on its schema"
            if table.hidden:
                return (
                    "strange",
                    f"row security hides rows of {found.schema}.{name} from us: see docs/brokers/postgres.md",
                )
            missing = sorted(set(columns) - table.columns)
            if missing:
                words = ", ".join(missing)
                return "strange", f"{found.schema}.{name} has no {words}: its schema has a version unknown here"
        return None


class Lacking(Exception):
    """Why something of a layout cannot be asked for."""


def quoted(name: str) -> str:
    """An identifier."""
    return sql.Identifier(name).as_string(None)


def literal(text: str) -> str:
    """A text."""
    return sql.Literal(text).as_string(None)


def array(texts: Collection[str] | map[str]) -> str:
    """An array of texts."""
    return f"ARRAY[{', '.join(map(literal, texts))}]::text[]"


def required(reason: str | None) -> None:
    """Lacking, for ``reason`` if there is one."""
    if reason is not None:
        raise Lacking(reason)
