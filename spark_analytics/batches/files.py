"""Which files Spark's Delta source has put into a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lake.remote import Location, Remote, spark_name

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BATCH_INDEX = "org.apache.spark.sql.delta.files.TahoeBatchFileIndex"
_LOCAL = "file:"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a batch in the order of their arrival, as Hadoop names them, and their size together.

    ``plain``: their rows are the batch, and no others; else Spark alone knows which of their rows are in it. ``table``:
    whose files they are, if that is in an object store.
    """

    uris: tuple[str, ...]
    size_bytes: int
    plain: bool = True
    table: Remote | None = None

    @classmethod
    def here(cls, paths: Sequence[Path], size_bytes: int) -> Files:
        """Plain files on this machine's disks."""
        return cls(tuple(f"{_LOCAL}//{path}" for path in paths), size_bytes)

    @classmethod
    def of(cls, paths: Sequence[Location], size_bytes: int, table: Location) -> Files:
        """Plain files of ``table``."""
        if isinstance(table, Remote):
            return cls(tuple(map(spark_name, paths)), size_bytes, table=table)
        return cls.here([Path(str(path)) for path in paths], size_bytes)

    @property
    def paths(self) -> tuple[Location, ...] | None:
        """Where this process can read the batch itself; None where it cannot."""
        if not self.plain:
            return None
        if self.table is not None:
            base = f"{self.table.hadoop}/"
            if any(not uri.startswith(base) for uri in self.uris):
                return None
            return tuple(self.table / uri.removeprefix(base) for uri in self.uris)
        if any(not uri.startswith(_LOCAL) for uri in self.uris):
            return None
        return tuple(Path("/" + below_scheme(uri)) for uri in self.uris)


def below_scheme(uri: str) -> str:
    """``uri`` without its scheme: Hadoop writes `file:/a` as well as `file:///a`."""
    return uri.partition(":")[2].lstrip("/")


def files_of(query: StreamingQuery, batch_id: int, table: Location, mirror: Path | None = None) -> Files | None:
    """The files of the batch that ``query`` is at work on, of ``table``; None where they cannot be told. ``mirror``:
    the folder where Spark reads the log of a ``table`` in an object store.

    PySpark tells a batch's rows, not its files, so the query's own plan is asked. What it does not show as one scan of
    a Delta table, in the shape that the pinned version of Delta gives it, is left to Spark. Files of which a deletion
    vector hides rows, or whose columns the table maps to other names, are not plain.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None or execution.currentBatchId() != batch_id:
        return None
    leaves = execution.analyzed().collectLeaves()
    if leaves.size() != 1 or not hasattr(leaf := leaves.apply(0), "relation"):
        return None
    location = leaf.relation().location()
    if location.getClass().getName() != _BATCH_INDEX:
        return None
    # Reader version 1 knows neither deletion vectors nor columns under other names.
    plain = location.protocol().minReaderVersion() == 1
    remote = table if isinstance(table, Remote) else None
    uris = tuple(location.inputFiles())
    if mirror is not None and remote is not None:
        below = f"{str(mirror).lstrip('/')}/"
        uris = tuple(f"{remote.hadoop}/{below_scheme(uri).removeprefix(below)}" for uri in uris)
    return Files(uris, int(location.sizeInBytes()), plain, remote)
