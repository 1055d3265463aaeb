"""What stays in its place on a page that is renewed: nobody can read what changes places at each renewal.

Verdicts go before; of queues of one verdict those that are shown keep their places for a while, however little another
waits longer. The table below them is exact at every instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.services.keys import QueueKey
from dashboard.services.overview import QueueCard, Verdict

#: For how long places are kept.
HELD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Places:
    """The queues that have cards, in order, since when (monotonic seconds) the order was exact."""

    keys: tuple[QueueKey, ...]
    since: float


@dataclass(frozen=True, slots=True)
class Picture:
    """The queue that is drawn large: how bad it was when it was chosen, and when that was (monotonic seconds)."""

    key: QueueKey
    verdict: Verdict
    since: float


def steady(
    cards: Sequence[QueueCard], before: Places | None, most: int, now: float
) -> tuple[tuple[QueueCard, ...], Places]:
    """The ``cards`` of queues in trouble, the worst first, for a page with room for ``most``; their places from now on.

    A queue keeps its place while it is among the worst ``2 * most`` and none of a worse verdict takes it.
    """
    troubled = [card for card in cards if card.verdict is not Verdict.FINE]
    if before is None or now - before.since >= HELD_SECONDS:
        before = Places((), now)
    place = {key: number for number, key in enumerate(before.keys)}
    near = sorted(troubled[: 2 * most], key=lambda card: (card.verdict, place.get(card.key, len(place))))
    ordered = (*near, *troubled[2 * most :])
    return ordered, Places(tuple(card.key for card in ordered[:most]), before.since)


def pictured(cards: Sequence[QueueCard], before: Picture | None, now: float) -> Picture:
    """Which of ``cards``, the worst first, is drawn large: the one before, for a while, unless one is worse than that
    was when it was chosen."""
    first = cards[0]
    if (
        before is None
        or now - before.since >= HELD_SECONDS
        or first.verdict < before.verdict
        or all(card.key != before.key for card in cards)
    ):
        return Picture(first.key, first.verdict, now)
    return before
