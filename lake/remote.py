"""Files of an object store, by the few of pathlib's operations that the lake uses.

Small files – the log's entries, checksums – go by deltalake's own client, which has the very ``storage_options`` of the
tables; what Parquet is read or written goes by Arrow's own file system (:func:`lake.dataset.dataset` says why).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake._internal import DeltaFileSystemHandler
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, FileType, S3FileSystem

from lake.address import address_of
from lake.creating import Creator, creator_of
from lake.errors import UserError
from lake.listing import settled

#: How often Arrow tries a request; deltalake's client has its own number (:data:`lake.address.DEFAULTS`).
MOST_TRIES = 4
#: By which names ``storage_options`` know what Arrow asks for, in the order in which they count. Source: object_store,
#: `AmazonS3ConfigKey`.
_NAMES = {
    "access_key": ("aws_access_key_id", "access_key_id"),
    "secret_key": ("aws_secret_access_key", "secret_access_key"),
    "session_token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint_override": ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
}


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a file: its bytes, and when it was written, in seconds since 1970."""

    st_size: int
    st_mtime: float


class Store:
    """One lake's part of an object store: what is below ``url``. Safe to share between threads."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        self.options = dict(options)
        self.client = DeltaFileSystemHandler(url, self.options)
        parts = urlsplit(url)
        #: What Arrow puts before a key: bucket and prefix.
        self.base = f"{parts.netloc}{parts.path}"
        self._files: FileSystem | None = None

    @cached_property
    def creator(self) -> Creator | None:
        """What puts a file where there is none; None where nothing but deltalake itself can."""
        return creator_of(self.url, self.options)

    @property
    def files(self) -> FileSystem:
        """Arrow's file system, made when it is first used. UserError where Arrow has none for such an address."""
        if self._files is None:
            self._files = _arrow(self.url, self.options)
        return self._files


class Remote:
    """A file or folder of an object store, named as pathlib would name it; there are no folders to be made."""

    __slots__ = ("key", "store")

    def __init__(self, store: Store, key: str = "") -> None:
        self.store = store
        self.key = key

    def __truediv__(self, part: str) -> Remote:
        return Remote(self.store, f"{self.key}/{part}" if self.key else part)

    def __str__(self) -> str:
        return f"{self.store.url}/{self.key}" if self.key else self.store.url

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Remote) -> bool:
        return str(self) < str(other)

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.key)

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """:attr:`name` without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """What follows the last dot of :attr:`name`, with it."""
        return self._pure.suffix

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        return Remote(self.store, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> Remote:
        """Another file of the same folder."""
        return self.parent / name

    def at(self, uri: str) -> Remote:
        """The file of this store that deltalake names as ``uri``, as :meth:`deltalake.DeltaTable.file_uris` does."""
        return Remote(self.store, unquote(uri.removeprefix(f"{self.store.url}/")))

    @property
    def arrow_path(self) -> str:
        """What :attr:`Store.files` calls it."""
        return f"{self.store.base}/{self.key}"

    @property
    def hadoop(self) -> str:
        """What Hadoop, and so Spark, calls it."""
        return str(self).replace("s3://", "s3a://", 1)

    def exists(self) -> bool:
        """Whether there is such a file, by one request. OSError where the store cannot say."""
        try:
            self.store.client.open_input_file(self.key)
        except FileNotFoundError:
            return False
        return True

    is_file = exists

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole file. OSError, FileNotFoundError."""
        return self._read().decode(encoding)

    def _read(self) -> bytes:
        file = self.store.client.open_input_file(self.key)
        return bytes(file.read(file.size()))

    def open(self, mode: str = "r", encoding: str = "utf-8") -> io.StringIO:
        """The lines of a small text file."""
        assert mode == "r"
        return io.StringIO(self.read_text(encoding))

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write the file whole, or not at all; one that is there is replaced."""
        with self.store.files.open_output_stream(self.arrow_path) as file:
            file.write(text.encode(encoding))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file; stores do not tell whether there was one."""
        try:
            self.store.client.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def stat(self) -> Stat:
        """Size and time. FileNotFoundError."""
        found = self.store.client.get_file_info([self.key])[0]
        if found.type is not FileType.File:
            raise FileNotFoundError(str(self))
        return _stat(found)

    def entries(self, *, recursive: bool = False) -> Iterator[tuple[Remote, Stat]]:
        """The files of the folder, each with size and time, by one listing; none where there is no such folder."""
        for found in self.store.client.get_file_info_selector(self.key, True, recursive):
            if found.type is FileType.File:
                yield Remote(self.store, found.path), _stat(found)

    def iterdir(self) -> Iterator[Remote]:
        """The files of the folder."""
        for file, _ in self.entries():
            yield file

    def glob(self, pattern: str) -> Iterator[Remote]:
        """The files of the folder whose names are like ``pattern``."""
        return (file for file in self.iterdir() if fnmatchcase(file.name, pattern))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """A store's folders are there as soon as anything is in them."""


