"""What Sojourn itself costs on this machine, process by process, as the kernel counts it (proc_pid_stat(5)).

The parts are those that a supervisor has written down beside the lake, else this server alone; of each, all that it
started. Where there is no ``/proc``, nothing is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic

PROC = Path("/proc")
ROSTER = Path("state") / "run" / "processes.json"
#: Rates are over so many seconds at least: shorter ones are chance.
LEAST_SECONDS = 10.0
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """One part: the ``cores`` it used of late, None where that is not known yet, and its resident ``megabytes``."""

    part: str
    cores: float | None
    megabytes: float


class Meter:
    """Remembers the processor time of before, so that it can tell what was used since. Safe to share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._before: tuple[float, dict[str, float]] | None = None
        self._rates: dict[str, float] = {}

    def read(self, root: Path) -> tuple[Cost, ...]:
        """Each part of the lake at ``root``, the most expensive first."""
        used = {part: _used(pid) for part, pid in _parts(root).items()}
        with self._lock:
            now, seconds = monotonic(), {part: told[0] for part, told in used.items() if told is not None}
            before = self._before or (now, seconds)
            if now - before[0] >= LEAST_SECONDS:
                since = now - before[0]
                self._rates = {
                    part: max(0.0, spent - before[1][part]) / since
                    for part, spent in seconds.items()
                    if part in before[1]
                }
                before = (now, seconds)
            self._before = before
            found = [Cost(part, self._rates.get(part), told[1]) for part, told in used.items() if told is not None]
        return tuple(sorted(found, key=lambda one: (-(one.cores or 0.0), -one.megabytes, one.part)))


def _parts(root: Path) -> Mapping[str, int]:
    """The process of each part; those of a supervisor that has ended are not its any more."""
    try:
        told = json.loads((root / ROSTER).read_text(encoding="utf-8"))
        supervisor = int(told["supervisor"])
        parts = {str(name): int(one["pid"]) for name, one in told["children"].items() if one.get("pid")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"dashboard": os.getpid()}
    ours = {name: pid for name, pid in parts.items() if _parent(pid) == supervisor}
    return ours | ({} if os.getpid() in ours.values() else {"dashboard": os.getpid()})


def _used(process: int) -> tuple[float, float] | None:
    """Processor seconds and resident megabytes of ``process`` and all that it started; None where it has ended."""
    fields = [told for pid in _family(process) if (told := _stat(pid)) is not None]
    if not fields:
        return None
    # utime, stime; what its children that have ended had used is theirs of before, so that no sum ever falls
    seconds = sum(sum(map(int, told[11:15])) for told in fields) / _TICKS
    return seconds, sum(int(told[21]) for told in fields) * _PAGE / 1e6


def _family(process: int) -> Iterator[int]:
    pending = [process]
    while pending:
        pid = pending.pop()
        try:
            for task in (PROC / str(pid) / "task").iterdir():
                pending += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue  # it ended meanwhile
        yield pid


def _parent(pid: int) -> int | None:
    told = _stat(pid)
    return None if told is None else int(told[1])


def _stat(pid: int) -> list[str] | None:
    """The fields of a process after its name: state, parent, …"""
    try:
        return (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
