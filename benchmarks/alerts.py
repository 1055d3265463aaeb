"""Alerts: how soon an event is a page, how soon many are delivered, what a round costs, how soon a restart stands.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-alerts`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.parts import run_parts
from lake.lean import give_back_memory, load_arrow_alone

load_arrow_alone()  # as the alert process does
give_back_memory()

if __name__ == "__main__":
    run_parts("benchmarks.alerts_parts", ("deliver", "rounds", "latency", "event", "month"), __doc__)
