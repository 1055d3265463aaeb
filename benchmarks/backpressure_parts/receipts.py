"""Receipts against what untreated runs of the demo show: the surge with the limit, and again with nobody limited.

Each pair takes five minutes; the goal is stated for ten: ``--only receipts``. A line a pair goes to standard error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from lake.reader import Reader
from sojourn.demo.layout import Layout
from sojourn.demo.measure import first_attempts, quantile
from sojourn.demo.scenario import NOISY, Scenario

PAIRS, DURATION = 10, 140.0
#: Longer than any demo takes (seconds).
AT_MOST = 900.0


def pair(folder: Path) -> tuple[dict[str, Any], float] | None:
    """The receipt of a surge with the limit, and the quiet tenants' p99 (seconds) of one without, from the instant on
    at which the first was limited. None where nobody was limited."""
    limited, free = Layout(folder / "limited"), Layout(folder / "free")
    told = _demo(limited)
    _demo(free, "--dry-run")
    receipt, after = told["receipt"], told["seconds_from_surge"]["throttled"]
    start = free.clock_start()
    if receipt is None or after is None or start is None:
        return None
    since = start + Scenario.lasting(DURATION).phases[1].begins + after
    first = first_attempts(Reader(free.lake), start)
    ages = [one.age for one in first if one.tenant != NOISY and one.at - one.age >= since]
    return receipt, quantile(ages, 0.99) or 0.0


def _demo(layout: Layout, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "sojourn.cli.main", "demo", "--headless", "--duration", str(DURATION)]
    with (layout.lake.with_suffix(".txt")).open("wb") as said:
        subprocess.run([*command, "--lake", str(layout.lake), *options], stdout=said, stderr=said, timeout=AT_MOST)
    found: dict[str, Any] = json.loads(layout.report.read_text(encoding="utf-8"))
    return found


def covered_pairs(pairs: int) -> Iterator[bool]:
    """Of each pair whether the receipt's interval holds what the untreated run showed."""
    for number in range(pairs):
        with tempfile.TemporaryDirectory(prefix="sojourn-receipts-") as folder:
            found = pair(Path(folder))
        if found is None:
            print(f"pair {number + 1}: nobody was limited", file=sys.stderr)
            continue
        receipt, shown = found
        low, high = receipt["quiet_without_low"], receipt["quiet_without_high"]
        print(
            f"pair {number + 1}: with the limit {receipt['quiet_with']:.2f} s; without, by the receipt "
            f"{receipt['quiet_without']:.2f} s ({low:.2f} to {high:.2f}), by the run {shown:.2f} s",
            file=sys.stderr,
            flush=True,
        )
        yield low <= shown <= high


def measure(scale: float) -> Iterator[Figure]:
    """How many of the pairs the receipts' intervals hold."""
    covered = list(covered_pairs(max(1, round(PAIRS * scale))))
    yield Figure("receipts_covered", float(sum(covered)), f"of {len(covered)} pairs", float(len(covered)))
