"""How many bytes to ask for at a head: what its first batch will take, judged by those that were read before it."""

from __future__ import annotations

from collectors.kafka.reading import Place

#: Asked for of a partition of a topic that was never read, and at least.
_FIRST, _LEAST = 4096, 512
#: What is far from its topic's ordinary need is remembered by itself, for so many partitions.
_FAR, _MOST = 2, 10_000


class Rooms:
    """Each topic's ordinary batch, and the partitions whose batches are far larger."""

    def __init__(self) -> None:
        self._ordinary: dict[str, int] = {}
        self._guess: int | None = None  # of topics that were never read: what the others take
        self._large: dict[Place, int] = {}

    def forget(self) -> None:
        """Topics may have been recreated."""
        self._ordinary.clear()
        self._large.clear()
        self._guess = None

    @property
    def known(self) -> bool:
        """Whether any batch was ever read."""
        return self._guess is not None

    def of(self, place: Place) -> int:
        """How many bytes to ask for."""
        large = self._large.get(place)
        if large is not None:
            return large
        ordinary = self._ordinary.get(place[0], self._guess)
        # What is larger is asked for once more, by the length that its header tells: fewer bytes than to ask for twice
        # as much of all, even where sizes differ as those of exponential ones do (2.1 against 2.9 of the mean).
        return _FIRST if ordinary is None else max(_LEAST, ordinary)

    def learn(self, place: Place, need: int) -> None:
        """A batch took ``need`` bytes. What one large batch asked for must not stay: others are small again."""
        self._guess = _nearer(self._guess, min(need, _FIRST))
        ordinary = self._ordinary.get(place[0])
        if ordinary is None:
            self._ordinary[place[0]] = min(need, _FIRST)
        else:
            self._ordinary[place[0]] = _nearer(ordinary, min(need, 2 * ordinary))
        if need > _FAR * self._ordinary[place[0]]:
            if len(self._large) >= _MOST:
                self._large.clear()  # partitions come and go
            self._large[place] = need
        else:
            self._large.pop(place, None)


def _nearer(usual: int | None, one: int) -> int:
    """``usual``, a little nearer to ``one``."""
    return one if usual is None else usual + (one - usual) // 8
