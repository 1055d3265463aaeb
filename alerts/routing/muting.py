"""Which firing alerts are not told, and why: inhibited, silenced, acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.inhibit import Inhibition, inhibited
from alerts.routing.silence import Silence


@dataclass(frozen=True, slots=True)
class Muting:
    """Why one alert is held back. ``acknowledged`` alone lets reminders through."""

    silenced_by: tuple[Silence, ...] = ()
    inhibited_by: tuple[str, ...] = ()
    acknowledged: Acknowledgement | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing of it is told, reminders included."""
        return bool(self.silenced_by or self.inhibited_by)

    @property
    def why(self) -> str:
        """For people, in a line."""
        told = [f"silenced by {one.created_by} ({one.comment or 'no comment'}), {one.id}" for one in self.silenced_by]
        if self.inhibited_by:
            more = f" and {len(self.inhibited_by) - 1} more" if len(self.inhibited_by) > 1 else ""
            told.append(f"inhibited by {self.inhibited_by[0]}{more}")
        if self.acknowledged is not None:
            told.append(f"acknowledged by {self.acknowledged.by} ({self.acknowledged.comment or 'no comment'})")
        return "; ".join(told)


def muting(
    firing: Mapping[str, Mapping[str, str]],
    silences: Sequence[Silence],
    inhibitions: Sequence[Inhibition],
    acknowledgements: Mapping[str, Acknowledgement],
    now: datetime,
) -> dict[str, Muting]:
    """By fingerprint, what holds back which of the ``firing`` alerts (fingerprint → labels) at ``now``."""
    active = [silence for silence in silences if silence.starts_at <= now < silence.ends_at]
    inhibitors = inhibited(firing, inhibitions)
    found = {}
    for fingerprint, labels in firing.items() if active else ():
        by = tuple(silence for silence in active if silence.mutes(labels, now))
        if by:
            found[fingerprint] = Muting(by)
    for fingerprint in {*inhibitors, *(acknowledgements.keys() & firing.keys())}:
        silenced = found[fingerprint].silenced_by if fingerprint in found else ()
        found[fingerprint] = Muting(silenced, inhibitors.get(fingerprint, ()), acknowledgements.get(fingerprint))
    return found


def next_change(silences: Sequence[Silence], now: datetime) -> datetime | None:
    """When one of ``silences`` next begins or ends."""
    return min((at for one in silences for at in (one.starts_at, one.ends_at) if at > now), default=None)
