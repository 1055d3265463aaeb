"""A benchmark of several parts, each a module with ``measure(scale)``: chosen and scaled on the command line."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from benchmarks.figures import Figure, show


def run_parts(package: str, parts: Sequence[str], description: str | None, *, apart: Sequence[str] = ()) -> None:
    """Measure the chosen ones of ``parts``, modules of ``package``, one after the other, and print their figures.

    Those ``apart`` take so long that they are measured only where they are named.
    """
    parts = [*parts, *apart]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=parts,
        default=[one for one in parts if one not in apart],
        metavar="PART",
        help=", ".join(parts),
    )
    parser.add_argument("--scale", type=float, default=1.0, help="1 = the sizes that the goals are stated for")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended first
    for part in chosen.only:
        measure: Callable[[float], Iterator[Figure]] = import_module(f"{package}.{part}").measure
        for figure in measure(chosen.scale):
            show(figure)
