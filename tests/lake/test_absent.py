"""Columns that rows lack are there all the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lake.absent import completed
from lake.tables import TABLES


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("table", sorted(TABLES))
def test_rows_that_lack_columns_of_any_kind_have_nulls_there(table: str, count: int) -> None:
    schema = TABLES[table].schema
    kinds = (pa.types.is_primitive, pa.types.is_string, pa.types.is_list)
    mine = pa.schema([field for field in schema if any(kind(field.type) for kind in kinds)])
    one = mine.field(0)
    rows = pa.table({one.name: pa.nulls(count, one.type)})
    whole = completed(rows, mine)
    whole.validate(full=True)
    assert whole.column_names == mine.names and whole.num_rows == count
    assert all(column.null_count == count for column in whole.columns)
