"""What groups committed lately: a bounded window for each partition, kept in arrays, and what it says of them."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from collectors.kafka.settings import StatusSettings
from collectors.kafka.status import Observation, Status, Window, judge, worst

log = logging.getLogger(__name__)

_UNKNOWN = -1
_NAMED = 5  # partitions that a log line names
#: Partitions are judged so often in an interval, not all in the same cycle; one that rewinds, at once.
_JUDGED, _PHASES = 5, 8


@dataclass(slots=True)
class PartitionHistory:
    """One partition's window: offset, milliseconds and lag of each observation, one after the other."""

    since: int
    due: int
    status: Status = "OK"
    caught_up_at: int = _UNKNOWN
    values: array[int] = field(default_factory=lambda: array("q"))

    def see(self, offset: int, lag: int, now: int, *, alive: bool, interval: int, size: int) -> bool:
        """Note what is committed at ``now`` (milliseconds); whether that is a rewind. ``alive``: the group has members.

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
        self._said: dict[tuple[str, str], Status] = {}

    def forget(self) -> None:
        """Offsets mean other messages now."""
        self._windows.clear()

    def keep(self, seen: set[tuple[str, str]]) -> None:
        """Forget all other (group, topic) pairs."""
        for gone in self._windows.keys() - seen:
            del self._windows[gone]
            self._said.pop(gone, None)

    def judge(
        self, group: str, topic: str, offsets: Mapping[int, tuple[int, int]], now: int, *, alive: bool
    ) -> Status | None:
        """Note what ``group`` has committed on ``topic`` (partition → offset and lag; those that are not known now
        are left out) at ``now``, in milliseconds.

        Returns the worst partition's status; None until the group has been watched for half a window.
        """
        settings = self._settings
        interval, size = round(settings.interval * 1000), settings.window
        patience, step = interval * size, interval // _JUDGED
        windows = self._windows.setdefault((group, topic), {})
        found: dict[Status, list[int]] = {}
        watched = False
        for partition, (offset, lag) in offsets.items():
            history = windows.get(partition)
            if history is None:
                due = now + patience // 2 + step * (partition % _PHASES) // _PHASES
                history = windows[partition] = PartitionHistory(since=now, due=due)
            rewound = history.see(offset, lag, now, alive=alive, interval=interval, size=size)
            if now - history.since < patience / 2:
                continue
            watched = True
            if lag <= settings.allowed_lag:
                history.status = "OK"
                continue
            if now >= history.due or rewound:
                history.due = now + step
                history.status = judge(
                    history.window(), lag, now / 1000, patience=patience / 1000, allowed=settings.allowed_lag
                )
            found.setdefault(history.status, []).append(partition)
        if not watched:
            return None
        status = worst(["OK", *found])
        self._say(group, topic, status, found.get(status, []))
        return status

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
