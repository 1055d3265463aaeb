"""Buckets of ages as rows of `age_state`: means, quantiles and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lake.finished import AGE_STATE
from lake.formula import compiled
from lake.views.catalogue import bucket_value_sql
from spark_analytics.fold.arrays import Array
from spark_analytics.state.ages_of import KINDS, Keys
from spark_analytics.state.buckets import Buckets, histograms, quantile_indices, slots_of, starts_of
from spark_analytics.state.project import of_kind

_VALUES = {percent: compiled(bucket_value_sql(f"p{percent}")) for percent in (50, 90, 99)}


def rows_of(told: Buckets, keys: Keys, said: Mapping[str, Any], happened: Array) -> pa.Table:
    """``told`` as rows. ``said``: the columns epoch, revision, key and as_of (in µs), one value or one for each row;
    ``happened``: whether a row is more than what was told before, for readers of its epoch alone."""
    slots, starts = slots_of(told.code), starts_of(told.code)
    count, some = len(slots), told.n > 0
    with np.errstate(all="ignore"):
        mean = told.total / told.n
    columns = keys.columns(slots // len(KINDS)) | {
        name: pa.array(np.broadcast_to(np.asarray(value, np.int64), (count,))) for name, value in said.items()
    }
    columns |= {
        "second": np.where(some, starts + told.width - 1, -1),
        "kind": pa.array(KINDS, pa.string()).take(pa.array(slots % len(KINDS))),
        "bucket_start": starts * 1_000_000,
        "bucket_seconds": told.width,
        "count": told.n,
        "mean_seconds": pa.array(mean, mask=~some),
        "max_seconds": pa.array(told.most, mask=~some),
        "skewed": told.skewed,
        "total_seconds": told.total,
        "histogram": histograms(told),
        "happened": happened,
    }
    for (percent, value), index in zip(_VALUES.items(), quantile_indices(told, list(_VALUES)), strict=True):
        unknown = np.isnan(index)
        columns[f"p{percent}"] = pa.array(np.where(unknown, 0, index).astype(np.int64), mask=unknown)
        columns[f"p{percent}_seconds"] = pa.array(np.asarray(value({f"p{percent}": index})), mask=unknown)
    arrays = [of_kind(pa.array(columns[field.name]), field.type) for field in AGE_STATE.schema]
    return pa.table(arrays, schema=AGE_STATE.schema)
