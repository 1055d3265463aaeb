"""Run a command that cannot outlive its parent: ``guard.py PARENT_PID COMMAND…``.

The kernel kills the command when the supervisor dies, however it dies (Linux; elsewhere an orderly stop alone ends it).
A program of its own and not a ``preexec_fn``, because code between fork and exec is unsafe beside threads.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Bind this process's life to its parent's, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew what to do then
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"sojourn: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
