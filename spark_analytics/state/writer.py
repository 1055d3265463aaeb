"""Brings `tenant_state`, `queue_state` and `age_state` up to what gold's partials and the samples have come to.

What is written is a cache: lost or half written, the next writer begins a new epoch with a row for every key.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lake.definitions import Definitions
from lake.errors import UserError
from lake.store import Lake
from lake.tables import AGE_STATE, QUEUE_STATE, TENANT_STATE
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.present import FED, Present
from spark_analytics.state import raw
from spark_analytics.state.ages import FED as AGES_FED
from spark_analytics.state.ages import POSITION, Ages
from spark_analytics.state.consumers import Consumers
from spark_analytics.state.finish import Finisher
from spark_analytics.state.seconds import Seconds

log = logging.getLogger(__name__)

APP_ID = "sojourn-state"
#: Under these names versions count as folded. Rows of before history was read from them were told under another.
FOLDED = f"{APP_ID}:history"
#: So many queues are folded apart at most; where what is late is about more, all are folded anew.
MOST_APART = 16
#: In this order: who has read a revision of the last one finds it in the others.
TABLES_IN_ORDER = (AGE_STATE.name, TENANT_STATE.name, QUEUE_STATE.name)
#: An epoch ends after so many revisions, or when it has so many rows for each key: a cold reader reads one epoch.
MOST_REVISIONS = 200
ROWS_A_KEY = 3
LEAST_ROWS = 2000


class Writer:
    """Writes the finished state of the lake at ``root``. One at a time; belongs to one thread.

    ``anew``: tell every second of history again, whatever was told of it before.
    """

    def __init__(self, root: Path, *, anew: bool = False) -> None:
        self._lake = Lake(root)
        self._seen = {} if anew else _versions_folded(self._lake)
        self._ages_anew = anew
        anew = anew or not self._seen
        self._definitions: Definitions | None = None
        self._present: Present | None = None
        self._finisher: Finisher | None = None
        self._ages: Ages | None = None
        self._revision = last_revision(self._lake)
        self.rows = 0
        self._before_gap: dict[str, int] = {}  # what was told when events began to be missing
        told = Consumers() if anew else Consumers.written(root)
        self._seconds = Seconds(told, flush=self._flush, ended=self._end_epoch)
        self._end_epoch()

    def close(self) -> None:
        """Let go of what is held."""
        if self._present is not None:
            self._present.forget()
        self._present = self._finisher = self._ages = None

    @property
    def late(self) -> bool:
        """Whether something came too late to be told where it belongs: a step without patience puts it right."""
        return self._present is not None and bool(self._present.late)

    @property
    def mending(self) -> bool:
        """Whether a step without patience had no time to finish what it began to correct: the next one goes on."""
        return self._present is not None and bool(self._present.mending)

    def step(self, *, patient: bool = False, within: float = math.inf) -> bool:
        """Commit what has changed since the last step; whether anything had. Raises LakeError, UserError.

        A step without patience corrects, for about ``within`` seconds, what is told of queues for which something came
        late by more than can be taken back.
        """
        present, finisher = self._up_to_date()
        turned, before = finisher.refresh(), self._revision
        if turned and not finisher.complete:
            self._before_gap = self._seconds.reached()
        elif turned:  # what was told since events were missing lacks its levels
            self.close()
            present, finisher = self._up_to_date()
            self._seconds.untold(self._before_gap)
        came = present.refresh(patient=True, watcher=self._seconds)
        for broker, queue in self._seconds.moved(present.folds, present.samples.meant()):
            present.distrust(broker, queue)
        if not came and not turned and self._epoch is not None and (patient or not present.late):
            return False
        if not patient and len(present.late) + len(present.apart) > MOST_APART:
            present.refresh(watcher=self._seconds)  # so many are folded together
        assert self._ages is not None
        self._ages.refresh(present.came, self._flush_ages)
        self._seconds.whole(self._folds(present))
        self._flush(with_ages=True)
        until = time.monotonic() + within
        while not patient and present.late:
            (broker, queue), second = min(present.late.items(), key=lambda each: (each[0] not in present.mending, each))
            if not self._correct(present, broker, queue, second, lambda: time.monotonic() > until):
                break
        if turned or self._revisions >= MOST_REVISIONS or epoch_ends(self._written, self._keys()):
            self._end_epoch()
            self._seconds.turned()
            self._flush(with_ages=True)
        return self._revision != before

    def rebuild(self, broker: str, queue: str) -> None:
        """Tell every second of ``queue`` of ``broker`` anew. Raises LakeError, or UserError where there is none."""
        self.step()
        present, _ = self._up_to_date()
        whole = present.folds.get(broker)
        if whole is None or queue not in {name for name, _ in whole.state.consumers}:
            raise UserError(
                f"nothing is known of a queue {broker}/{queue}", "name it BROKER/QUEUE, as `queue_health` has them"
            )
        self.rows = 0
        assert self._ages is not None
        self._ages.again(broker, queue)
        self._flush_ages()
        self._correct(present, broker, queue, 0, lambda: False)

    def _correct(self, present: Present, broker: str, queue: str, second: int, enough: Callable[[], bool]) -> bool:
        done = present.correct(broker, queue, second, self._seconds, enough)
        self._seconds.whole(self._folds(present))
        self._flush()
        return done

    def _folds(self, present: Present) -> list[tuple[str, Fold]]:
        return [*present.folds.items(), *present.apart.folds()]

    def _up_to_date(self) -> tuple[Present, Finisher]:
        definitions = Definitions.load(self._lake.root)
        if self._present is None or self._finisher is None or definitions != self._definitions:
            others = self._definitions not in (None, definitions)
            self.close()
            self._definitions = definitions
            self._present = Present(self._lake.root, definitions, self._seen, AGES_FED)
            self._finisher = Finisher(self._lake.root, definitions)
            self._begin()
            self._ages = Ages(self._lake.root, anew=self._ages_anew)
            self._ages_anew = False
            if others:
                self._seconds.untold()
        return self._present, self._finisher

    def _begin(self) -> None:
        """Have the next rows begin an epoch, with one for every key there is."""
        self._seconds.begin()
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._epoch: int | None = None
        self._numbers = raw.numbers()
        if self._ages is not None:
            self._ages.turned()
        self._written = self._revisions = 0

    def _keys(self) -> int:
        return sum(map(len, self._numbers.values())) + (0 if self._ages is None else len(self._ages))

    def _flush(self, *, with_ages: bool = False) -> None:
        """Commit what the folds have passed through since the last time."""
        present = self._present
        assert present is not None
        tenants, queues = self._seconds.take()
        if not queues and with_ages and self._ages is not None and self._ages.waiting:
            self._seconds.one_again()  # of ages, too, readers show what `queue_state` has reached
            tenants, queues = self._seconds.take()
        keys, queue_keys = (self._numbers[name] for name in (TENANT_STATE.name, QUEUE_STATE.name))
        rows = {QUEUE_STATE.name: raw.queues(queues, queue_keys, present.clocks)}
        if rows[QUEUE_STATE.name] is None:
            return  # nothing changed
        rows[TENANT_STATE.name] = raw.tenants(tenants, keys, queue_keys)
        self._commit(rows, with_ages=with_ages)

    def _flush_ages(self) -> None:
        """Commit ages that wait, in a revision that counts once the next one is there."""
        self._commit({}, with_ages=True)

    def _commit(self, rows: dict[str, pa.Table | None], *, with_ages: bool) -> None:
        assert self._present is not None and self._finisher is not None and self._ages is not None
        self._revision += 1
        self._revisions += 1
        self._epoch = self._epoch or self._revision
        if with_ages:
            clocks = {broker: fold.as_of_us for broker, fold in self._present.folds.items()}
            rows[AGE_STATE.name] = self._ages.take(clocks, self._epoch, self._revision)
        for name in TABLES_IN_ORDER:
            raw_rows = rows.get(name)
            if raw_rows is None or raw_rows.num_rows == 0:
                continue
            ages = name == AGE_STATE.name
            finished = raw_rows if ages else self._finisher.finished(name, raw_rows, self._epoch, self._revision)
            staged = self._lake.stage(name)
            staged.append(finished)
            if self._finisher.complete and not self._present.late:  # who takes over after a crash has to correct it
                self._seen = self._present.seen
            positions = {f"{FOLDED}:{fed}": version for fed, version in self._seen.items()}
            if ages:
                positions = {f"{POSITION}:{fed}": version for fed, version in self._ages.seen.items()}
            self._lake.add(name, staged, app_id=APP_ID, version=self._revision, positions=positions)
            self._written += finished.num_rows
            self.rows += finished.num_rows


def last_revision(lake: Lake) -> int:
    """The number of the newest commit to finished state; 0 before there is any."""
    return max((lake.committed(name, APP_ID) or 0 for name in TABLES_IN_ORDER), default=0)


def epoch_ends(rows: int, keys: int) -> bool:
    """Whether an epoch of so many ``rows`` about so many ``keys`` is too long for a cold reader."""
    return rows > max(LEAST_ROWS, ROWS_A_KEY * keys)


def _versions_folded(lake: Lake) -> dict[str, int]:
    """The versions of the tables that what is committed rests on."""
    known = {name: lake.committed(QUEUE_STATE.name, f"{FOLDED}:{name}") for name in FED}
    return {name: version for name, version in known.items() if version is not None}
