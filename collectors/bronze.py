"""Where collectors put their records: a lake, or a transport that carries them there. Both promise the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Bronze(Protocol):
    """Appends to bronze tables, exactly once where the caller numbers what it appends. Belongs to one thread."""

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Durably append ``rows`` to table ``name``; see :meth:`lake.store.Lake.append`."""
        ...

    def committed(self, name: str, app_id: str) -> int | None:
        """The last version that ``app_id`` appended to table ``name``; None if there is none."""
        ...

    def compact(self, name: str) -> None:
        """Make table ``name`` cheaper to read, where that is this place's business."""
        ...

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """The rows of table ``name`` in the lake that were ingested at ``since`` or later; see
        :meth:`lake.store.Lake.scan`."""
        ...

    def state_path(self, *parts: str) -> Path:
        """A place on the local disk for what is not a record; its folder is made."""
        ...


class Around:
    """What stands around bronze: hands everything on but what a subclass does itself, which is to append."""

    def __init__(self, bronze: Bronze) -> None:
        self._bronze = bronze

    def committed(self, name: str, app_id: str) -> int | None:
        """As bronze says."""
        return self._bronze.committed(name, app_id)

    def compact(self, name: str) -> None:
        """As bronze does."""
        self._bronze.compact(name)

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """As bronze does."""
        return self._bronze.scan(name, columns, since)

    def state_path(self, *parts: str) -> Path:
        """As bronze says."""
        return self._bronze.state_path(*parts)
