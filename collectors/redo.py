"""Tables in files of their own, so that what was begun can be finished after a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from lake.files import private


def write_table(path: Path, table: pa.Table) -> None:
    """Write ``table`` to ``path`` durably: wholly or not at all."""
    draft = path.with_name(f".{path.name}")
    with open(draft, "wb", opener=private) as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_table(path: Path) -> pa.Table:
    """What :func:`write_table` wrote."""
    with path.open("rb") as file:
        return pa.ipc.open_file(file).read_all()
