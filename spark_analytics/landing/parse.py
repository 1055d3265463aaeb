"""Kafka records → rows of a bronze table, or why a record is none."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructType

from lake.schema import TableSpec
from lake.tables import EVENT_TYPES

RAW_LIMIT = 64 * 1024
CLOCKS = ("broker", "producer")

_CORRUPT = "_corrupt_record"
#: Column → the only values that it may have.
_ALLOWED = {"event_type": EVENT_TYPES, "clock": CLOCKS}


def parse(records: DataFrame, spec: TableSpec) -> DataFrame:
    """Records of Kafka's source → ``partition, offset, timestamp, reason, raw, row``.

    ``row`` is a struct of the table's columns. ``reason`` says why a record is no row, and ``raw`` is then its text, at
    most 64 KiB; both are null for the others. Columns that the table does not have are left out.
    """
    columns = StructType(list(from_arrow_schema(spec.schema)))
    loose = StructType(columns.fields).add(_CORRUPT, StringType())
    for field in loose.fields:
        field.nullable = True
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = records.select(
        "partition",
        "offset",
        "timestamp",
        F.col("value").cast("string").alias("text"),
        F.from_json(F.col("value").cast("string"), loose, options).alias("row"),
    )
    required = [field.name for field in spec.schema if not field.nullable]
    faults = [
        (F.col("text").isNull(), "a record without a value"),
        (F.col("row").isNull() | F.col(f"row.{_CORRUPT}").isNotNull(), f"no JSON object with columns of {spec.name}"),
        *((F.col(f"row.{name}").isNull(), f"{name} is missing") for name in required),
        *(
            (~F.col(f"row.{name}").isin(*allowed), f"{name} is none of {', '.join(allowed)}")
            for name, allowed in _ALLOWED.items()
            if name in spec.schema.names
        ),
    ]
    reason = F.lit(None).cast("string")
    for fault, told in reversed(faults):
        reason = F.when(fault, told).otherwise(reason)
    return read.withColumn("reason", reason).select(
        "partition",
        "offset",
        "timestamp",
        "reason",
        F.when(F.col("reason").isNotNull(), F.substring(F.coalesce("text", F.lit("")), 1, RAW_LIMIT)).alias("raw"),
        F.when(F.col("reason").isNull(), F.struct(*(f"row.{name}" for name in spec.schema.names))).alias("row"),
    )
