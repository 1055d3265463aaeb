"""Open transactions: the last stable offset is where readers of committed records must stop until one ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from collectors.kafka.reading import Place


class _Open(NamedTuple):
    """A last stable offset, and where the partition ended when it was first seen."""

    stable: int
    end: int
    since: int


class Transactions:
    """Finds transactions that hang: the last stable offset has stood for ``patience`` milliseconds while the end moved.

    Producers end or lose a transaction within their ``transaction.timeout.ms`` (a minute unless set).
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._open: dict[Place, _Open] = {}

    def forget(self) -> None:
        """Offsets mean other messages now."""
        self._open.clear()

    def see(
        self, ends: Mapping[Place, int | str], stable_ends: Mapping[Place, int | str], now: int
    ) -> frozenset[Place]:
        """The partitions whose transaction hangs, as of ``now`` in milliseconds on a clock that is never set."""
        found: dict[Place, _Open] = {}
        hung = set()
        for place, stable in stable_ends.items():
            end, before = ends.get(place), self._open.get(place)
            if isinstance(stable, str) or not isinstance(end, int):
                if before is not None:  # not told now: what was seen stays seen
                    found[place] = before
            elif stable < end:
                if before is None or before.stable != stable:
                    before = _Open(stable, end, now)
                found[place] = before
                if now - before.since >= self._patience and end > before.end:
                    hung.add(place)
        self._open = found
        return frozenset(hung)