#: What :func:`give_options` gave, by home.
_GIVEN: dict[Path, dict[str, str]] = {}
#: A file or folder of a lake.
Location = Path | Remote


def spark_name(place: Location) -> str:
    """What Spark calls a file or folder of a lake."""
    return place.hadoop if isinstance(place, Remote) else str(place)


def entries(folder: Location, suffix: str = "", *, recursive: bool = False) -> Iterator[tuple[Location, Stat]]:
    """The files of ``folder`` that end with ``suffix``, with size and time; without those that go meanwhile."""
    if isinstance(folder, Remote):
        yield from (found for found in folder.entries(recursive=recursive) if found[0].name.endswith(suffix))
        return
    for path in folder.rglob(f"*{suffix}") if recursive else folder.glob(f"*{suffix}"):
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        if not path.is_dir():
            yield path, Stat(about.st_size, about.st_mtime)


def _stat(found: pa.fs.FileInfo) -> Stat:
    changed: datetime | None = found.mtime
    return Stat(int(found.size or 0), changed.timestamp() if changed else 0.0)


@lru_cache(maxsize=16)
def _shared(url: str, options: tuple[tuple[str, str], ...]) -> Store:
    return Store(url, dict(options))


def store_of(url: str, options: Mapping[str, str]) -> Store:
    """The store below ``url``: one for all in this process who come with the same ``options``."""
    return _shared(url, tuple(sorted(options.items())))


def tables_at(home: Path) -> Location:
    """Below what the tables of the lake of ``home`` are. UserError where its address cannot be used."""
    address = address_of(home)
    if address is None:
        return home
    return Remote(store_of(address.path, _GIVEN.get(home) or address.options()))


def give_options(home: Path, options: Mapping[str, str]) -> None:
    """Have this process reach the tables of the lake of ``home`` by ``options``: what they come from it cannot read."""
    _GIVEN[home] = dict(options)


def delta_table(place: Location, version: int | None = None) -> DeltaTable:
    """The Delta table in folder ``place``, at its newest version or at ``version``. Errors as of deltalake."""
    options = place.store.options if isinstance(place, Remote) else None
    return settled(lambda: DeltaTable(str(place), version=version, storage_options=options))


def open_parquet(place: Location, **options: object) -> pq.ParquetFile:
    """The Parquet file at ``place``, for :class:`pyarrow.parquet.ParquetFile` with its ``options``."""
    if isinstance(place, Remote):
        return pq.ParquetFile(place.arrow_path, filesystem=place.store.files, **options)
    return pq.ParquetFile(place, **options)


def located(place: Location, uri: str) -> Location:
    """The file that deltalake names as ``uri``, of the table at ``place``."""
    return place.at(uri) if isinstance(place, Remote) else Path(uri)


def _arrow(url: str, options: Mapping[str, str]) -> FileSystem:
    scheme = url.partition(":")[0]
    if scheme == "s3":
        return S3FileSystem(**_s3(options), retry_strategy=AwsStandardS3RetryStrategy(max_attempts=MOST_TRIES))
    if scheme == "gs":
        from pyarrow.fs import GcsFileSystem

        return GcsFileSystem()  # by Google's own way to find credentials, as deltalake's client does
    raise UserError(f"a lake at {scheme}:// cannot be read by Arrow here", "keep it at s3://, or on a disk")


def arrow_names(options: Mapping[str, str]) -> dict[str, str]:
    """Of the ``storage_options`` for S3 those that Arrow asks for, by its names."""
    return {
        ours: next(options[name] for name in names if name in options)
        for ours, names in _NAMES.items()
        if any(name in options for name in names)
    }


def _s3(options: Mapping[str, str]) -> dict[str, object]:
    told: dict[str, object] = {**arrow_names(options)}
    if endpoint := str(told.get("endpoint_override", "")):
        parts = urlsplit(endpoint)
        if parts.scheme:
            told |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    if options.get("aws_virtual_hosted_style_request", "").lower() == "true":
        told["force_virtual_addressing"] = True
    if options.get("aws_skip_signature", "").lower() == "true":
        told["anonymous"] = True
    return {**told, "allow_delayed_open": True, "background_writes": False}
