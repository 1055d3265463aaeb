"""Small files that several processes read: written whole or not at all, locked by one holder at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lake.errors import UserError


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``; a reader, or a crash, sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at ``path``; UserError if another process has it. A process that dies lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UserError(
                f"{what} is already running (process {holder})", "stop it first, or use another lake"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
