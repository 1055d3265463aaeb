"""Parquet files → Arrow tables of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lake.errors import UserError, first_line
from lake.remote import Location, Remote, open_parquet

#: Bytes of columns, before compression, that are read of a file at once; a piece may have twice as many.
PIECE_BYTES = 48 << 20
#: Rows that make a piece: enough for columns to pay, few enough for several threads to have one each.
PIECE_ROWS = 1 << 18
#: A batch in an object store of at most so many bytes is fetched whole before it is read, so many files at a time.
FETCHED_BYTES, AT_ONCE = 64 << 20, 8


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of an object store, and all that is in it."""

    place: Remote
    content: bytes

    def __str__(self) -> str:
        return str(self.place)


#: What Parquet is read from.
Source = Location | Fetched


def fetched(paths: Sequence[Location], size_bytes: int) -> Sequence[Source]:
    """``paths``, of ``size_bytes`` together, or what is in them: of a store each file is asked for once, not bit by bit
    and one after the other. UserError for a file that is gone, OSError where the store does not answer.
    """
    remote = [path for path in paths if isinstance(path, Remote) and path.store.creator is not None]
    if size_bytes > FETCHED_BYTES or len(remote) < len(paths) or not remote:
        return paths
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch") as pool:
        return list(pool.map(_fetch, remote))


def _fetch(path: Remote) -> Fetched:
    assert path.store.creator is not None
    with _explained(path):
        return Fetched(path, path.store.creator.get(path.key))


def _open(source: Source, **options: object) -> pq.ParquetFile:
    if isinstance(source, Fetched):
        return pq.ParquetFile(pa.BufferReader(source.content), **options)
    return open_parquet(source, **options)


def pieces(paths: Sequence[Source], schema: pa.Schema) -> Iterator[pa.Table]:
    """The columns of ``schema``, of all files, in pieces of about PIECE_ROWS rows, or of fewer that are large.

    Columns whose type is a dictionary are read as one: names of queues repeat, and are never spelt out. Columns that a
    file lacks, because it was written before they were added, are null. UserError for a file that cannot be read.
    """
    return put_together(part for path in paths for part in _parts(path, schema))


def rows_in(paths: Sequence[Source]) -> int:
    """How many rows the files have together. UserError for a file that cannot be read."""
    count = 0
    for path in paths:
        with _explained(path), _open(path) as file:
            count += file.metadata.num_rows
    return count


def put_together(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """``parts`` in pieces of at least PIECE_ROWS rows or PIECE_BYTES, but for the last."""
    held: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        held.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _parts(path: Source, schema: pa.Schema) -> Iterator[pa.Table]:
    # One thread: files of a commit each are small, and pieces of large ones are computed beside by others.
    with _explained(path), _opened(path, schema) as file:
        there = set(file.schema_arrow.names)
        names = [name for name in schema.names if name in there]
        for batch in file.iter_batches(batch_size=_batch_rows(file.metadata), columns=names, use_threads=False):
            columns = [
                batch.column(one.name).cast(one.type) if one.name in there else pa.nulls(len(batch), one.type)
                for one in schema
            ]
            yield pa.table(columns, schema=schema)


def _opened(path: Source, schema: pa.Schema) -> pq.ParquetFile:
    repeating = [one.name for one in schema if pa.types.is_dictionary(one.type)]
    try:
        return _open(path, read_dictionary=repeating)
    except KeyError:  # a column that was added later
        with _open(path) as file:
            there = set(file.schema_arrow.names)
        return _open(path, read_dictionary=[name for name in repeating if name in there])


@contextmanager
def _explained(path: Source) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged or gone: {first_line(error)}", "restore it from a copy") from error


def _batch_rows(file: pq.FileMetaData) -> int:
    """So many rows of the file that they stay below PIECE_BYTES."""
    size: int = sum(file.row_group(number).total_byte_size for number in range(file.num_row_groups))
    return max(1, min(PIECE_ROWS, PIECE_BYTES * int(file.num_rows) // max(1, size)))
