"""A file of limits on this machine, as the actuator ``file`` writes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sojourn.client.mirrors.base import LOOK_SECONDS
from sojourn.client.poller import Answer, Unreachable
from sojourn.client.wire import MAX_BYTES, MalformedAnswer, Update, parse


@dataclass(frozen=True)
class FileMirror:
    """The limits in the file ``path``. Where there is no file, there are no limits."""

    path: Path | str

    @classmethod
    def at(cls, url: str) -> FileMirror:
        """Of ``file:///…``."""
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ValueError(f"{url!r} names no file of this machine: file:///…")
        return cls(unquote(parts.path))

    def source(self, clock: Callable[[], float]) -> FileSource:
        """See :class:`sojourn.client.mirrors.base.Mirror`."""
        return FileSource(Path(self.path), clock)


class FileSource:
    """Looks whether the file has changed, and reads it whole where it has."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, ...] | None = None
        self._looked_at: float | None = None

    def poll(self) -> Answer:
        """What stands there, if it is new."""
        before, now = self._looked_at, self._clock()
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                seen: tuple[int, ...] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                self._looked_at = now
                if seen == self._seen:
                    return Answer(None, LOOK_SECONDS, now)
                body = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            seen, self._looked_at = (), now
            update = None if self._seen == seen else Update(None, whole=True)
            self._seen = seen
            return Answer(update, LOOK_SECONDS, now)
        except OSError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        self._seen = seen  # nonsense is told once; it is read again when it has changed
        if len(body) > MAX_BYTES:
            raise MalformedAnswer(f"more than {MAX_BYTES} bytes")
        # Leases count from when the file was written, by the clock that wrote them down: between the last look and now.
        age = max(0.0, time.time() - stat.st_mtime)
        said_at = now - age if before is None else max(before, now - age)
        return Answer(_read(body, stat.st_mtime), LOOK_SECONDS, said_at)

    def close(self) -> None:
        """Nothing is open."""


def _read(body: bytes, written_at: float) -> Update:
    try:
        limits = json.loads(body)["limits"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedAnswer(f"{type(error).__name__}: {error}") from error
    generated_at = datetime.fromtimestamp(written_at, UTC).isoformat()
    return parse(json.dumps({"generated_at": generated_at, "limits": limits}).encode())
