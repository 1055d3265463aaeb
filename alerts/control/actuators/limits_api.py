"""The limits API as an actuator: producers that use ``sojourn.Limits`` fetch what stands on the board."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.control.board import Board, ServedLimit
from alerts.control.standing import Standing, Target


class LimitsApi:
    """Serves the strictest limit of each tenant."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def enforce(self, standings: Sequence[Standing]) -> None:
        """Publish ``standings``; where several policies limit one tenant, the lowest rate counts."""
        strictest: dict[Target, Standing] = {}
        for standing in sorted(standings, key=lambda standing: standing.key):
            before = strictest.get(standing.key.target)
            if before is None or standing.limit.rate < before.limit.rate:
                strictest[standing.key.target] = standing
        self._board.publish(tuple(_served(standing) for standing in strictest.values()))


def _served(standing: Standing) -> ServedLimit:
    target = standing.key.target
    return ServedLimit(
        target.broker,
        target.queue,
        target.tenant,
        standing.limit.rate,
        standing.burst,
        standing.valid_until,
        standing.reason,
        standing.action_id,
    )
