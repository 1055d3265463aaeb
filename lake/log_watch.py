"""Waiting for a table's log to grow: woken by the kernel where it tells of files, by looks again and again elsewhere.

A look at a log each fiftieth of a second is cheap, and yet most of what a process does while nothing happens.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lake.remote import Location

#: A wait that the kernel could end by itself takes so long at most (seconds): it also looks whether all is to stop.
LONGEST_WAIT = 0.25
#: After so many commits of which the kernel told nothing it is believed no more: another machine writes this disk.
MOST_MISSED = 3
#: An entry is linked, or renamed, into its log. Source: inotify(7), sys/inotify.h.
_CREATE, _MOVED_TO, _ONLY_A_FOLDER = 0x100, 0x80, 0x01000000
#: The folder itself is gone; more came than was held.
_IGNORED, _OVERFLOW = 0x8000, 0x4000
_EVENT = struct.Struct("iIII")


class LogWatch:
    """Waits for commits to ``tables``; of one in an object store only looks can tell. Belongs to one thread.

    Whoever waits looks by itself then, and says whether it :meth:`found` something: where commits come of which the
    kernel does not tell, looks are as frequent as without it.
    """

    def __init__(self, *tables: Location) -> None:
        self._logs = [table / "_delta_log" for table in tables if isinstance(table, Path)]
        self._watched: dict[int, Path] = {}
        self._missed = 0
        self._told = True
        self._fd = _opened() if len(self._logs) == len(tables) else -1

    def wait(self, look: float, stop: threading.Event, most: float = LONGEST_WAIT) -> None:
        """Return when a log may have grown, after ``most`` seconds at the latest; after ``look`` where only looks tell.

        ``stop`` ends a wait between looks, and is noticed behind one for the kernel.
        """
        self._told = True  # by then; what came while a log was not watched yet nobody tells
        if self._fd < 0 or not self._watches_all():
            stop.wait(min(look, most))
        else:
            self._told = self._came(most)

    def found(self) -> None:
        """There was a commit, at the look behind the last wait."""
        if self._fd >= 0 and not self._told and not self._came(0.0):
            self._missed += 1
            if self._missed >= MOST_MISSED:
                self.close()
        self._told = True

    def close(self) -> None:
        """Ask the kernel no more; looks go on."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _watches_all(self) -> bool:
        """Whether every log has been watched since before the last look; those that are new are from now on."""
        missing = set(self._logs) - set(self._watched.values())
        for log in missing:
            found = _LIBRARY.inotify_add_watch(self._fd, os.fsencode(log), _CREATE | _MOVED_TO | _ONLY_A_FOLDER)
            if found >= 0:
                self._watched[found] = log
            elif ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
                self.close()
                break
        return not missing

    def _came(self, seconds: float) -> bool:
        """Whether an entry of a log came within ``seconds``."""
        waiter, until = select.poll(), time.monotonic() + seconds
        waiter.register(self._fd, select.POLLIN)
        while waiter.poll(max(0.0, 1000 * (until - time.monotonic()))):
            entries = [self._is_entry(*one) for one in _parted(os.read(self._fd, 1 << 16))]
            if any(entries):
                return True
        return False

    def _is_entry(self, watch: int, mask: int, name: bytes) -> bool:
        if mask & _IGNORED:  # the folder is gone: it is watched again once it is back
            self._watched.pop(watch, None)
        return bool(mask & (_IGNORED | _OVERFLOW)) or name.endswith(b".json")


def _parted(told: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The events in what was read: watch, mask, and the name of the file that is meant."""
    at = 0
    while at < len(told):
        watch, mask, _, length = _EVENT.unpack_from(told, at)
        at += _EVENT.size + length
        yield watch, mask, told[at - length : at].rstrip(b"\0")


def _opened() -> int:
    """A descriptor of inotify; −1 where there is none to be had."""
    return -1 if _LIBRARY is None else int(_LIBRARY.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


_LIBRARY: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
