"""One child process in its own session, its output in a bounded file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lake.files import private

GUARD = Path(__file__).with_name("guard.py")

#: A log grows to this many bytes, then becomes ``NAME.log.1`` and starts anew.
LOG_BYTES = 4 << 20

#: What a child started itself may take this long to go after the child.
GROUP_GRACE = 2.0


class Process:
    """A running child: its own session, hence its own process group, and dead when we are."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.started_at = time.monotonic()
        self._ended_at: float | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        with open(log, "ab", opener=private) as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The child's process id; also the id of its process group."""
        return self._popen.pid

    def exit_code(self) -> int | None:
        """None while it runs, minus the signal's number if a signal ended it."""
        code = self._popen.poll()
        if code is not None and self._ended_at is None:
            self._ended_at = time.monotonic()
        return code

    def lived(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started_at

    def terminate(self) -> None:
        """Ask the child, and it alone, to stop: what it started itself is its own to stop."""
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the child and whatever it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def group_alive(self) -> bool:
        """Whether the child, or (within a grace, since nobody may reap it) something it started, still runs."""
        if self.exit_code() is None:
            return True
        if self._ended_at is not None and time.monotonic() > self._ended_at + GROUP_GRACE:
            return False
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def last_line(self) -> str:
        """The last thing this run of the child said; empty if it said nothing."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - 8192, min(self._log_start, size)))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip() if lines else ""

    def bound_log(self) -> None:
        """Keep the log within its bound: copy and cut, since the child holds the file open (for appending)."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)
                self._log_start = 0
