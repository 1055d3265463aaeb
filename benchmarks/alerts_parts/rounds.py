"""A round of a hundred rules over a view of a hundred thousand rows that has just changed; most alerts stay."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from alerts.rules.model import Rule
from alerts.run import COLLECT_AFTER
from alerts.settings import AlertSettings
from benchmarks.alerts_parts.engine import VIEW, engine, view
from benchmarks.figures import Figure
from lake.clock import Clock

RULES, ROWS, ROUNDS = 100, 100_000, 5
#: Pending for ever: what is measured is evaluation, not who is told.
HOLD = timedelta(days=1)


def measure(scale: float) -> Iterator[Figure]:
    """Seconds a round, the median of some, and the memory of the process, at 0.1 % and at 10 % of rows matching; the
    latter again while in each round a hundredth of the alerts are others."""
    gc.set_threshold(*COLLECT_AFTER)
    rows = int(ROWS * scale)
    for share, moving, name in (
        (0.001, 0.0, "rules_100x100k"),
        (0.1, 0.0, "rules_100x100k_dense"),
        (0.1, 0.01, "rules_100x100k_dense_moving"),
    ):
        wall, processor = _rounds(rows, share, moving)
        yield Figure(f"{name}_seconds", wall, "s")
        yield Figure(f"{name}_processor_seconds", processor, "s of processor, without the process for SQL")
        if share < 0.01:
            yield Figure("alerts_rss_mb", _rss_mb(), "MB")


def _rounds(rows: int, share: float, moving: float = 0.0) -> tuple[float, float]:
    rules = [_rule(number, rows, share) for number in range(RULES)]
    names = view(rows, [0] * rows)
    held = [names]
    wall, processor = [], []
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        clock = Clock()
        settings = AlertSettings.model_validate({"builtin": False})
        one = engine(Path(folder) / "alerts.sqlite", rules, settings, lambda _: held[0], clock)
        for number in range((ROUNDS if share < 0.01 else 2) + 1):
            held[0] = _changed(names, number, round(rows * share * moving))
            began, spent = time.monotonic(), time.process_time()
            one.round(clock.now(), new_data=True, everything=True)
            wall.append(time.monotonic() - began)
            processor.append(time.process_time() - spent)
            found = sum(len(evaluation.alerts) for evaluation in one.snapshot.evaluations)
            if not 0.9 * RULES * rows * share <= found <= 1.1 * RULES * rows * share:
                raise SystemExit(f"{found} alerts: {[one.error for one in one.snapshot.evaluations][:1]}")
        one.close(clock.now())
    return statistics.median(wall[1:]), statistics.median(processor[1:])


def _rule(number: int, rows: int, share: float) -> Rule:
    """It matches the queues whose depth, which is by turns, is in its part."""
    size, first = round(rows * share), round(number * rows / RULES)
    within = f"(depth + {rows - first}) % {rows} < {size}"
    expr = f"SELECT broker, queue, oldest_age_seconds AS value FROM {VIEW} WHERE {within}"
    return Rule("bench", f"Rule{number}", expr, hold=HOLD, tables=frozenset({VIEW}))


def _changed(names: pa.Table, number: int, moved: int) -> pa.Table:
    """The same queues with other ages, as each commit brings them, and so many ``moved`` into a rule's part and out."""
    rows = names.num_rows
    for column, values in (
        ("depth", (np.arange(rows) + number * moved) % rows),
        ("oldest_age_seconds", np.arange(rows) + number * 1.0),
    ):
        place = names.schema.get_field_index(column)
        names = names.set_column(
            place, names.schema.field(place), pa.array(values).cast(names.schema.field(place).type)
        )
    return names


def _rss_mb() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 1e6
