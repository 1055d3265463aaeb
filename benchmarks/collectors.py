"""Collectors against real servers, each beside the raw client doing only the reads, in the same run.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-collectors`; choose parts
by ARGS="--only redis kafka". The servers are started here, on free loopback ports, and ended at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, show

#: Part → the module of benchmarks/collecting that measures it: ``measure(scale)`` yields its figures.
PARTS = ("redis", "rabbitmq", "kafka", "nats", "sqs", "otlp", "client", "kafka_tap", "nats_tap")


def main() -> None:
    """Measure the chosen parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="1 = the sizes that the goals are stated for")
    chosen = parser.parse_args()
    for part in chosen.only:
        measure: Callable[[float], Iterator[Figure]] = import_module(f"benchmarks.collecting.{part}").measure
        for figure in measure(chosen.scale):
            show(figure)


if __name__ == "__main__":
    main()
