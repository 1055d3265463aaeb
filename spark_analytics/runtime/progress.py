"""One line on stderr that says how far a download has come."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

MEBIBYTE = 1 << 20
REDRAW_SECONDS = 0.2


class Progress:
    """A progress line: redrawn in place on a terminal, written once at the end elsewhere."""

    def __init__(self, label: str, out: TextIO | None = None) -> None:
        self._label = label
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._drawn_at = 0.0
        self._done = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        end = "fetched" if kind is None else "failed"
        self._out.write(f"{self._start}{self._label}, {self._done / MEBIBYTE:.1f} MiB {end}\n")
        self._out.flush()

    @property
    def _start(self) -> str:
        return "\r\x1b[K" if self._live else ""

    def update(self, done: int, total: int | None) -> None:
        """Say that ``done`` bytes of ``total`` (None: unknown) are here."""
        self._done = done
        now = time.monotonic()
        if not self._live or now - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = now
        of = f" of {total / MEBIBYTE:.1f}" if total else ""
        self._out.write(f"{self._start}{self._label}, {done / MEBIBYTE:.1f}{of} MiB")
        self._out.flush()
