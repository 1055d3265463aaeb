"""Finished ages get coarser with age: buckets of seconds become minutes, then hours, by adding up their histograms.

They follow `partials`: where these were rolled up, and the analysis knows it, so are ages, and the two agree exactly.
What only repeats earlier rows, for who reads one epoch alone, goes once that epoch is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from lake.finished import AGE_STATE
from lake.remote import delta_table
from lake.store import Lake
from spark_analytics.fold.arrays import Array
from spark_analytics.fold.lived import LEVELS, levels_of
from spark_analytics.maintenance.merging import MANY_FILES, SMALL_BYTES, add_actions
from spark_analytics.maintenance.opening import opened
from spark_analytics.maintenance.region import Region, Value, replace
from spark_analytics.maintenance.retention import HOUR, MINUTE
from spark_analytics.maintenance.slices import SPANS, slices
from spark_analytics.state.age_rows import rows_of
from spark_analytics.state.ages_of import Keys, of_state
from spark_analytics.state.buckets import added_up, code_of, slots_of, starts_of
from spark_analytics.state.feed import versions_folded

log = logging.getLogger(__name__)


def prune(lake: Lake, *, thorough: bool) -> int:
    """Thin `age_state` as far as it is due; how many rows went. SojournError where the table cannot be used."""
    regions = [*_repeated(add_actions(lake, AGE_STATE.name))]
    done = [replace(lake, AGE_STATE.name, region, _without_repeats) for region in regions]
    if thorough:
        for broker, until in opened(lake).items():
            old = Region((("broker", "=", broker), ("bucket_start", "<", until)))
            done.append(replace(lake, AGE_STATE.name, old, lambda rows: rows.slice(0, 0)))
        for region, width in _fine(lake):
            done.append(replace(lake, AGE_STATE.name, region, partial(coarser, width=width)))
    return sum(counts[0] - counts[1] for counts in done if counts)


def _repeated(files: pa.Table) -> Iterator[Region]:
    """Closed epochs with many small files, or whole ones that only repeat others."""
    if files.num_rows == 0 or "max.epoch" not in files.column_names:
        return
    current = pc.max(files.column("max.epoch")).as_py()
    closed = files.filter(pc.less(files.column("max.epoch"), current))
    begin = closed.filter(pc.equal(closed.column("min.revision"), closed.column("min.epoch")))
    small = closed.filter(pc.less(closed.column("size_bytes"), SMALL_BYTES // 8))
    due = small if small.num_rows >= MANY_FILES else begin
    if small.num_rows >= MANY_FILES or (pc.sum(begin.column("size_bytes")).as_py() or 0) >= SMALL_BYTES:
        yield Region((("epoch", ">=", pc.min(due.column("min.epoch")).as_py()), ("epoch", "<", current)))


def _fine(lake: Lake) -> Iterator[tuple[Region, int]]:
    """What is told more finely than partials, as the analysis has them, tell it: parts, and how long buckets become."""
    version = versions_folded(lake, AGE_STATE.name).get("partials")
    if version is None:
        return
    try:
        table = delta_table(lake.path("partials"), version)
        wide = Region((("bucket_seconds", ">=", MINUTE),)).read(table, list(LEVELS))
    except (DeltaError, OSError, pa.ArrowException):
        log.info("ages stay as fine as they are until the analysis goes on")  # it has not seen how partials are now
        return
    levels = levels_of(wide.filter(pc.less_equal(wide.column("bucket_seconds"), HOUR)))
    fine = Region((("bucket_seconds", "<", HOUR),)).read(lake.ensure(AGE_STATE.name), list(LEVELS))
    starts = fine.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
    widths, brokers = fine.column("bucket_seconds").to_numpy(), fine.column("broker")
    for broker, (minutes_until, hours_until) in levels.items():
        mine = pc.equal(brokers, broker).to_numpy()
        for width, since, until in ((HOUR, -1, hours_until), (MINUTE, hours_until, minutes_until)):
            due = starts[mine & (widths < width) & (starts > since) & (starts <= until)]
            for begins, ends in slices(due, width, SPANS[width]):
                yield _between(broker, begins, min(ends, until + 1)), width


def _between(broker: str, begins: int, ends: int) -> Region:
    first, end = (datetime.fromtimestamp(second, UTC) for second in (begins, ends))
    conditions: tuple[tuple[str, str, Value], ...] = (
        ("broker", "=", broker), ("bucket_start", ">=", first), ("bucket_start", "<", end),
    )  # fmt: skip
    return Region(conditions)


def _without_repeats(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.fill_null(rows.column("happened"), True))
    codes, widths = _codes(rows)
    kept = _counting(codes, widths, rows.column("revision").to_numpy())
    return rows.take(pa.array(kept))


def coarser(rows: pa.Table, width: int) -> pa.Table:
    """What ``rows``, all there are of their time, come to in buckets of ``width`` seconds, a row each."""
    keys = Keys()
    codes, widths = _codes(rows, keys)
    kept = _counting(codes, widths, rows.column("revision").to_numpy())
    rows = rows.take(pa.array(kept))
    rows = rows.filter(pc.greater(rows.column("count"), 0))
    there = of_state(rows, keys)
    slots = slots_of(there.code)
    longer = np.maximum(there.width, width)
    codes = code_of(starts_of(there.code) // longer * longer, slots)
    sums = added_up([there.recoded(codes, longer)])
    order = np.lexsort((rows.column("revision").to_numpy(), codes))
    last = order[np.searchsorted(codes[order], sums.code, side="right") - 1]  # the newest of each stands for all
    newest = rows.take(pa.array(last))
    said = {name: newest.column(name).to_numpy() for name in ("epoch", "revision", "key")}
    said["as_of"] = newest.column("as_of").cast(pa.int64()).to_numpy()
    return rows_of(sums, keys, said, np.ones(len(sums.code), bool))


def _codes(rows: pa.Table, keys: Keys | None = None) -> tuple[Array, Array]:
    there = of_state(rows, keys or Keys())
    return there.code, there.width


def _counting(codes: Array, widths: Array, revisions: Array) -> Array:
    """Which rows count: the newest of each bucket, unless a longer bucket over it is newer still."""
    order = np.lexsort((revisions, widths, codes))
    last = np.ones(len(order), bool)
    last[:-1] = (codes[order][1:] != codes[order][:-1]) | (widths[order][1:] != widths[order][:-1])
    kept = order[last]
    slots, starts = slots_of(codes[kept]), starts_of(codes[kept])
    covered = np.zeros(len(kept), bool)
    for longer in (MINUTE, HOUR):
        over = kept[widths[kept] == longer]
        of_over = np.argsort(codes[over])
        within = code_of(starts // longer * longer, slots)
        at = np.minimum(np.searchsorted(codes[over][of_over], within), max(len(over) - 1, 0))
        if len(over):
            its = over[of_over][at]
            covered |= (codes[its] == within) & (widths[kept] < longer) & (revisions[its] > revisions[kept])
    return np.sort(kept[~covered])
