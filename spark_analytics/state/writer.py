"""Brings `tenant_state`, `queue_state` and `age_state` up to what gold's partials and the samples have come to.

What is written is a cache: lost or half written, the next writer begins a new epoch with a row for every key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from lake.definitions import Definitions
from lake.errors import UserError
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.store import Lake
from spark_analytics.maintenance.region import Region, Value, replace
from spark_analytics.state import raw
from spark_analytics.state.ages import Ages
from spark_analytics.state.consumers import Consumers
from spark_analytics.state.feed import FOLDED, Came, Feed, versions_folded
from spark_analytics.state.finish import Finisher
from spark_analytics.state.present import Present
from spark_analytics.state.seconds import Seconds

APP_ID = "sojourn-state"
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
        #: The versions that what is committed rests on, as far as nothing of them is missing in it.
        self._folded = {} if anew else versions_folded(self._lake, QUEUE_STATE.name)
        self._anew = anew
        self._feed = Feed(root, self._folded)
        self._definitions: Definitions | None = None
        self._present: Present | None = None
        self._finisher: Finisher
        self._revision = last_revision(self._lake)
        self._pressing = True
        self.rows = 0
        self._before_gap: dict[str, int] = {}  # what was told when events began to be missing
        told = Consumers.written(root) if self._folded else Consumers()
        midway = partial(self._flush, midway=True)
        self._seconds = Seconds(told, flush=midway, ended=self._end_epoch)
        self._ages = Ages(self._lake, self._feed)
        self._end_epoch()

    def close(self) -> None:
        """Let go of the folds of levels."""
        if self._present is not None:
            self._present.forget()
        self._present = None

    @property
    def late(self) -> bool:
        """Whether something came too late to be told where it belongs: a step without patience puts it right."""
        return self._present is not None and bool(self._present.late)

    @property
    def correcting(self) -> bool:
        """Whether a step without patience had no time to finish what it began to correct: the next one goes on."""
        return self._present is not None and bool(self._present.correcting)

    @property
    def pressing(self) -> bool:
        """Whether what was told last is trouble, or half of the truth: a backlogged queue, a noisy tenant, what is
        late or missing. What comes then must not wait."""
        return self._pressing or self.late or not self._finisher.complete

    def step(self, *, patient: bool = False, within: float = math.inf) -> bool:
        """Commit what has changed since the last step; whether anything had. Raises LakeError, UserError.

        A step without patience corrects, for about ``within`` seconds, what is told of queues for which something came
        late by more than can be taken back.
        """
        changed = self._step(patient, within)
        while self._feed.more:
            changed = self._step(patient, within) or changed
        return changed

    def _step(self, patient: bool, within: float) -> bool:
        present = self._up_to_date()
        turned, before = self._finisher.refresh(), self._revision
        if turned and not self._finisher.complete:
            self._before_gap = self._seconds.reached()
        elif turned:  # what was told since events were missing lacks its levels
            self.close()
            present = self._up_to_date()
            self._seconds.untold(self._before_gap)
        came = self._feed.look(whole=not present.begun)  # older versions of tables may have lost their files
        patient = patient or self._feed.more
        changed = present.refresh(came, patient=True)
        for name, queue in self._seconds.moved(present.wholes, present.samples.meant()):
            present.distrust(name, queue)
        if not changed and not turned and self._epoch is not None and (patient or not present.late):
            return False
        if not patient and len(present.late) + present.apart > MOST_APART:
            present.refresh(Came())  # so many are folded together
        self._ages.refresh(came, self._flush_ages)
        self._seconds.whole(present.folds)
        self._flush()
        until = time.monotonic() + within
        while not patient and present.late:
            place, second = min(present.late.items(), key=lambda each: (each[0] not in present.correcting, each))
            if not self._correct(present, *place, second, lambda: time.monotonic() > until):
                break
        if turned or self._revisions >= MOST_REVISIONS or epoch_ends(self._written, self._keys()):
            self._end_epoch()
            self._seconds.turned()
            self._flush()
        if self._anew:
            drop_ages(self._lake, before)
            self._anew = False
        return self._revision != before

    def rebuild(self, broker: str, queue: str) -> None:
        """Tell every second of ``queue`` of ``broker`` anew. Raises LakeError, or UserError where there is none."""
        self.step()
        present, before = self._up_to_date(), self._revision
        known = present.brokers.get(broker)
        if known is None or queue not in {name for name, _ in known.whole.fold.state.consumers}:
            raise UserError(
                f"nothing is known of a queue {broker}/{queue}", "name it BROKER/QUEUE, as `queue_health` has them"
            )
        self.rows = 0
        self._ages.again(broker, queue)
        self._correct(present, broker, queue, 0, lambda: False)
        drop_ages(self._lake, before, ("broker", "=", broker), ("queue", "=", queue))

    def _correct(self, present: Present, broker: str, queue: str, second: int, enough: Callable[[], bool]) -> bool:
        done = present.correct(broker, queue, second, enough)
        self._seconds.whole(present.folds)
        self._flush()
        return done

    def _up_to_date(self) -> Present:
        definitions = Definitions.load(self._lake.root)
        if self._present is None or definitions != self._definitions:
            others = self._definitions not in (None, definitions)
            self.close()
            self._definitions = definitions
            self._present = Present(self._feed, definitions, self._seconds)
            self._finisher = Finisher(self._lake.root, definitions)
            self._seconds.begin()
            self._end_epoch()
            if others:
                self._seconds.untold()
        return self._present

    def _end_epoch(self) -> None:
        """Have the next rows begin an epoch, with one for every key there is."""
        self._epoch: int | None = None
        self._numbers = raw.numbers()
        self._ages.turned()
        self._written = self._revisions = 0

    def _keys(self) -> int:
        return sum(map(len, self._numbers.values())) + len(self._ages)

    def _flush(self, *, midway: bool = False) -> None:
        """Commit what the folds have passed through since the last time, and if it is not ``midway``, what ages have
        come to: that rests on all that was read."""
        present = self._present
        assert present is not None
        if not midway and self._finisher.complete and not present.late:  # who takes over has to correct what is late
            self._folded = self._feed.versions
        taken = self._seconds.take()
        if not taken.queues and not midway and self._ages.waiting:
            self._seconds.one_again()  # of ages, too, readers show what `queue_state` has reached
            taken = self._seconds.take()
        rows = raw.rows_of(taken, self._numbers, present.clocks)
        if QUEUE_STATE.name not in rows:
            return  # nothing changed
        self._pressing = raw.troubled(rows[QUEUE_STATE.name])
        self._commit(rows, with_ages=not midway)

    def _flush_ages(self) -> None:
        """Commit ages that wait, in a revision that counts once the next one is there."""
        self._commit({}, with_ages=True)

    def _commit(self, raw_rows: dict[str, pa.Table], *, with_ages: bool) -> None:
        assert self._present is not None
        self._revision += 1
        self._revisions += 1
        epoch = self._epoch = self._epoch or self._revision
        rows: dict[str, pa.Table | None] = {
            name: self._finisher.finished(name, each, epoch, self._revision) for name, each in raw_rows.items()
        }
        if with_ages:
            clocks = {name: fold.as_of_us for name, fold in self._present.wholes.items()}
            rows[AGE_STATE.name] = self._ages.take(clocks, epoch, self._revision)
        positions = {f"{FOLDED}:{name}": version for name, version in self._folded.items()}
        for name in TABLES_IN_ORDER:
            if (finished := rows.get(name)) is not None and finished.num_rows:
                staged = self._lake.stage(name)
                staged.append(finished)
                self._lake.add(name, staged, app_id=APP_ID, version=self._revision, positions=positions)
                self._written += finished.num_rows
                self.rows += finished.num_rows


def last_revision(lake: Lake) -> int:
    """The number of the newest commit to finished state; 0 before there is any."""
    return max((lake.committed(name, APP_ID) or 0 for name in TABLES_IN_ORDER), default=0)


def drop_ages(lake: Lake, until: int, *of: tuple[str, str, Value]) -> None:
    """Let go of ages that were told up to revision ``until``, since all that there are have been told again."""
    if lake.ensure(AGE_STATE.name).file_uris():
        replace(lake, AGE_STATE.name, Region((("revision", "<=", until), *of)), lambda rows: rows.slice(0, 0))


def epoch_ends(rows: int, keys: int) -> bool:
    """Whether an epoch of so many ``rows`` about so many ``keys`` is too long for a cold reader."""
    return rows > max(LEAST_ROWS, ROWS_A_KEY * keys)
