"""Changing a setting for the time of a lease: validate, apply, verify the effect, revert; the same for all actuators.

What is about to be changed is put down first, with what stood there. Only what is still as we left it is put back: a
setting that somebody else has changed meanwhile is his, and left alone, which is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from actuators.base import Actuator, Demand, Refused, Unverified
from actuators.undo_log import Held, UndoLog
from lake.errors import SojournError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a setting: ``applied``, ``reverted``, ``expired`` (its server ended it) or ``yielded`` (somebody
    else has changed it)."""

    kind: str
    place: str
    before: str | None
    after: str | None
    said: str
    slows_consumers: bool = False

    @property
    def facts(self) -> dict[str, str]:
        """For the journal."""
        shown = {"setting": self.place, "setting_before": self.before, "setting_after": self.after}
        whom = {"slows": "consumers"} if self.slows_consumers else {}  # as lake.why asks for it
        return {name: _short(value) for name, value in shown.items()} | {"effect": self.said} | whom


class Leased:
    """The settings that one actuator holds."""

    def __init__(self, name: str, actuator: Actuator, undo_log: UndoLog, broker: str | None = None) -> None:
        self.name, self._actuator, self._undo_log, self._broker = name, actuator, undo_log, broker

    def validate(self, demand: Demand) -> tuple[str, str]:
        """Its place and value there. Refused where it cannot hold; asks the server nothing."""
        demand.check()
        if self._broker is not None and demand.broker != self._broker:
            raise Refused(f"{self.name} acts on queues of {self._broker!r}, and this one is of {demand.broker!r}")
        return self._actuator.place(demand), self._actuator.value(demand)

    def apply(self, demand: Demand, seconds: float) -> Outcome:
        """Make ``demand`` hold for ``seconds``, or go on to; it has been read back when this returns.

        Refused where it cannot hold, or the setting is somebody else's; SojournError where the server fails. What may
        have been written then is overdue, and :meth:`reap` puts it back.
        """
        place, value = self.validate(demand)
        with self._undo_log.alone(self.name):
            until_now = self._undo_log.get(self.name, place)
            there = self._actuator.read(place)
            before = self._before(until_now, place, there)
            self._actuator.check(before, value)
            previous = until_now.after if until_now is not None and until_now.after != value else None
            held = Held(self.name, place, before, value, previous, True, self._undo_log.now() + seconds, demand)
            self._undo_log.put(held)
            try:
                if there != value or self._actuator.ends_by_itself:
                    self._actuator.write(place, value, seconds)
                read = self._actuator.read(place)
                if read != value:
                    raise Unverified(f"{self.name} wrote {_short(value)} to {place} and reads {_short(read)}")
            except Refused:
                # Nothing was changed: what held until now holds on, to the end of its lease.
                self._undo_log.drop(held) if until_now is None else self._undo_log.put(until_now)
                raise
            except SojournError:
                self._undo_log.put(replace(held, deadline=0.0))
                raise
            self._undo_log.put(replace(held, previous=None, pending=False))
        said = "read back as it was written"
        return Outcome("applied", place, before, value, said, self._actuator.slows_consumers)

    def _before(self, held: Held | None, place: str, there: str | None) -> str | None:
        """What is to be put back at the end. Refused, and no longer held, where the setting is somebody else's."""
        if held is None:
            return there
        lost = there is None and self._actuator.ends_by_itself  # a server without memory started again
        if there in (held.after, held.previous) or lost or (held.pending and there == held.before):
            return held.before
        self._undo_log.drop(held)
        raise Refused(f"somebody else has set {place} to {_short(there)}: it is left as it is")

    def renew(self, place: str, seconds: float) -> None:
        """What is held there lasts ``seconds`` from now; whoever asks has just seen it stand. Writes nothing."""
        with self._undo_log.alone(self.name):
            held = self._undo_log.get(self.name, place)
            if held is not None:
                self._undo_log.put(replace(held, deadline=self._undo_log.now() + seconds))

    def end(self, place: str) -> Outcome | None:
        """Put back what was there before; None where nothing is held. SojournError where the server fails."""
        with self._undo_log.alone(self.name):
            held = self._undo_log.get(self.name, place)
            return None if held is None else self._ended(held)

    def _ended(self, held: Held) -> Outcome:
        there = self._actuator.read(held.place)
        if there in (held.after, held.previous) and there is not None:
            self._actuator.write(held.place, held.before, 0.0)
            read = self._actuator.read(held.place)
            if read != held.before:
                raise Unverified(f"{self.name} put {_short(held.before)} back at {held.place} and reads {_short(read)}")
            kind, said = "reverted", f"{_short(held.before)} stands again"
        elif there == held.before:
            kind, said = "reverted", f"{_short(held.before)} stood there already"
        elif there is None and self._actuator.ends_by_itself:
            kind, said = "expired", "its server had ended it"
        else:
            kind, said = "yielded", f"somebody else has set it to {_short(there)} meanwhile: it is left as it is"
        self._undo_log.drop(held)
        return Outcome(kind, held.place, held.after, there if kind == "yielded" else held.before, said)

    def look(self) -> None:
        """Give up, and leave news of, what somebody else has changed; SojournError where the server fails."""
        for held in self._undo_log.held(self.name):
            with self._undo_log.alone(self.name):
                now = self._undo_log.get(self.name, held.place)
                if now is None or now.pending:
                    continue
                there = self._actuator.read(held.place)
                if there not in (now.after, now.previous) and not (there is None and self._actuator.ends_by_itself):
                    self._undo_log.drop(now)
                    said = f"somebody else has set {held.place} to {_short(there)}: it is left as it is"
                    self._undo_log.tell(now, "yielded", said)

    def overdue(self) -> list[Held]:
        """What is held beyond its lease."""
        now = self._undo_log.now()
        return [held for held in self._undo_log.held(self.name) if held.deadline <= now]

    def reap(self) -> tuple[list[Outcome], list[str]]:
        """End what its lease outlived, and leave news of it; what was ended, and what could not be (tried again)."""
        outcomes, failed = [], []
        for held in self.overdue():
            try:
                with self._undo_log.alone(self.name):
                    now = self._undo_log.get(self.name, held.place)
                    if now is None or now.deadline > self._undo_log.now():
                        continue  # it was renewed, or ended, meanwhile
                    outcome = self._ended(now)
                    outcomes.append(outcome)
                    self._undo_log.tell(now, outcome.kind, outcome.said)
            except SojournError as error:
                failed.append(f"{self.name}: {held.place} cannot be put back: {error}")
        return outcomes, failed


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= 200 else f"{value[:199]}…"
