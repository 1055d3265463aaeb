"""All of finished state told anew by Spark's executors, side by side: each folds some queues, and lays down their rows.

What they laid down becomes part of gold by one commit for each table, the driver's, so that nobody sees a part of it;
files of a task that died with its executor are orphans, which vacuuming removes. Ages, which are sums, are the driver's
meanwhile. docs/adr/0021.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from lake.definitions import Definitions
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.making import indexed
from lake.staged import LaidDown, Staged
from lake.store import Lake
from lake.tables import TABLES
from spark_analytics.fold.shares import Past, Sent, Share, received, sent, shares_of, survey
from spark_analytics.state import raw
from spark_analytics.state.ages import Ages
from spark_analytics.state.consumers import Consumers
from spark_analytics.state.feed import FOLDED, Came, Feed
from spark_analytics.state.finish import Finisher, Finishing
from spark_analytics.state.seconds import Seconds
from spark_analytics.state.writer import APP_ID, TABLES_IN_ORDER, drop_ages, epoch_ends, last_revision

log = logging.getLogger(__name__)

#: What a task tells of a file that it laid down, and of how many keys there are rows in it.
_TOLD = pa.schema(
    {
        "table": pa.string(),
        "epoch": pa.int64(),
        "path": pa.string(),
        "size": pa.int64(),
        "changed": pa.int64(),
        "stats": pa.string(),
        "rows": pa.int64(),
        "keys": pa.int64(),
    }
)
_FOLDED_TABLES = (TENANT_STATE.name, QUEUE_STATE.name)


@dataclass(frozen=True, slots=True)
class Work:
    """What every task is told: the past, the shares, where tables are, and the first of two epochs to be told.

    The first epoch is all of history, the second how things stand at data time.
    """

    past: Past
    shares: Sequence[Share]
    places: Mapping[str, Sent]
    epoch: int


#: Of a file that was laid down what _TOLD has.
Told = Mapping[str, Any]
#: Lays down the rows of all shares, each by :func:`lay_down`.
Run = Callable[[Work], Sequence[Told]]


def tell_anew(root: Path, run: Run, most: Callable[[], int]) -> int | None:
    """Tell the finished state of the lake at ``root`` anew, every second of it; how many rows that made.

    ``run`` does :func:`lay_down` of each share, of which there may be ``most``. None, and nothing is done, where
    events are missing from gold for now, or nothing is known of any queue. Raises LakeError, UserError, and what
    ``run`` does.
    """
    began = time.monotonic()
    lake, definitions = Lake(root), Definitions.load(root)
    finisher = Finisher(root, definitions)
    finisher.refresh()
    feed = Feed(root)
    came = feed.look()
    past, weights = survey(feed.files(), definitions)
    surveyed = time.monotonic()
    if not weights or not finisher.complete:
        return None
    for name in TABLES_IN_ORDER:
        lake.ensure(name)
    shares = shares_of(weights, most())
    epoch = last_revision(lake) + 1
    work = Work(past, shares, {name: sent(lake.path(name)) for name in _FOLDED_TABLES}, epoch)
    log.info("folding side by side: queues=%d shares=%d", len(weights), len(shares))
    pool = ThreadPoolExecutor(1, thread_name_prefix="shares")
    try:
        running = pool.submit(run, work)
        clocks = {broker: known.as_of_us for broker, known in past.brokers.items()}
        ages = _Ages(Ages(lake, feed), came, lake, clocks, epoch)
        told = running.result()
    finally:
        pool.shutdown(wait=False)  # where ages fail, shares end with their session
    log.info("folded side by side: seconds=%.3f survey=%.3f", time.monotonic() - began, surveyed - began)
    rows = _commit(lake, epoch, told, ages, {f"{FOLDED}:{name}": version for name, version in feed.versions.items()})
    drop_ages(lake, epoch - 1)
    return rows


class _Ages:
    """The ages of ``lake`` laid down for the first of two epochs; :meth:`turn` lays down the newest for the second."""

    def __init__(self, ages: Ages, came: Came, lake: Lake, clocks: Mapping[str, int], epoch: int) -> None:
        self._ages, self._lake, self._clocks, self._epoch = ages, lake, clocks, epoch
        self.rows = 0
        self.staged = lake.stage(AGE_STATE.name)
        ages.refresh(came, self._lay_down)
        self._lay_down()

    def __len__(self) -> int:
        return len(self._ages)

    def turn(self) -> None:
        """Begin the second epoch."""
        self._epoch += 1
        self.staged = self._lake.stage(AGE_STATE.name)
        self._ages.turned()
        self._lay_down()

    def _lay_down(self) -> None:
        rows = self._ages.take(self._clocks, self._epoch, self._epoch)
        if rows is not None:
            self.staged.append(rows)
            self.rows += rows.num_rows


def _commit(lake: Lake, epoch: int, told: Sequence[Told], ages: _Ages, positions: Mapping[str, int]) -> int:
    """Add what was told to gold; how many rows that were."""
    first, second = ([one for one in told if one["epoch"] == each] for each in (epoch, epoch + 1))
    rows: int = ages.rows + sum(one["rows"] for one in first)
    keys: int = len(ages) + sum(one["keys"] for one in first)
    _add(lake, epoch, first, ages, positions)
    laid_down = {name: _laid_down(lake, name, second) for name in _FOLDED_TABLES}
    if not epoch_ends(rows, keys):
        for files in laid_down.values():
            files.drop()
        return rows
    before = ages.rows
    ages.turn()
    _add(lake, epoch + 1, second, ages, positions)
    return rows + ages.rows - before + sum(int(one["rows"]) for one in second)


def _add(lake: Lake, revision: int, told: Sequence[Told], ages: _Ages, positions: Mapping[str, int]) -> None:
    for name in TABLES_IN_ORDER:
        files = ages.staged if name == AGE_STATE.name else _laid_down(lake, name, told)
        lake.add(name, files, app_id=APP_ID, version=revision, positions=positions)


def _laid_down(lake: Lake, name: str, told: Sequence[Told]) -> LaidDown:
    mine = [one for one in told if one["table"] == name]
    adds = [AddAction(one["path"], one["size"], {}, one["changed"], True, one["stats"]) for one in mine]
    return LaidDown(lake.path(name), adds)


# -- what executors do --------------------------------------------------------------------------------------------


def by_executors(session: SparkSession) -> Run:
    """Has the executors of ``session`` do a task for each share."""

    def run(work: Work) -> list[Told]:
        numbers = session.range(0, len(work.shares), 1, len(work.shares))
        # A function of a module with its argument travels to executors by name: they have Sojourn installed.
        told: list[Told] = numbers.mapInArrow(partial(_fold, work), from_arrow_schema(_TOLD)).toArrow().to_pylist()
        return told

    return run


def _fold(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist(lay_down(work, number), schema=_TOLD)


def lay_down(work: Work, number: int) -> list[Told]:
    """Fold a share and lay down its rows; what there is to be told of the files. Raises LakeError."""
    share = Laying(work, number)
    folds = work.past.fold(work.shares[number], share.seconds.passed)
    share.seconds.whole(folds.items())
    share.flush()
    told = share.told()
    share.begin(work.epoch + 1)
    share.seconds.turned()
    share.flush()
    return told + share.told()


class Laying:
    """Lays down the rows of one of ``work``'s shares, epoch by epoch."""

    def __init__(self, work: Work, number: int) -> None:
        self._work, self._number = work, number
        self._finishing = Finishing(work.past.definitions)
        self._clocks = {name: broker.clocks for name, broker in work.past.brokers.items()}
        self.seconds = Seconds(Consumers(), flush=self.flush, ended=lambda: None, alone=False)
        self.begin(work.epoch)

    def begin(self, epoch: int) -> None:
        """Lay down rows of ``epoch`` from now on, whose keys are numbered from the start."""
        self._epoch = epoch
        self._numbers = raw.numbers()
        self._rows = dict.fromkeys(_FOLDED_TABLES, 0)
        self._staged = {
            name: Staged(received(self._work.places[name]), TABLES[name].schema, indexed(TABLES[name]))
            for name in _FOLDED_TABLES
        }

    def flush(self) -> None:
        """Lay down what the folds have passed through since the last time."""
        for name, rows in raw.rows_of(self.seconds.take(), self._numbers, self._clocks).items():
            finished = self._finishing.finished(name, self._apart(rows), self._epoch, self._epoch)
            self._staged[name].append(finished)
            self._rows[name] += finished.num_rows

    def _apart(self, rows: pa.Table) -> pa.Table:
        """``rows`` with keys that no other share gives."""
        for name in ("key", "queue_key"):
            if name in rows.column_names:
                apart = rows.column(name).to_numpy() * len(self._work.shares) + self._number
                rows = rows.set_column(rows.column_names.index(name), name, pa.array(apart))
        return rows

    def told(self) -> list[Told]:
        """End the files of the epoch; what there is to be told of them."""
        return [
            {
                "table": name,
                "epoch": self._epoch,
                "path": add.path,
                "size": add.size,
                "changed": add.modification_time,
                "stats": add.stats,
                "rows": self._rows[name],
                "keys": len(self._numbers[name]),
            }
            for name, file in self._staged.items()
            for add in file.finished()
        ]
