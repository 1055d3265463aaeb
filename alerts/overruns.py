"""Rules whose query went beyond its limits: each time it does, it is tried again later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lake.worker.worker import Overrun
from sojourn.client.backoff import doubled

#: How long a rule rests after its first overrun; twice as long after each further one, up to the longest.
FIRST_REST = timedelta(seconds=10)
LONGEST_REST = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Rest:
    times: int
    until: datetime
    why: str


class Overruns:
    """Which rules rest, by their key. One query that gets through ends a rule's bad reputation."""

    def __init__(self) -> None:
        self._rests: dict[tuple[str, str], _Rest] = {}

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._rests

    def check(self, key: tuple[str, str], now: datetime) -> None:
        """Raise the last Overrun again if the rule rests at ``now``."""
        rest = self._rests.get(key)
        if rest is not None and now < rest.until:
            raise Overrun(rest.why)

    def note(self, key: tuple[str, str], error: Overrun, now: datetime) -> Overrun:
        """Remember that the rule overran at ``now``; the error that says when it is tried again."""
        times = self._rests[key].times + 1 if key in self._rests else 1
        until = now + doubled(times, FIRST_REST, LONGEST_REST)
        why = f"{error.what}; tried again after {until:%H:%M:%S} UTC"
        self._rests[key] = _Rest(times, until, why)
        return Overrun(why)

    def forgive(self, key: tuple[str, str]) -> None:
        """The rule's query got through."""
        self._rests.pop(key, None)
