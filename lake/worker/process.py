"""One worker process as its parent sees it, and the spare that is kept warm for the next one's death."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from lake.errors import SojournError
from lake.lean import SYSTEM_POOL, THREADS
from lake.worker.wire import Wire

#: A worker that has not loaded its modules by then never will; generous, for a machine that does much else.
START_SECONDS = 120.0
#: The only variables of ours that a worker sees: where libraries lie, nothing of what is secret.
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class Process:
    """A worker process. It loads its modules by itself; :meth:`begin` waits for that."""

    def __init__(self) -> None:
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "lake.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                "PYTHONPATH": paths,
                "LC_ALL": "C.UTF-8",
                **dict.fromkeys((*THREADS, "RAYON_NUM_THREADS"), "1"),
                **SYSTEM_POOL,
                **environment,
            },
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._popen)  # also when nobody refers to it any more

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._popen.poll() is None

    def begin(self, hello: Mapping[str, Any], most: int) -> None:
        """Wait until it is ready, and tell it its lake and limits; WireError if it is of no use.

        ``most`` bounds the bytes of one answer."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._wire = Wire(self._popen.stdout.fileno(), self._popen.stdin.fileno(), most=most)
        self._wire.receive(deadline=time.monotonic() + START_SECONDS)
        self.send(hello)

    def send(self, header: Mapping[str, Any], table: pa.Table | None = None) -> None:
        """Send a request; WireError where the process no longer takes it."""
        self._wire.send(header, table, deadline=time.monotonic() + START_SECONDS)

    def receive(self, seconds: float) -> tuple[dict[str, Any], pa.Table | None]:
        """What it says next; WireError unless it does within ``seconds``."""
        return self._wire.receive(deadline=time.monotonic() + seconds)

    def interrupt(self) -> None:
        """Kill it while another thread waits for what it says; that one has to call :meth:`kill`."""
        with contextlib.suppress(OSError):
            self._popen.kill()

    def kill(self) -> int:
        """End it at once; its exit code, negative for a signal."""
        self._end()
        return self._popen.wait()


def _end(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            pipe.close()


class Spares:
    """Starts processes, and has one ready to be taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: Process | None = None
        # A worker dies with the thread that started it (see limits.live_as_long_as): this one lives as long as we do.
        self._starter = ThreadPoolExecutor(1, "sql-worker")

    def take(self) -> Process:
        """The spare if there is one, else a new process."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            if spare.alive:
                return spare
            spare.kill()
        try:
            return self._starter.submit(Process).result()
        except (OSError, RuntimeError) as error:
            raise SojournError(f"no process can be started to run SQL in: {error}") from error

    def refill(self) -> None:
        """Have a spare, started in the background; where that is impossible, the next one is started when needed."""
        with self._lock:
            if self._spare is None or not self._spare.alive:
                with contextlib.suppress(OSError, RuntimeError):
                    self._spare = self._starter.submit(Process).result()


SPARES = Spares()
