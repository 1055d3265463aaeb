"""What is there of each layout: one look at PostgreSQL's own catalogue, which anybody may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collectors.postgres.connection import Row
from collectors.postgres.layouts.base import Found, Layout, Table, array, literal
from collectors.postgres.settings import LayoutSettings

#: The size is that of the last VACUUM or ANALYZE, in pages of 8 KiB: today's would wait for whoever locks a table.
_TABLES = """
SELECT n.nspname, c.relname, c.relispartition,
  has_schema_privilege(n.oid, 'USAGE')
    AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT')),
  row_security_active(c.oid) AND NOT EXISTS (
    SELECT FROM pg_policy AS p
    WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('r', '*')
      AND pg_get_expr(p.polqual, p.polrelid) = 'true'
      AND EXISTS (SELECT FROM unnest(p.polroles) AS r WHERE r = 0 OR pg_has_role(r, 'USAGE'))),
  greatest(c.relpages, 0) / 128.0,
  ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  ARRAY(
    SELECT coalesce(translate(pg_get_expr(i.indpred, i.indrelid), '()', ''), 'by ' || a.attname::text, '')
    FROM pg_index AS i
    LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisready)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ({places})"""
_LABELS = """
SELECT n.nspname, t.typname, e.enumlabel
FROM pg_enum AS e JOIN pg_type AS t ON t.oid = e.enumtypid JOIN pg_namespace AS n ON n.oid = t.typnamespace
WHERE t.typname = ANY({names}) AND n.nspname = ANY({schemas})"""


def schema_of(layout: Layout, settings: LayoutSettings) -> str:
    """Where the layout's tables are."""
    return settings.db_schema or layout.schema


def tables_wanted(chosen: Iterable[tuple[Layout, LayoutSettings]]) -> str:
    """The SELECT of all tables of all layouts."""
    places = []
    for layout, settings in chosen:
        names = f"c.relname = ANY({array([*layout.tables, *layout.more])})"
        if layout.prefix is not None:
            names = f"({names} OR starts_with(c.relname::text, {literal(layout.prefix)}))"
        places.append(f"(n.nspname = {literal(schema_of(layout, settings))} AND {names})")
    return _TABLES.format(places=" OR ".join(places))


def labels_wanted(chosen: Iterable[tuple[Layout, LayoutSettings]]) -> str:
    """The SELECT of the labels of their enums."""
    pairs = list(chosen)
    names = array([layout.enum for layout, _ in pairs if layout.enum is not None])
    return _LABELS.format(names=names, schemas=array([schema_of(*pair) for pair in pairs]))


def found(
    chosen: Mapping[str, tuple[Layout, LayoutSettings]], tables: Iterable[Row], labels: Iterable[Row], scan_at_most: int
) -> dict[str, Found]:
    """By layout what those two SELECTs told."""
    there: dict[str, dict[str, Table]] = {}
    for schema, name, partition, readable, hidden, mebibytes, columns, indexes in tables:
        there.setdefault(schema, {})[name] = Table(
            frozenset(columns), readable, hidden, float(mebibytes), tuple(indexes), partition
        )
    words: dict[tuple[str, str], set[str]] = {}
    for schema, name, label in labels:
        words.setdefault((schema, name), set()).add(label)
    return {
        name: Found(
            schema := schema_of(layout, settings),
            _of(layout, there.get(schema, {})),
            settings.tenant,
            scan_at_most,
            frozenset(words.get((schema, layout.enum or ""), ())),
        )
        for name, (layout, settings) in chosen.items()
    }


def _of(layout: Layout, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables of one layout, where several share a schema."""
    named = {*layout.tables, *layout.more}
    return {
        name: table
        for name, table in tables.items()
        if name in named or (layout.prefix is not None and name.startswith(layout.prefix))
    }
