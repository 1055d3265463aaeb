"""The rows that each place of a broker was told in: one that cannot be read is unknown in those, and in no other."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from collectors.samples import Sample, unread


class Remembered:
    """What was told last of each place (a key, a stream …), of which one reading may make several rows.

    A row for each subscriber, dead letters beside the queue: were the place that cannot be read told as one row of its
    own, the others would stand at their last values, and look alive.
    """

    def __init__(self) -> None:
        self._rows: dict[Hashable, tuple[tuple[str, str | None, str | None], ...]] = {}

    def told(self, place: Hashable, samples: Sequence[Sample]) -> None:
        """``samples`` are what ``place`` was told in now; none means that it is gone."""
        if samples:
            self._rows[place] = tuple((one.queue, one.subscriber, one.dead_letter_for) for one in samples)
        else:
            self._rows.pop(place, None)

    def unread(self, place: Hashable, queue: str, sampled_at: int, reason: str) -> list[Sample]:
        """``place``, which cannot be read now: every row that it was told in, or ``queue`` if it was in none."""
        return [
            unread(name, sampled_at, reason, subscriber=subscriber, dead_letter_for=serves)
            for name, subscriber, serves in self._rows.get(place, ((queue, None, None),))
        ]

    def keep(self, places: Collection[Hashable]) -> None:
        """Forget all but ``places``."""
        if len(places) < len(self._rows):
            self._rows = {place: rows for place, rows in self._rows.items() if place in places}
