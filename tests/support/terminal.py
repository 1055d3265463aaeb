"""A program on a terminal of its own, typed at and read from, as by a person."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from tests.support.waiting import PATIENCE

#: What a terminal draws with: colours, moves, modes.
_DRAWING = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """Runs ``command`` on a new terminal of 160 columns. Close it when done."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        # The program does not ask a terminal that nobody draws where its cursor stands.
        environ = {**env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command], stdin=other, stdout=other, stderr=other, env=environ
        )
        os.close(other)
        self._unread = b""

    def type(self, text: str) -> None:
        """Press the keys of ``text``; ``\\r`` is Enter, ``\\x03`` Ctrl-C, ``\\x04`` Ctrl-D."""
        os.write(self._side, text.encode())

    def until(self, words: str, timeout: float = 100) -> str:
        """What the screen shows up to and with ``words``, without drawing; AssertionError if it never comes."""
        wanted, deadline = words.encode(), time.monotonic() + PATIENCE * timeout
        while (found := self._unread.find(wanted)) < 0:
            assert time.monotonic() < deadline, f"{words!r} never came after {self._unread.decode(errors='replace')}"
            if select.select([self._side], [], [], 0.2)[0]:
                try:
                    self._unread = _DRAWING.sub(b"", self._unread + os.read(self._side, 1 << 16))
                except OSError as error:  # the other side is closed
                    raise AssertionError(f"{words!r} never came: {self._unread.decode(errors='replace')}") from error
        seen, self._unread = self._unread[: found + len(wanted)], self._unread[found + len(wanted) :]
        return seen.decode(errors="replace")

    def until_keys_are_signals(self, timeout: float = 100) -> None:
        """Until Ctrl-C is a signal to the program and not a key that it reads: what a person sees as "it works"."""
        deadline = time.monotonic() + PATIENCE * timeout
        while not termios.tcgetattr(self._side)[3] & termios.ISIG:
            assert time.monotonic() < deadline, "the program reads keys still"
            time.sleep(0.02)

    def exit_code(self, timeout: float = 60) -> int:
        """The exit code, once the program has ended."""
        return self._process.wait(timeout)

    def close(self) -> None:
        """End the program if it runs still."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
        os.close(self._side)
