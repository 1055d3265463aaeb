"""Collectors against real servers, each beside the raw client doing only the reads, in the same run.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-collectors`; choose parts
by ARGS="--only redis kafka". The servers are started here, on free loopback ports, and ended at the end.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.parts import run_parts

#: Modules of benchmarks/collecting.
PARTS = (
    "redis", "jobs_on_redis", "peers_on_redis", "rabbitmq", "kafka", "kafka_moving", "nats", "sqs",
    "otlp", "client", "kafka_tap", "nats_tap", "postgres",
    "idle",
)  # fmt: skip

if __name__ == "__main__":
    run_parts("benchmarks.collecting", PARTS, __doc__)
