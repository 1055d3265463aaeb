"""What the kernel holds a worker to, whatever the SQL in it does; called in the worker itself."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
#: How much rather the kernel ends a worker than anything else when memory runs out. Source: proc(5), oom_score_adj.
_RATHER_US = "500"
#: Seconds of CPU beyond a statement's time limit after which the kernel ends the worker, should its parent hang.
_CPU_SLACK = 60


def live_as_long_as(parent: int) -> None:
    """End when process ``parent`` does, however it ends, and not when a terminal or a service manager tells the group.

    The kernel looks at the *thread* that started this process: parents start workers from one that lives as long.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_RATHER_US, encoding="ascii")
    if os.getppid() != parent:  # it died before the kernel knew what to do then
        os._exit(1)


def limit(memory_mb: int) -> None:
    """At most ``memory_mb`` MiB beyond what the process holds now; no core dumps, no files written.

    RLIMIT_DATA counts what can be written to, not address space that is merely reserved, as allocators do by the GB.
    """
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, 0)
    _set(resource.RLIMIT_DATA, _data_bytes() + memory_mb * 1024 * 1024)


def limit_cpu(seconds: float) -> None:
    """End this process once it has used ``seconds`` of CPU from now on, and some more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + _CPU_SLACK, hard))


def _set(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(OSError, ValueError):  # not every system knows every limit
        resource.setrlimit(what, (most, most))


def _data_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))) * 1024
