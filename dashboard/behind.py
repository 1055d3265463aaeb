"""Answers that take long, worked out behind the pages: shown as they were until newer ones are there.

However much history a lake has, a page is renewed in the time that the present takes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Any

from lake.errors import SojournError
from lake.visible import visible

log = logging.getLogger(__name__)
#: Answers that are kept, those that were asked for last.
MOST = 200
#: An answer is worked out again after so many times as long as all took together that somebody looks at: however many
#: they are, the rest of the machine is left to others.
REST = 60
#: However long that was, an answer is not older than so many seconds (a reader of history that is asked as often keeps
#: what it holds), as long as it rests for this many times as long as all took.
OLDEST_SECONDS, LEAST_REST = 240.0, 15
#: Somebody looks at what was asked for within so many seconds.
LOOKED_AT_SECONDS = 30.0


@dataclass(slots=True)
class _Known:
    """One answer. ``token``: of which versions of the lake; ``due``: when it may be worked out anew; ``asked``: when it
    was asked for last, and ``first`` (all monotonic); ``took``: seconds."""

    work: Future[Any]
    value: Any = None
    there: bool = False
    token: tuple[Any, ...] = ()
    due: float = 0.0
    asked: float = 0.0
    took: float = 0.0
    first: float = field(default_factory=monotonic)

    def stale(self, token: tuple[Any, ...]) -> bool:
        """Whether it is to be worked out anew: the lake has changed, or it failed; and it has rested."""
        return (self.token != token or not self.there) and monotonic() >= self.due


class Behind:
    """Works out answers one after the other, in a thread of its own, for everybody who looks."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(1, "dashboard-behind")
        self._rested = 0.0  # (monotonic) when all that was worked out so far has rested

    def answer(
        self,
        question: Hashable,
        token: tuple[Any, ...],
        work: Callable[[], Any],
        first_seconds: float,
        *,
        patient: bool = False,
    ) -> Any | None:
        """The newest answer to ``question``, older than ``token`` maybe; None where none was there ``first_seconds``
        after somebody first asked. Raises SojournError where it could not be worked out and there is no older one;
        that, too, is tried again only when it is due.

        Who is ``patient``, having something else to show meanwhile, has a new question worked out only when what was
        worked out before has rested.
        """
        with self._lock:
            known = self._known.get(question)
            if known is None and patient and monotonic() < self._rested:
                return None
            if known is None or (known.work.done() and known.stale(token)):
                known = known or _Known(Future())
                known.token = token
                try:
                    known.work = self._worker.submit(self._run, known, work)
                except RuntimeError:  # the process is ending: its pools take nothing more
                    return known.value
                self._known[question] = known
            known.asked = monotonic()
            self._known.move_to_end(question)
            while len(self._known) > MOST:
                self._known.popitem(last=False)[1].work.cancel()
        if not known.there:
            wait([known.work], max(0.0, known.first + first_seconds - monotonic()))
            if known.work.done() and not known.work.cancelled() and (error := known.work.exception()) is not None:
                raise error
        return known.value

    def _run(self, known: _Known, work: Callable[[], Any]) -> None:
        begun = monotonic()
        try:
            known.value = work()
            known.there = True
        except SojournError as error:
            if not known.there:
                raise
            log.warning("history could not be renewed: %s", visible(str(error)))
        finally:
            with self._lock:
                now = monotonic()
                known.took = now - begun
                known.asked = max(known.asked, begun)
                all_took = sum(one.took for one in self._known.values() if now - one.asked < LOOKED_AT_SECONDS)
                known.due = now + min(REST * all_took, max(OLDEST_SECONDS, LEAST_REST * all_took))
                self._rested = max(self._rested, begun) + REST * known.took
