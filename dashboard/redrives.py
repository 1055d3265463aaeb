"""Redrives that operators start from a page: the very command, ``sojourn redrive``, as a process of its own.

The dashboard has no broker's credentials and knows no broker: the command reads the settings file that the dashboard
was started with. It goes on when the dashboard ends, as one from a shell does, and is cancelled from anywhere.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO

from dashboard.run import CONFIG_VARIABLE
from lake.errors import UserError

#: How long a redrive may take to say that it has begun (seconds).
PATIENCE = 60.0
_POLL_SECONDS = 0.2
_SOJOURN = (sys.executable, "-m", "sojourn.cli.main")


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters of ``source`` back to ``target``, ``canary`` of them first, then ``rate`` messages/s."""

    broker: str
    source: str
    target: str
    rate: float = 10.0
    canary: int = 10
    tenant: str = ""
    subject: str = ""

    def arguments(self) -> list[str]:
        """How ``sojourn`` is told this."""
        given = [f"--broker={self.broker}", f"--rate={self.rate:g}", f"--canary={self.canary}"]
        given += [f"--tenant={self.tenant}"] if self.tenant else []
        given += [f"--subject={self.subject}"] if self.subject else []
        return ["redrive", "start", *given, "--", self.source, self.target]

    def command(self) -> str:
        """The same for a shell."""
        return shlex.join(["sojourn", *self.arguments()])


def possible() -> bool:
    """Whether redrives can be started from here: the dashboard knows the settings file."""
    return bool(os.environ.get(CONFIG_VARIABLE))


def start(root: Path, one: Redrive) -> None:
    """Begin it, and wait until it says that it has; it goes on by itself. UserError with what it says where it ends."""
    *command, separator, source, target = [*_SOJOURN, *one.arguments()]
    _begun([*command, f"--lake={root}", separator, source, target])


def cancel(root: Path, redrive: str) -> None:
    """End one for good, wherever it runs. UserError with what the command says."""
    asked = [*_SOJOURN, "redrive", "cancel", f"--lake={root}", "--", redrive]
    done = subprocess.run(
        asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        raise UserError(_last(done.stderr) or "the redrive could not be cancelled")


def _begun(command: Sequence[str]) -> None:
    # Files, not pipes: what nobody reads any more must not end it.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as wrong:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=wrong, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended = process.poll()
            if ended:
                raise UserError(_last(_read(wrong)) or "the redrive ended before it had begun")
            if ended == 0 or "\n" in _read(said):
                break
            time.sleep(_POLL_SECONDS)
    Thread(target=process.wait, name="redrive", daemon=True).start()


def _read(file: IO[bytes]) -> str:
    """What was written so far; the process goes on where it is."""
    return os.pread(file.fileno(), 4096, 0).decode(errors="replace")


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].removeprefix("sojourn: ")
