"""Which files Spark's Delta source has put into a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BATCH_INDEX = "org.apache.spark.sql.delta.files.TahoeBatchFileIndex"


@dataclass(frozen=True, slots=True)
class Files:
    """Whole Parquet files on a disk that this process sees, and their size together."""

    paths: tuple[Path, ...]
    size_bytes: int


def files_of(query: StreamingQuery, batch_id: int) -> Files | None:
    """The files whose rows are the batch that ``query`` is at work on; None where rows do not stand in plain files.

    PySpark tells a batch's rows, not its files, so the query's own plan is asked. What it does not show as one scan of
    a Delta table, in the shape that the pinned version of Delta gives it, is left to Spark; so are object stores, files
    of which a deletion vector hides rows, and columns that the table maps to other names.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None or execution.currentBatchId() != batch_id:
        return None
    leaves = execution.analyzed().collectLeaves()
    if leaves.size() != 1 or not hasattr(leaf := leaves.apply(0), "relation"):
        return None
    location = leaf.relation().location()
    # Reader version 1 knows neither deletion vectors, which hide rows, nor columns under other names.
    if location.getClass().getName() != _BATCH_INDEX or location.protocol().minReaderVersion() != 1:
        return None
    uris = [urlsplit(uri) for uri in location.inputFiles()]
    if any(uri.scheme != "file" for uri in uris):
        return None
    return Files(tuple(Path(unquote(uri.path)) for uri in uris), int(location.sizeInBytes()))
