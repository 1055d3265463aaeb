"""Appending to a Delta table in an object store: a commit is a put that the store refuses if its version is taken.

Who is cut off behind a put does not know whether it was done, and a client that repeats it is told that the version is
taken, though it took it itself. So a commit that failed, however, is looked for in the log before it is tried again.

A commit of ours is one request (:class:`RemoteAppender`): nobody asks what the newest version is, the store's refusal
tells that there is a newer one. deltalake's own (:func:`append`) lists and reads the log each time; it is left to
stores and tables that ask for more.

Source: Delta transaction log protocol; RFC 9110, 13.1.2 (`If-None-Match: *`), which S3, Azure and Google honour.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lake.appending import Appender, entry_of
from lake.creating import Creator
from lake.errors import UserError, first_line
from lake.listing import refresh
from lake.log import log_entry
from lake.remote import Remote

log = logging.getLogger(__name__)

#: How often a commit is tried while others commit; and how often while the store does not answer.
MOST_TRIES, MOST_FAULTS = 20, 5
#: Nobody waits for a checkpoint: :mod:`lake.checkpoints` writes it.
_NOTHING_BESIDE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
#: The longest pause (seconds) before the next try.
_LONGEST_PAUSE = 0.5


def has_reached(table: DeltaTable, positions: Mapping[str, int]) -> bool:
    """Whether there are ``positions``, and the version of ``table`` that is at hand has all of them."""
    return bool(positions) and all(
        (done := table.transaction_version(key)) is not None and done >= wanted for key, wanted in positions.items()
    )


def append(
    table: DeltaTable,
    place: Remote,
    adds: Sequence[AddAction],
    positions: Mapping[str, int],
    partition_by: Sequence[str] = (),
) -> bool:
    """Add files to ``table``, at ``place``, in one commit that reaches ``positions``; False if others reached them.

    True tells that the files are in the table; an error – of deltalake, or OSError – that nobody can say: to try again
    with the same ``positions`` doubles nothing. ``table`` is at the newest version that was seen afterwards.
    """
    mine = {one.path for one in adds}
    asked: int | None = None  # the first version that may be ours without our knowing
    for attempt in range(MOST_TRIES):
        if has_reached(table, positions):
            return False
        try:
            _commit(table, adds, positions, partition_by)
            return True
        except (DeltaError, OSError) as error:
            failed = error
        asked = table.version() + 1 if asked is None else asked
        log.debug("%s: %s", place, first_line(failed))
        _pause(attempt)
        refresh(table)
        if _made(place, mine, asked, table.version()):
            return True
        if not isinstance(failed, CommitFailedError):
            raise failed
    raise failed


class RemoteAppender(Appender):
    """Appends to a table in an object store by entries of our own. Belongs to one thread."""

    def __init__(self, table: DeltaTable, place: Remote, creator: Creator, looked: float) -> None:
        super().__init__(table, place, looked)
        self._place = place
        self._creator = creator
        self._marks: set[str] = set()

    @property
    def current(self) -> bool:
        """As :class:`Appender` has it, without a look: entries younger than the last one are not cleaned up."""
        return self._trusted

    def commit(self, adds: Sequence[AddAction], positions: Mapping[str, int]) -> bool:
        """Add files in one commit that reaches ``positions``; False if they were reached before, or the table is not
        :attr:`fit` any more.

        An OSError tells that nobody can say whether it was made: with the same ``positions`` it may be tried again.
        """
        mark = str(uuid4())
        entry = entry_of(adds, positions, mark)
        faults = 0
        for attempt in range(MOST_TRIES):
            if self.reached(positions) or not self.fit:
                return False
            looked, failed = time.monotonic(), OSError("others commit all the time")
            try:
                if self._creator.put(log_entry(self._place, self.version + 1).key, entry):
                    self._advance(entry, positions)
                    self._looked = looked
                    return True
            except OSError as error:
                failed, faults = error, faults + 1
            log.debug("%s: %s", self._place, first_line(failed))
            _pause(attempt)
            self._marks.clear()
            self.follow()
            if mark in self._marks:
                return True
            if faults == MOST_FAULTS:
                break
        raise failed

    def _take(self, action: dict[str, Any]) -> None:
        super()._take(action)
        if mark := action.get("commitInfo", {}).get("txnId"):
            self._marks.add(mark)


@contextmanager
def lease(table: DeltaTable, application: str, seconds: float) -> Iterator[None]:
    """Hold what ``application`` names in the log of ``table``, for ``seconds`` at most; UserError if another holds it.

    It is a number in the log: the time at which it was taken, in milliseconds, twice, plus one until it is given back.
    Clocks may differ by less than ``seconds``.
    """
    for _ in range(MOST_TRIES):
        now = time.time_ns() // 1_000_000
        held = table.transaction_version(application) or 0
        if held % 2 and held // 2 > now - seconds * 1000:
            raise UserError(f"{application} is at work elsewhere", "it is for one at a time")
        taken = max(2 * now, held + 1) | 1
        try:
            _commit(table, [], {application: taken})
            break
        except CommitFailedError:
            refresh(table)
    else:
        raise UserError(f"{application} is deferred: others commit all the time", "it is tried again later")
    try:
        yield
    finally:
        for _ in range(MOST_TRIES):
            refresh(table)
            if (table.transaction_version(application) or 0) != taken:
                break  # somebody has taken it since, who found it too old
            try:
                _commit(table, [], {application: taken + 1})
                break
            except CommitFailedError:
                continue


def _commit(
    table: DeltaTable, adds: Sequence[AddAction], positions: Mapping[str, int], partition_by: Sequence[str] = ()
) -> None:
    """Commit as the very next version, or not at all."""
    properties = CommitProperties(
        app_transactions=[Transaction(key, value) for key, value in positions.items()], max_commit_retries=0
    )
    table.create_write_transaction(
        list(adds),
        "append",
        table.schema(),
        list(partition_by) or None,
        commit_properties=properties,
        post_commithook_properties=_NOTHING_BESIDE,
    )


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))


def _made(place: Remote, mine: Collection[str], first: int, last: int) -> bool:
    """Whether one of the versions from ``first`` to ``last`` added the files ``mine``."""
    if not mine:
        return False
    for version in range(first, last + 1):
        try:
            entry = log_entry(place, version).read_text(encoding="utf-8")
        except FileNotFoundError:  # cleaned up: of a commit so old nobody waits for the answer
            continue
        if any(f'"{path}"' in entry for path in mine):
            return True
    return False
