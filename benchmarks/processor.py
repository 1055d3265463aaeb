"""Processor time of running processes, as the kernel counts it (proc_pid_stat(5)), and a yardstick for machines."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
ADDITIONS = 10_000_000


def descendants(process: int) -> Iterator[int]:
    """``process`` and all that it started, and they in turn, as far as they run."""
    pending = [process]
    while pending:
        pid = pending.pop()
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it ended meanwhile
        yield pid


def words(process: int) -> list[str]:
    """The command line; empty of a process that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def processor_seconds(process: int, *, ended_children: bool = True) -> float:
    """Processor time of a process and of those of its children that have ended; 0 of one that is gone itself."""
    return sum(_clock(Path(f"/proc/{process}/stat"))[: 4 if ended_children else 2]) / _TICKS


def thread_seconds(process: int) -> dict[str, float]:
    """Processor time of a process's threads by their names, which number themselves: the numbers are left out."""
    found: dict[str, float] = {}
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return found
    for task in tasks:
        try:
            name = (task / "comm").read_text().strip().rstrip("0123456789-#")
        except OSError:
            continue
        found[name] = found.get(name, 0.0) + sum(_clock(task / "stat")[:2]) / _TICKS
    return found


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    """``VmRSS`` or ``VmHWM`` (its largest value) of a process, in MB; 0 of one that has ended.

    Of the largest, ``getrusage`` tells what whoever started the process held, if that was more."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith(what)), 0) / 1024


def yardstick_seconds(rounds: int = 3) -> float:
    """Processor seconds that 10⁷ additions in a plain Python loop take here: the median of ``rounds``."""
    taken = []
    for _ in range(rounds):
        started, total = time.process_time(), 0
        for number in range(ADDITIONS):
            total += number
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def _clock(stat: Path) -> tuple[int, ...]:
    """User and system time, then the same of children that have ended, in ticks."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return (0, 0, 0, 0)
    return tuple(map(int, fields[11:15]))
