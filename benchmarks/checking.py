"""What checking a statement costs before it runs: the shipped rules' statements, none of them seen before.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}; the baseline is sqlglot's parsing alone. Run it
by `make bench-checking`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import sqlglot

from alerts.rules.expression import ENGINE_VIEWS, bound
from alerts.rules.loader import load_rules
from benchmarks.figures import Figure, show
from lake.definitions import Definitions
from lake.select import canonical, for_duckdb
from lake.tables import TABLES
from lake.views import VIEWS

ROUNDS = 20
NAMES = {*TABLES, *VIEWS, *ENGINE_VIEWS}


def statements() -> Iterator[str]:
    """The shipped rules' expressions, each time with other spaces, so that nothing is found in a cache."""
    rules = load_rules((), builtin=True)
    for number in range(ROUNDS):
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        yield from (bound(rule.expr, now, Definitions()) + " " * number for rule in rules)


def milliseconds(work: Callable[[str], object], texts: list[str]) -> float:
    """The median time that ``work`` takes for one of ``texts``."""
    taken = []
    for text in texts:
        started = time.perf_counter()
        work(text)
        taken.append(time.perf_counter() - started)
    return 1000 * median(taken)


def main() -> None:
    """Measure and print."""
    texts = list(statements())
    parsing = milliseconds(lambda text: sqlglot.parse_one(text, read="spark"), texts)
    show(Figure("check_p50_ms", milliseconds(lambda text: canonical(text, NAMES), texts), "ms", parsing))
    checked = [canonical(text, NAMES) for text in texts]
    for_duckdb.cache_clear()
    show(Figure("translate_p50_ms", milliseconds(for_duckdb, list(dict.fromkeys(checked))), "ms", parsing))
    show(Figure("check_again_p50_ms", milliseconds(lambda text: canonical(text, NAMES), texts), "ms", parsing))


if __name__ == "__main__":
    main()
