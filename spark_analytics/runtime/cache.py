"""The folder in which downloads and derived files are kept between runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lake.errors import UserError


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """``$SOJOURN_CACHE``, or ``sojourn`` in the user's cache folder."""
    if chosen := environ.get("SOJOURN_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sojourn"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well, and is removed otherwise.

    Whoever looks at ``path`` meanwhile sees the old file or the whole new one, whichever process wins.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise UserError(
            f"cannot write to the cache {path.parent}: {error.strerror}", "name another folder with SOJOURN_CACHE"
        ) from error
    temporary = Path(name)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:  # a failed transfer, not the disk
            raise
        raise UserError(
            f"cannot write {path}: {error.strerror}", "free some space, or name another folder with SOJOURN_CACHE"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def keep_text(path: Path, text: str, *, executable: bool = False) -> Path:
    """Make ``path`` hold ``text``, writing only if it does not already."""
    mode = 0o755 if executable else 0o644
    try:
        if path.read_text() == text and path.stat().st_mode & 0o777 == mode:
            return path
    except (OSError, UnicodeDecodeError):
        pass
    with replacing(path) as temporary:
        temporary.write_text(text)
        temporary.chmod(mode)
    return path
