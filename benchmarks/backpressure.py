"""Backpressure: how soon limits reach who must obey them, what a decision costs, and what the quiet gain.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}; the baselines are measured in the same run. Run
it by `make bench-backpressure`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.parts import run_parts

if __name__ == "__main__":
    run_parts(
        "benchmarks.backpressure_parts",
        ("decision", "limits", "lab", "fair", "entitled", "cap", "limiters"),
        __doc__,
        apart=("innocents", "envoy", "receipts", "reaction"),
    )
