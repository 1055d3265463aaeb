"""What Spark gathered → rows of the gold tables: the arrays of codes become histograms, backlog cells and marks.

Column-wise over a whole micro-batch with Arrow and NumPy: no loop over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.histogram import ZERO_INDEX
from lake.store import conform
from lake.tables import AGE_KINDS, BACKLOG_CELLS, HISTOGRAM, MARKS, PARTIALS, TIMESTAMP
from spark_analytics.transforms.codes import AGE_STRIDE, KIND_NUMBERS, UNKNOWN_SECOND
from spark_analytics.transforms.lists import Integers, lists_of, one_chunk, sums

_MICROS = 1_000_000
_ARRAYS = ("age_codes", "processing_codes", "cell_codes", "marked")


def partials(gathered: pa.Table) -> pa.Table:
    """Rows of :func:`spark_analytics.transforms.gather` → rows of the table ``partials``, one for each."""
    rows = gathered.num_rows
    table = gathered.drop_columns([*_ARRAYS, "second"])
    micros = pc.multiply(gathered.column("second"), _MICROS)
    table = table.append_column("bucket_start", micros.cast(pa.timestamp("us")).cast(TIMESTAMP))
    table = table.append_column("bucket_seconds", pa.array(np.ones(rows, np.int32)))

    owners, codes = _flat(gathered.column("age_codes"))
    for kind in AGE_KINDS:
        mine = codes // AGE_STRIDE == KIND_NUMBERS[kind]
        indices = codes[mine] % AGE_STRIDE + ZERO_INDEX
        table = table.append_column(f"{kind}_age_histogram", _histograms(owners[mine], indices, rows))
    owners, indices = _flat(gathered.column("processing_codes"))
    table = table.append_column("processing_histogram", _histograms(owners, indices, rows))
    table = table.append_column("backlog_cells", _cells(*_flat(gathered.column("cell_codes")), rows))
    return conform(table, PARTIALS.schema)


def marks(gathered: pa.Table) -> pa.Table:
    """Rows of :func:`spark_analytics.transforms.gather` → rows of the table ``marks``, any number for each."""
    lists = one_chunk(gathered.column("marked"))
    owners = pc.list_parent_indices(lists)
    keys = gathered.select(["broker", "queue", "subscriber", "tenant"]).take(owners)
    fields = pc.list_flatten(lists)
    for number in range(fields.type.num_fields):
        keys = keys.append_column(fields.type.field(number).name, pc.struct_field(fields, [number]))
    return conform(keys, MARKS.schema)


def _flat(column: pa.ChunkedArray) -> tuple[Integers, Integers]:
    """The values of a column of lists, each with the number of the row it belongs to."""
    lists = one_chunk(column)
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
    return owners.astype(np.int64), values.astype(np.int64)


def _histograms(owners: Integers, indices: Integers, rows: int) -> pa.Array:
    owners, indices, counts = sums(owners, indices, np.ones(len(owners), np.int64))
    values = pa.StructArray.from_arrays(
        [pa.array(indices.astype(np.int32)), pa.array(counts)], fields=list(HISTOGRAM.value_type)
    )
    return lists_of(owners, values, rows)


def _cells(owners: Integers, codes: Integers, rows: int) -> pa.Array:
    owners, seconds, nets = sums(owners, codes >> 1, (codes & 1) * 2 - 1)
    changed = nets != 0
    owners, seconds, nets = owners[changed], seconds[changed], nets[changed]
    values = pa.StructArray.from_arrays(
        [pa.array(seconds, mask=seconds == UNKNOWN_SECOND), pa.array(nets)], fields=list(BACKLOG_CELLS.value_type)
    )
    return lists_of(owners, values, rows)
