"""What the fuzzer prints: one JSON object a line on stdout, as the benchmarks do; how far it is on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from benchmarks.figures import Figure, show


@dataclass(slots=True)
class Findings:
    """Figures by name, and whatever must not have happened, in words."""

    figures: dict[str, tuple[float, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def count(self, name: str, value: float, unit: str) -> None:
        """Note a figure."""
        self.figures[name] = (value, unit)

    def fault(self, words: str) -> None:
        """Note an effect or a crash."""
        self.faults.append(words)

    def print(self) -> None:
        """Every figure, then the first faults, in full."""
        for name, (value, unit) in self.figures.items():
            show(Figure(name, value, unit))
        for words in self.faults[:20]:
            print(f"FAULT: {words}"[:4000].encode("ascii", "backslashreplace").decode(), file=sys.stderr)


def megabytes(*processes: psutil.Process) -> float:
    """The memory that ``processes`` hold now."""
    return float(sum(process.memory_info().rss for process in processes)) / 1e6


def teller(what: str, total: int, seconds: float = 5.0) -> Callable[[int], None]:
    """Tells on stderr how far ``what`` is, now and then."""
    began = time.monotonic()
    told = began

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= seconds or done >= total:
            told = now
            print(f"{what}: {done:,} of {total:,} in {now - began:.0f} s", file=sys.stderr, flush=True)

    return tell
