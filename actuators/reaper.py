"""The reaper: a process that ends what its lease outlived, even when whoever applied it was killed meanwhile.

It is started beside the alert process as soon as something is held that its server will not end by itself, outlives
that process, and goes when nothing is held any more.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path

from actuators.leased import Leased
from actuators.registry import make
from actuators.undo_log import UndoLog, is_locked
from lake.errors import SojournError, UserError
from lake.files import only_one
from lake.stopping import stopping

LOCK, LOG = "reaper.lock", "reaper.log"
#: How often it looks (seconds). A server that fails is asked again as often, each time within its timeout.
EVERY = 0.5

log = logging.getLogger(__name__)


def reap(undo_log: UndoLog) -> list[str]:
    """End what is overdue of every actuator; what failed, in words."""
    failed: list[str] = []
    overdue = {held.actuator for held in undo_log.held() if held.deadline <= undo_log.now()}
    known = undo_log.settings() if overdue else {}
    for name in sorted(overdue):
        if name not in known:
            failed.append(f"{name}: nobody knows any more how to reach it")
            continue
        try:
            leased = Leased(name, make(known[name]), undo_log)
            outcomes, troubles = leased.reap()
        except SojournError as error:
            failed.append(f"{name}: {error}")
            continue
        failed += troubles
        for outcome in outcomes:
            log.info("%s %s of %s: %s", outcome.kind, outcome.place, name, outcome.said)
    return failed


def ensure(folder: Path) -> None:
    """Start the reaper of ``folder`` unless it runs. It belongs to no terminal and to no process group of ours."""
    if is_locked(folder / LOCK):
        return
    subprocess.Popen(
        [sys.executable, "-m", "actuators.reaper", str(folder), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(folder: Path, parent: int, stop: threading.Event) -> None:
    """Reap until nothing is held and whoever started us is gone, or until ``stop`` is set."""
    handler = RotatingFileHandler(folder / LOG, maxBytes=1 << 20, backupCount=1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=[handler])
    while True:
        try:
            with only_one(folder / LOCK, "the reaper"):
                undo_log = UndoLog(folder)
                _watch(undo_log, parent, stop)
                undo_log.close()
        except UserError:
            return  # another one runs
        with_some = UndoLog(folder)
        left = with_some.held()
        with_some.close()
        if stop.is_set():
            log.info("told to stop: %d settings are held, which the next alert process looks after", len(left))
            return
        if not left:  # else somebody put it down while we let go of the lock
            return


def _watch(undo_log: UndoLog, parent: int, stop: threading.Event) -> None:
    last: list[str] = []
    while not stop.is_set():
        try:
            failed = reap(undo_log)
            done = not undo_log.held() and os.getppid() != parent
        except SojournError as error:
            failed, done = [str(error)], False
        if failed != last:
            for line in failed:
                log.warning("%s", line)
        last = failed
        if done:
            return
        stop.wait(EVERY)


if __name__ == "__main__":
    with stopping() as stopped:
        main(Path(sys.argv[1]), int(sys.argv[2]), stopped)
