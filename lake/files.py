"""Small files that several processes read: written whole or not at all, locked by one holder at a time, and private.

State holds what others must not read or forge: pages that wait, limits, positions. Its folders are for their owner
alone (0700), its files too (0600), whatever the umask; tables beside it keep the umask's modes.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lake.errors import UserError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_folder(path: Path) -> Path:
    """The folder at ``path``, made if need be, which nobody but its owner may enter."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _close(path)
    return path


def private_file(path: Path) -> Path:
    """The file at ``path``, made if need be, which nobody but its owner may read. OSError.

    What SQLite puts beside a database has the database's mode. A file that is there is not opened: to close it would
    give up all locks that this process has on it by other connections (https://www.sqlite.org/howtocorrupt.html, 2.2),
    and whoever closes the database next would take its write-ahead log away from under them.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        _close(one)
    return path


def private(path: str | os.PathLike[str], flags: int) -> int:
    """An ``opener`` for :func:`open` that makes files which nobody but their owner may read."""
    return os.open(path, flags, 0o600)


def close_to_others(folder: Path) -> None:
    """Take from all but the owner what they may do in ``folder``; links are left alone, and what is another's."""
    _close(folder)
    for below, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _close(Path(below, name))


def _close(path: Path) -> None:
    # It may go meanwhile, or belong to another user, who alone may change it.
    with suppress(FileNotFoundError, PermissionError):
        mode = path.lstat().st_mode
        if mode & _OTHERS and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def _opener(folder: Path) -> Callable[[str, int], int] | None:
    """How a file is opened in ``folder``: as private as that is."""
    return None if folder.stat().st_mode & _OTHERS else private


def write_atomically(path: Path, text: str, *, lasting: bool = True) -> None:
    """Replace the file at ``path`` by ``text``; a reader, or a crash, sees the old file or the new one.

    One that need not be ``lasting`` may be empty after a crash of the whole machine, and nobody waits for the disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=_opener(path.parent)) as file:
        file.write(text)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at ``path``; UserError if another process has it. A process that dies lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8", opener=_opener(path.parent)) as file:
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
