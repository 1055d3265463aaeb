"""Partials of short buckets → partials of longer ones: addition, so nothing that a view can ask for is lost.

What changes is how finely history is told: a minute's row says what was so at the minute's end. Counts, sums,
histograms and the backlog's enqueue seconds stay exact.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.schema import TIMESTAMP
from lake.store import conform
from lake.tables import FOLDED_KIND, PARTIALS
from spark_analytics.transforms.groups import Codes, Groups, encoded, numbered
from spark_analytics.transforms.lists import entries, lists_of, sums
from spark_analytics.transforms.partials import UNKNOWN_SECOND

KEY = ("broker", "queue", "subscriber", "tenant", "bucket_start")
_GROUP = "group"
_MICROS = 1_000_000
#: What an opening balance keeps of the columns that may be null: marks that were folded must not count again.
_OPENED = ("backlog_cells", f"{FOLDED_KIND}_age_fold")
_EPOCH = pa.scalar(0, pa.timestamp("us")).cast(TIMESTAMP)


def rolled_up(partials: pa.Table, seconds: int) -> pa.Table:
    """Rows of ``partials`` → one row for each key and bucket of ``seconds``; longer buckets stay as they are."""
    lengths = partials.column("bucket_seconds")
    longer = partials.filter(pc.greater(lengths, seconds))
    shorter = partials.filter(pc.less_equal(lengths, seconds))
    if shorter.num_rows == 0:
        return longer
    return pa.concat_tables([longer, _merged(_in_buckets(shorter, seconds))])


def added_up(partials: pa.Table) -> pa.Table:
    """Rows of ``partials`` with the same key and bucket → one; buckets stay as long as they are."""
    lengths = partials.column("bucket_seconds")
    merged = [_merged(partials.filter(pc.equal(lengths, length))) for length in pc.unique(lengths)]
    return pa.concat_tables([partials.slice(0, 0), *merged])


def opening_balance(partials: pa.Table, until_second: int) -> pa.Table:
    """Rows of ``partials`` from before unix second ``until_second`` → one row a key, whose bucket reaches from 1970 to
    there: counts and the cells of what is still in the backlog. Ages and processing times are null.
    """
    if partials.num_rows == 0:
        return partials
    for name, value in (("bucket_start", _EPOCH), ("bucket_seconds", pa.scalar(until_second, pa.int32()))):
        position = partials.schema.get_field_index(name)
        partials = partials.set_column(position, PARTIALS.schema.field(name), pa.repeat(value, partials.num_rows))
    history = [field.name for field in PARTIALS.schema if field.nullable and field.name not in _OPENED]
    return conform(_merged(partials).drop_columns(history), PARTIALS.schema)


def _in_buckets(rows: pa.Table, seconds: int) -> pa.Table:
    width = seconds * _MICROS
    micros = rows.column("bucket_start").cast(pa.int64())
    starts = pc.multiply(pc.divide(micros, width), width).cast(pa.timestamp("us")).cast(TIMESTAMP)
    rows = rows.set_column(rows.schema.get_field_index("bucket_start"), "bucket_start", starts)
    lengths = pa.array(np.full(rows.num_rows, seconds, np.int32))
    return rows.set_column(rows.schema.get_field_index("bucket_seconds"), "bucket_seconds", lengths)


def _merged(rows: pa.Table) -> pa.Table:
    """One row for each KEY: numbers added, maxima kept, lists added entry by entry."""
    groups = _groups(rows)
    rows = rows.append_column(_GROUP, pa.array(groups.of_row))
    plain = [field.name for field in PARTIALS.schema if not pa.types.is_list(field.type)]
    merged = (
        rows.select([*plain, _GROUP])
        .group_by(_GROUP)
        .aggregate([(name, _way(name)) for name in plain])
        .sort_by(_GROUP)
        .drop_columns([_GROUP])
    )
    merged = merged.rename_columns([name.rpartition("_")[0] for name in merged.column_names])
    for field in PARTIALS.schema:
        if pa.types.is_list(field.type):
            merged = merged.append_column(field.name, _added(rows.column(field.name), groups, field.type))
    return conform(merged, PARTIALS.schema)


def _way(name: str) -> str:
    """How the column ``name`` of several rows becomes one."""
    if name in (*KEY, "bucket_seconds", "newest_occurred_at") or name.endswith(("_max", "_fold")):
        return "max"
    return "sum"


def _groups(rows: pa.Table) -> Groups:
    """The groups of ``rows``, of which there is one at least, by KEY."""
    starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // _MICROS
    since = starts - starts.min()
    names = (encoded(rows.column(name), "")[0] for name in KEY[:-1])
    return numbered((*names, Codes(since, int(since.max()) + 1)))


def _added(column: pa.ChunkedArray, groups: Groups, kind: pa.ListType) -> pa.Array:
    """Lists of (label, amount) added up in each group; labels whose amounts cancel are left out."""
    of_row, known, amounts = entries(column, UNKNOWN_SECOND)
    owners, known, totals = sums(groups.of_row[of_row], known, amounts)
    there = totals != 0
    owners, known, totals = owners[there], known[there], totals[there]
    label_type = kind.value_type.field(0).type
    labels = pa.array(known, mask=known == UNKNOWN_SECOND).cast(label_type)
    values = pa.StructArray.from_arrays([labels, pa.array(totals)], fields=list(kind.value_type))
    return lists_of(owners, values, len(groups))
