"""A server that is one process of its own: started by its class, ended here, by its own process id."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self


class Server(ABC):
    """Runs for as long as a ``with`` lasts."""

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End the server in order; nothing happens if it does not run."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerProcess(Server):
    """What the tests' servers have in common; ports, and what they store, outlast ``kill`` and ``start``."""

    #: Seconds that a server may take to end in order.
    patience = 10

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self._folder / "log").read_text(errors="replace")

    @property
    def process_id(self) -> int:
        """Of the server; it runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL)."""
        self._end(crash=True)

    def stop(self) -> None:
        """End the server in order; nothing happens if it does not run."""
        self._end(crash=False)

    def restart(self) -> None:
        """Kill the server and start it again on the same ports and store."""
        self.kill()
        self.start()

    def _end(self, *, crash: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if crash:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class HttpProcess(ServerProcess):
    """A server that speaks HTTP at one ``port``."""

    port: int

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"
