"""JVM-free reading and writing of the lake's Delta tables, each commit idempotent where the caller numbers it."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lake import conditional
from lake.appending import Appender
from lake.checkpoints import CHECKPOINT_INTERVAL, checkpoint_soon
from lake.checksum import Checksums
from lake.dataset import dataset
from lake.errors import SojournError, UserError, first_line
from lake.files import close_to_others, only_one, private_folder
from lake.listing import refresh
from lake.making import indexed, open_table, unwritable
from lake.remote import Location, Remote, open_parquet, tables_at
from lake.schema import TIMESTAMP, TableSpec
from lake.staged import LaidDown, Staged, partitions
from lake.tables import TABLES

log = logging.getLogger(__name__)

#: How often an append is tried while others rewrite the table.
MOST_TRIES = 10
#: What a file system says that has no hard links, by which a commit takes its version.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
#: What an object store says to whom it does not serve.
_REFUSED = (
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "status: 401", "status: 403",
    "401 Unauth", "403 Forb",
)  # fmt: skip
#: As whom a compaction of a table in an object store holds the table's lease, and for how long at most (seconds).
_COMPACTION, _LONGEST_COMPACTION = "sojourn-compact", 900.0
#: Rows that :meth:`Lake.scan` holds at once.
SCANNED_ROWS = 1 << 15


class LakeError(SojournError):
    """The lake could not be read or written."""


class UnwritableRows(LakeError):
    """Rows that no table takes, whatever state it is in: theirs is the fault, and trying again is of no use."""


class Lake:
    """A lake below one root folder, or – its tables – at the address that is kept there (:mod:`lake.address`). Cheap to
    make; opens tables when they are first used.

    One ``Lake`` belongs to one thread. Several processes may append to the same tables.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().absolute()
        self._paths: dict[str, Location] = {}
        self._open: dict[str, DeltaTable] = {}
        self._appenders: dict[str, Appender] = {}
        self._checksums: dict[str, Checksums] = {}

    @property
    def tables(self) -> Location:
        """Below what the tables are. UserError where the lake's address cannot be used."""
        return tables_at(self.root)

    def path(self, name: str) -> Location:
        """The folder of table ``name``."""
        if name not in self._paths:
            self._paths[name] = self.tables / _spec(name).path
        return self._paths[name]

    def state_path(self, *parts: str) -> Path:
        """A place for what is not a table: checkpoints, locks, databases. Its folder is made, for the owner alone."""
        self.root.mkdir(parents=True, exist_ok=True)
        folder = private_folder(self.root / "state")
        for part in parts[:-1]:
            folder = private_folder(folder / part)
        return folder.joinpath(*parts[-1:])

    def create(self) -> None:
        """Make the root folder and every table that is not there yet."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the lake's folder {self.root}: {error.strerror}", "choose another with --lake"
            ) from error
        close_to_others(self.root / "state")
        for name in TABLES:
            self.ensure(name)

    def exists(self, name: str) -> bool:
        """Whether table ``name`` has been made."""
        path = self.path(name)
        options = path.store.options if isinstance(path, Remote) else None
        return DeltaTable.is_deltatable(str(path), options)

    def ensure(self, name: str) -> DeltaTable:
        """Table ``name``, made empty if it is not there, at its newest version."""
        if name not in self._open:
            spec = _spec(name)
            try:
                self._open[name] = open_table(spec, self.path(name))
            except (DeltaError, OSError) as error:
                raise _unusable(error, self.path(name)) from error
            return self._open[name]
        return self._refreshed(name)

    def _refreshed(self, name: str) -> DeltaTable:
        table = self._open[name]
        try:
            refresh(table)
        except (DeltaError, OSError) as error:
            raise explained(error, self.path(name)) from error
        return table

    def version(self, name: str) -> int:
        """The newest version of table ``name``."""
        return self.ensure(name).version()

    def committed(self, name: str, app_id: str, *, look: bool = True) -> int | None:
        """The number of the last commit that ``app_id`` made to table ``name``; None if it made none.

        Without a ``look``: as of the last one, and of what was committed here since. It is enough where nobody else
        commits as ``app_id`` meanwhile, and spares a request where the table is in an object store.
        """
        if not self._by_entries(name):
            return self.ensure(name).transaction_version(app_id)
        try:
            return self._appender(name, look=look).position(app_id)
        except (DeltaError, OSError) as error:
            raise explained(error, self.path(name)) from error

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Append ``rows`` (columns of the table's spec) in one commit.

        With ``app_id`` and ``version`` the commit is idempotent: False, and nothing written, if the application
        committed that version or a later one before. ``positions`` does the same for a source that has several
        positions, as a partitioned log has: application id → version, all in one commit, which is left out if all of
        them were reached before. An empty ``rows`` with a version still records the version.

        Raises LakeError where the table takes nothing now, UnwritableRows where it never will take these rows.
        """
        reached = reached_by(app_id, version, positions)
        rows = sound(conform(rows, _spec(name).schema))
        if rows.num_rows == 0 and not reached:
            return True
        try:
            if self._reached(name, reached):
                return False
            return self._add(name, self._laid_down(name, rows), reached)
        except LakeError as error:
            if reason := unwritable(rows, _spec(name)):
                raise UnwritableRows(f"rows of {name} cannot be written: {reason}") from error
            raise

    def stage(self, name: str) -> Staged:
        """A file of table ``name``, which must have no partitions, for rows that :meth:`add` commits all at once."""
        spec = _spec(name)
        if name not in self._open:
            self.ensure(name)
        return Staged(self.path(name), spec.schema, indexed(spec))

    def add(
        self,
        name: str,
        staged: Staged | LaidDown,
        *,
        app_id: str,
        version: int,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Add the rows of ``staged`` to table ``name`` in one commit, idempotent as that of :meth:`append`."""
        return self._add(name, [staged], {app_id: version, **(positions or {})})

    def _laid_down(self, name: str, rows: pa.Table) -> list[Staged]:
        """``rows`` in a file for each partition."""
        spec = _spec(name)
        if name not in self._open:
            self.ensure(name)
        staged: list[Staged] = []
        try:
            for partition, part in partitions(rows, spec.partition_by):
                staged.append(Staged(self.path(name), spec.schema, indexed(spec), partition))
                staged[-1].append(part)
        except BaseException as error:
            for file in staged:
                file.drop()
            if isinstance(error, OSError | pa.ArrowException | ArithmeticError | ValueError):
                raise explained(error, self.path(name)) from error
            raise
        return staged

    def _add(self, name: str, staged: Sequence[Staged | LaidDown], reached: Mapping[str, int]) -> bool:
        """Commit the files of ``staged``; False, and they are dropped, if all of ``reached`` was reached before."""
        try:
            adds = [action for file in staged for action in file.finished()]
        except OSError as error:
            raise explained(error, self.path(name)) from error
        added = self._add_by_entry(name, adds, reached) if self._by_entries(name) else None
        if added is None:
            remote = isinstance(self.path(name), Remote)
            added = (self._add_remotely if remote else self._add_by_deltalake)(name, adds, reached)
        if not added:
            for file in staged:
                file.drop()
        return added

    def _by_entries(self, name: str) -> bool:
        """Whether log entries of our own can be put where table ``name`` is."""
        path = self.path(name)
        return not isinstance(path, Remote) or path.store.creator is not None

    def _add_by_entry(self, name: str, adds: Sequence[AddAction], reached: Mapping[str, int]) -> bool | None:
        """As :meth:`_add`, by a log entry of our own; None where such will not do."""
        appender = self._appender(name, look=False)
        try:
            added = appender.commit(adds, reached)
        except (DeltaError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in _NO_LINKS:
                return None
            if isinstance(self.path(name), Remote):
                del self._appenders[name]  # what it knows may not be what the store has
            raise explained(error, self.path(name)) from error
        if added:
            self._committed(name, appender.version, appender.written)
        return added if added or appender.fit else None

    def _add_remotely(self, name: str, adds: Sequence[AddAction], reached: Mapping[str, int]) -> bool:
        """As :meth:`_add`, in an object store, by deltalake."""
        path, spec = self.path(name), _spec(name)
        assert isinstance(path, Remote)
        try:
            table = self.ensure(name)  # of an older version the next one may have been cleaned up, and seem free
            added = conditional.append(table, path, adds, reached, spec.partition_by)
        except (DeltaError, OSError) as error:
            self._open.pop(name, None)  # whatever it holds is not what the store has
            raise explained(error, path) from error
        if added:
            self._committed(name, table.version())
        return added

    def _appender(self, name: str, *, look: bool = True) -> Appender:
        """Who appends to table ``name``, at its newest version; without a ``look`` in a store at one that it had."""
        appender, path = self._appenders.get(name), self.path(name)
        if appender is None or not appender.current:
            looked = time.monotonic()
            if not isinstance(path, Remote):
                appender = Appender(self.ensure(name), path, looked)
            else:
                assert path.store.creator is not None
                appender = conditional.RemoteAppender(self.ensure(name), path, path.store.creator, looked)
            self._appenders[name] = appender
        elif look or not isinstance(path, Remote):
            try:
                appender.follow()
            except (OSError, ValueError) as error:
                raise explained(error, path) from error
        return appender

    def _reached(self, name: str, positions: Mapping[str, int]) -> bool:
        if not positions:
            return False
        if not self._by_entries(name):  # what others committed since, the commit itself finds
            table = self._open[name] if name in self._open else self.ensure(name)
            return conditional.has_reached(table, positions)
        try:
            return self._appender(name, look=False).reached(positions)
        except (DeltaError, OSError) as error:
            raise explained(error, self.path(name)) from error

    def _committed(self, name: str, version: int, entry: str = "") -> None:
        """A commit made ``version``, by ``entry`` of its log: write what others read beside it."""
        self._write_checksum(name, version, entry)
        if version % CHECKPOINT_INTERVAL == 0:
            checkpoint_soon(self.path(name))

    def _add_by_deltalake(self, name: str, adds: Sequence[AddAction], reached: Mapping[str, int]) -> bool:
        """As :meth:`_add`, where log entries of our own will not do."""
        for last_try in (*[False] * (MOST_TRIES - 1), True):
            table = self.ensure(name)
            if conditional.has_reached(table, reached):
                return False
            properties = CommitProperties(app_transactions=[Transaction(key, value) for key, value in reached.items()])
            partition_by = list(_spec(name).partition_by) or None
            try:
                table.create_write_transaction(
                    list(adds), "append", table.schema(), partition_by, commit_properties=properties
                )
                self._appenders.pop(name, None)
                self._committed(name, self._appender(name).version)
                return True
            except CommitFailedError as error:
                # Somebody rewrote the table meanwhile. Appending depends on nothing that was there: try again.
                if last_try:
                    raise explained(error, self.path(name)) from error
            except (DeltaError, OSError) as error:
                raise explained(error, self.path(name)) from error
        raise AssertionError("unreachable: the last try returns or raises")

    def read(
        self, name: str, *, columns: list[str] | None = None, where: list[tuple[str, str, str]] | None = None
    ) -> pa.Table:
        """The rows of table ``name``; ``where`` filters partitions, as ``[("ingest_date", ">=", "2026-01-01")]``."""
        table = self.ensure(name)
        try:
            return dataset(table, where).to_table(columns=columns)
        except (DeltaError, OSError) as error:
            raise explained(error, self.path(name)) from error

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """The rows of bronze table ``name`` that were ingested at ``since`` or later, of one snapshot, in no order.

        Batch by batch, file by file, for what may not fit into memory.
        """
        table = self.ensure(name)
        try:
            files = pa.table(table.get_add_actions(flatten=True))
            # Delta keeps statistics of a table's first 32 columns: of a wide one nobody says how new a file is.
            told = [name for name in ("path", "max.ingested_at") if name in files.column_names]
            for file in files.select(told).to_pylist():
                newest = file.get("max.ingested_at")
                if newest is None or newest >= since:
                    yield from _batches(self.path(name) / unquote(file["path"]), columns, since)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise explained(error, self.path(name)) from error

    def compact(self, name: str, *, target_bytes: int | None = None) -> None:
        """Rewrite many small files into few of about ``target_bytes`` (100 MB); no reader or stream sees data change.

        An append meanwhile does not hinder it; another rewriting does, and it is deferred.
        """
        try:
            # Of two compactions at once, even of two processes, deltalake lets both succeed: rows would be there twice.
            with only_one(self.state_path("locks", f"compact-{name}.lock"), f"a compaction of {name}"):
                table = self.ensure(name)
                remote = isinstance(self.path(name), Remote)  # that lock is of this machine alone
                alone = conditional.lease(table, _COMPACTION, _LONGEST_COMPACTION) if remote else nullcontext()
                with alone:
                    table.optimize.compact(target_size=target_bytes)
                self._write_checksum(name, table.version())
        except (DeltaError, OSError, UserError) as error:
            log.warning("compaction of %s deferred: %s", name, first_line(error))

    def write_checksum(self, name: str) -> None:
        """Write the checksum of the version that was read or written last, where it is missing. Of bronze tables alone:
        they are what Spark follows as a stream.
        """
        self._write_checksum(name, self._open[name].version())

    def _write_checksum(self, name: str, version: int, entry: str = "") -> None:
        if _spec(name).layer == "bronze":
            self._checksums.setdefault(name, Checksums(self.path(name))).write(version, entry)


def _batches(path: Location, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
    with open_parquet(path, pre_buffer=False) as file:
        for batch in file.iter_batches(SCANNED_ROWS, columns=[*columns, "ingested_at"], use_threads=False):
            recent = pc.greater_equal(batch.column("ingested_at"), pa.scalar(since, TIMESTAMP))
            yield batch.filter(recent).select(columns)


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """``rows`` with exactly the columns of ``schema``, in order and type; a nullable column that is absent is null.

    Raises LakeError where a required column is absent, or a column is not in the schema.
    """
    if rows.schema.equals(schema):
        return rows
    if unknown := [name for name in rows.column_names if name not in schema.names]:
        raise LakeError(f"columns {unknown} are not in the table")
    arrays = []
    for field in schema:
        if field.name in rows.column_names:
            arrays.append(rows.column(field.name).cast(field.type))
        elif field.nullable:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            raise LakeError(f"column {field.name!r} is required")
    return pa.table(arrays, schema=schema)


def sound(rows: pa.Table) -> pa.Table:
    """``rows``; UnwritableRows where a text is no UTF-8, which Delta would write and no reader could read."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnwritableRows(f"rows are not sound: {first_line(error)}") from error
    return rows


def reached_by(app_id: str | None, version: int | None, positions: Mapping[str, int] | None) -> dict[str, int]:
    """What an append reaches, application → version, from the arguments of :meth:`Lake.append`."""
    own = {} if app_id is None or version is None else {app_id: version}
    return {**(positions or {}), **own}


def _spec(name: str) -> TableSpec:
    if name not in TABLES:
        raise LakeError(f"no table {name!r}: there are {', '.join(TABLES)}")
    return TABLES[name]


def _unusable(error: Exception, path: Location) -> SojournError:
    """Why a table cannot even be opened: nothing that runs can fix that."""
    reason = explained(error, path)
    if isinstance(reason, UserError) or isinstance(path, Remote):
        return reason
    return UserError(str(reason), "restore the table from a copy, or begin a new lake with --lake")


def explained(error: Exception, path: Location) -> SojournError:
    """``error`` of the table at ``path`` as one of ours: UserError where the disk is full, or rights are missing."""
    text = str(error)
    if (isinstance(error, OSError) and error.errno == 28) or "No space left" in text:
        return UserError(f"no space left on the disk that holds {path}", "free some, then start again: nothing is lost")
    if "Permission denied" in text:
        return UserError(f"no permission to use {path}", "give this user the right to write there")
    if isinstance(path, Remote):
        if any(word in text for word in _REFUSED):
            return UserError(f"the object store refuses {path}", "check [lake.storage_options], and what they may do")
        if "NoSuchBucket" in text:
            return UserError(f"there is no bucket for {path}", "make it, or fix [lake] path")
    return LakeError(f"table {path} cannot be used: {first_line(error)}")
