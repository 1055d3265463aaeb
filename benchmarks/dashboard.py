"""The dashboard: how soon a page is there, how soon it is renewed, for one and for twenty, what it costs and keeps.

A real Chromium looks at a real server over a lake of 100,000 (queue, tenant) keys into which 10,000 events a second are
committed meanwhile. The baseline is an empty Streamlit page of the same version in the same run: nothing could undercut
that.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-dashboard`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.parts import run_parts

if __name__ == "__main__":
    run_parts("benchmarks.dashboard_parts", ("paint", "refresh", "viewers", "event", "memory"), __doc__)
