"""Where a group begins on a partition on which it has committed nothing: its consumers know, Kafka does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from collectors.kafka.reading import GroupReading, Place, matches


class Beginnings:
    """Follows ``uncommitted`` (glob of groups → ``auto.offset.reset``; the first that matches, else unknown).

    ``earliest`` is the log's first offset. ``latest`` is where the log ended when the group was first seen without a
    commit: what has come since waits for it.
    """

    def __init__(self, uncommitted: Mapping[str, str]) -> None:
        self._uncommitted = uncommitted
        self._ended: dict[str, dict[Place, int]] = {}

    def forget(self) -> None:
        """Offsets mean other messages now."""
        self._ended.clear()

    def see(
        self,
        partitions: Mapping[str, tuple[int, ...]],
        groups: Iterable[GroupReading],
        ends: Mapping[Place, int | str],
        first_offsets: Callable[[Iterable[Place]], Mapping[Place, int | str]],
    ) -> dict[str, dict[Place, int]]:
        """Group → partition → where it begins; a partition on which that is not known is left out."""
        if not self._uncommitted:
            return {}
        found: dict[str, dict[Place, int]] = defaultdict(dict)
        ended: dict[str, dict[Place, int]] = {}
        earliest: dict[str, list[Place]] = {}
        for group in groups:
            choice = self._choice(group.name)
            if choice == "earliest":
                earliest[group.name] = list(_uncommitted(group, partitions))
            elif choice == "latest":
                known = self._ended.get(group.name, {})
                if group.failed is None:
                    told = {place: known.get(place, ends.get(place)) for place in _uncommitted(group, partitions)}
                    known = found[group.name] = {place: end for place, end in told.items() if isinstance(end, int)}
                ended[group.name] = known
        self._ended = ended
        starts = first_offsets({place for places in earliest.values() for place in places}) if earliest else {}
        for name, places in earliest.items():
            for place in places:
                start = starts.get(place)
                if isinstance(start, int):
                    found[name][place] = start
        return dict(found)

    def _choice(self, group: str) -> str:
        return next((choice for glob, choice in self._uncommitted.items() if matches(group, (glob,))), "unknown")


def _uncommitted(group: GroupReading, partitions: Mapping[str, tuple[int, ...]]) -> Iterator[Place]:
    if group.failed is None:
        for topic, offsets in group.committed.items():
            for partition in partitions.get(topic, ()):
                if offsets.get(partition, -1) < 0:
                    yield topic, partition
