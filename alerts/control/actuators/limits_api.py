"""The limits API as an actuator: producers that use ``sojourn.Limits`` fetch what stands on the board."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.control.board import Board, ServedLimit
from alerts.control.standing import Standing, strictest


class LimitsApi:
    """Serves the strictest limit of each tenant."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def enforce(self, standings: Sequence[Standing]) -> None:
        """Publish ``standings``; where several policies limit one tenant, the lowest rate counts."""
        self._board.publish(tuple(_served(standing) for standing in strictest(standings).values()))


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
