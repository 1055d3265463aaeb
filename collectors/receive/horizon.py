"""The events of the last while, so that one that is sent again is known as such: eight bytes each, bounded."""

from __future__ import annotations

import numpy as np

from collectors.receive.identity import Keys

_GENERATIONS = 4
#: Arrays of single commits that are kept apart before they are merged: merging costs time, so does looking into many.
_LOOSE = 6


class Horizon:
    """Keys seen in the last ``seconds``, or the newest ``most`` where there are more; by generations, oldest first."""

    def __init__(self, most: int, seconds: float) -> None:
        self._each = max(1, most // _GENERATIONS)
        self._span = seconds / _GENERATIONS
        self._sealed: list[tuple[float, Keys]] = []
        self._loose: list[Keys] = []
        self._young: Keys = np.empty(0, dtype=np.uint64)
        self._begun: float | None = None

    @property
    def holds(self) -> int:
        """How many keys it holds at least before it lets go of any."""
        return self._each * (_GENERATIONS - 1)

    def __len__(self) -> int:
        return len(self._young) + sum(map(len, self._loose)) + sum(len(keys) for _, keys in self._sealed)

    def new(self, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """For each of ``keys`` whether it was not seen before, nor earlier in ``keys``."""
        fresh = np.zeros(len(keys), dtype=np.bool_)
        distinct, first = np.unique(keys, return_index=True)
        unseen = np.ones(len(distinct), dtype=np.bool_)
        for known in (self._young, *self._loose, *(sealed for _, sealed in self._sealed)):
            if len(known):
                places = np.searchsorted(known, distinct)
                places[places == len(known)] = 0
                unseen &= known[places] != distinct
        fresh[first[unseen]] = True
        return fresh

    def add(self, keys: Keys, now: float) -> None:
        """Remember ``keys`` as seen at ``now`` (seconds, any clock that never goes back)."""
        if self._begun is None:
            self._begun = now
        self._loose.append(np.sort(keys))
        if len(self._loose) >= _LOOSE:
            self._merge()
        if len(self._young) + sum(map(len, self._loose)) >= self._each or now - self._begun >= self._span:
            self._merge()
            self._sealed.append((now, self._young))
            self._young, self._begun = np.empty(0, dtype=np.uint64), now
        keep = self._span * _GENERATIONS
        self._sealed = [(end, sealed) for end, sealed in self._sealed[1 - _GENERATIONS :] if now - end <= keep]

    def _merge(self) -> None:
        self._young = np.sort(np.concatenate([self._young, *self._loose]), kind="stable")
        self._loose = []
