"""What groups committed lately: a bounded window for each partition, kept in arrays, and what it says of them.

Also the counters that follow from it. What a group has committed is no counter: it falls when the group is rewound. So
advances are counted, from the first reading on, and a message that is read again is acknowledged again.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from collectors.kafka.settings import StatusSettings
from collectors.kafka.status import Observation, Progress, Status, Window, judge, with_facts, worst

log = logging.getLogger(__name__)

_UNKNOWN = -1
_NAMED = 5  # partitions that a log line names
#: Partitions are judged so often in an interval, not all in the same cycle; one that rewinds, at once.
_JUDGED, _PHASES = 5, 8


class Judgement(NamedTuple):
    """How a group fares on a topic (None: too early to say), and what it has acknowledged and lost since the first
    reading; what was found lost then is counted."""

    status: Status | None
    acked: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Totals:
    acked: int = 0
    lost: int = 0


@dataclass(slots=True)
class PartitionHistory:
    """One partition's window: offset, milliseconds and lag of each observation, one after the other."""

    since: int
    due: int
    status: Status = "OK"
    caught_up_at: int = _UNKNOWN
    lost_to: int = 0  # losses are counted below this offset
    values: array[int] = field(default_factory=lambda: array("q"))

    def count(self, seen: Progress, totals: _Totals) -> None:
        """Add to ``totals`` what is new; before :meth:`see`."""
        if self.values and seen.offset > self.values[-3] >= 0:
            totals.acked += seen.offset - self.values[-3]
        if seen.overtaken:
            first = seen.offset + seen.overtaken
            totals.lost += max(0, first - max(seen.offset, self.lost_to))
            self.lost_to = max(self.lost_to, first)

    def see(self, offset: int, lag: int, now: int, *, alive: bool, interval: int, size: int) -> bool:
        """Note what is committed at ``now`` (milliseconds, on a clock that is never set); whether that is a rewind.
        ``alive``: the group has members.

        Observations are ``interval`` apart: a newer one replaces the last until that much time has passed since the
        one before it; but a rewind is always kept.
        """
        if lag == 0:
            self.caught_up_at = now
        values = self.values
        count = len(values)
        if not count:
            values.extend((offset, now, lag))
            return False
        last = values[count - 3]
        if offset == last:
            if not alive or now - values[count - 2] < interval:
                return False
            values.extend((offset, now, lag))
        elif offset > last and count >= 6 and now - values[count - 5] < interval:
            values[count - 3], values[count - 2], values[count - 1] = offset, now, lag
        else:
            values.extend((offset, now, lag))
        if len(values) > 3 * size:
            del values[:3]
        return offset < last

    def window(self) -> Window:
        """The window, in seconds."""
        values = self.values
        seen = [Observation(values[at], values[at + 1] / 1000, values[at + 2]) for at in range(0, len(values), 3)]
        return Window(seen, None if self.caught_up_at == _UNKNOWN else self.caught_up_at / 1000)


class History:
    """The windows of all groups. Groups and topics that are not seen in a cycle are forgotten after it."""

    def __init__(self, settings: StatusSettings) -> None:
        self._settings = settings
        self._windows: dict[tuple[str, str], dict[int, PartitionHistory]] = {}
        self._totals: dict[tuple[str, str], _Totals] = {}
        self._said: dict[tuple[str, str], Status] = {}

    def forget(self) -> None:
        """Offsets mean other messages now; what was counted stays counted."""
        self._windows.clear()

    def keep(self, seen: set[tuple[str, str]]) -> None:
        """Forget all other (group, topic) pairs."""
        for gone in self._totals.keys() - seen:
            del self._totals[gone]
            self._windows.pop(gone, None)
            self._said.pop(gone, None)

    def judge(self, group: str, topic: str, progress: Mapping[int, Progress], now: int, *, alive: bool) -> Judgement:
        """Note how far ``group`` is on ``topic`` (partition → progress; those that are not known now are left out) at
        ``now``, in milliseconds on a clock that is never set.

        The status is the worst partition's; None until the group has been watched for half a window, unless the log
        itself says that it is LOST or BLOCKED.
        """
        settings = self._settings
        interval, size = round(settings.interval * 1000), settings.window
        patience, step = settings.patience, interval // _JUDGED
        windows = self._windows.setdefault((group, topic), {})
        totals = self._totals.setdefault((group, topic), _Totals())
        found: dict[Status, list[int]] = {}
        watched = False
        for partition, seen in progress.items():
            history = windows.get(partition)
            if history is None:
                due = now + patience // 2 + step * (partition % _PHASES) // _PHASES
                history = windows[partition] = PartitionHistory(since=now, due=due)
            history.count(seen, totals)
            # A group that retention has overtaken is not up to date, though nothing may be left for it.
            behind = seen.lag + seen.overtaken
            rewound = history.see(seen.offset, behind, now, alive=alive, interval=interval, size=size)
            status: Status | None = None
            if now - history.since >= patience / 2:
                if seen.lag <= settings.allowed_lag:
                    history.status = "OK"
                elif now >= history.due or rewound:
                    history.due = now + step
                    history.status = judge(
                        history.window(), seen.lag, now / 1000, patience=patience / 1000, allowed=settings.allowed_lag
                    )
                status = history.status
            if seen.overtaken or seen.held:
                status = with_facts(status, seen)
            if status is not None:
                watched = True
                if status != "OK":
                    found.setdefault(status, []).append(partition)
        if not watched:
            return Judgement(None, totals.acked, totals.lost)
        status = worst(["OK", *found])
        self._say(group, topic, status, found.get(status, []))
        return Judgement(status, totals.acked, totals.lost)

    def _say(self, group: str, topic: str, status: Status, partitions: list[int]) -> None:
        """Log a change, with the partitions that are to blame."""
        before = self._said.get((group, topic), "OK")
        if status == before:
            return
        self._said[group, topic] = status
        if status == "OK":
            log.info("group %s on topic %s: OK again", group, topic)
            return
        named = ", ".join(map(str, sorted(partitions)[:_NAMED])) + (" …" if len(partitions) > _NAMED else "")
        log.info("group %s on topic %s: %s (partitions %s)", group, topic, status, named)
