"""Analytics: throughput beside a plain Spark count of the same files, freshness, catching up, the reader, and more.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-analytics`; choose parts
by ARGS="--only throughput live". All parts together take about twenty minutes; a Spark of several
workers and the alert process are measured where they are named: ARGS="--only cluster alerting".
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.parts import run_parts

#: Modules of benchmarks/analytics_parts.
PARTS = ("throughput", "live", "catch_up", "tenants", "scale", "finished", "sql_start", "month", "rules", "s3")
#: Those that are measured only where they are named.
APART = ("cluster", "alerting")

if __name__ == "__main__":
    run_parts("benchmarks.analytics_parts", PARTS, __doc__, apart=APART)
