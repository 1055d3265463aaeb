"""Histogram functions for ad-hoc Spark SQL: ``histogram_merge`` over rows, ``histogram_quantile`` of one."""

from __future__ import annotations

from typing import cast

from sqlglot import exp

from lake.views.catalogue import bucket_value_sql

_TYPE = "ARRAY<STRUCT<index: INT, count: BIGINT>>"
_TOTAL = "aggregate(histogram, 0L, (sum, cell) -> sum + cell.count)"
# Walks the buckets upwards until the rank is reached; the same nearest rank as lake.histogram.quantile.
_BUCKET = f"""aggregate(
    array_sort(histogram),
    named_struct('bucket', CAST(NULL AS INT), 'left', greatest(CAST(1 AS BIGINT), ceil(q * {_TOTAL}))),
    (walk, cell) -> IF(walk.left <= 0, walk, named_struct('bucket', cell.index, 'left', walk.left - cell.count)),
    walk -> walk.bucket)"""
_VALUE = bucket_value_sql("bucket")

#: The SQL that makes ``histogram_quantile(histogram, q)`` known to a session.
QUANTILE_FUNCTION = f"""
CREATE OR REPLACE TEMPORARY FUNCTION histogram_quantile(histogram {_TYPE}, q DOUBLE) RETURNS DOUBLE
RETURN (SELECT {_VALUE} FROM (SELECT {_BUCKET} AS bucket))
"""


def spell_out_merges(query: exp.Query) -> exp.Query:
    """``query`` with each ``histogram_merge(h)`` as Spark's own aggregates: Spark has no aggregate macros."""

    def spell_out(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name.lower() == "histogram_merge" and len(node.expressions) == 1:
            collected = exp.Anonymous(this="collect_list", expressions=node.expressions)
            return exp.Anonymous(this="flatten", expressions=[collected])
        return node

    return cast(exp.Query, query.transform(spell_out))
