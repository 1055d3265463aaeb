"""The limits API as an actuator: producers that use ``sojourn.Limits`` fetch what stands on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actuators.undo_log import News
from alerts.control.actuators import Told
from alerts.control.board import Board, ServedLimit
from alerts.control.standing import Standing, Target, strictest


class LimitsApi:
    """Serves the strictest limit of each tenant."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def enforce(self, standings: Sequence[Standing]) -> Mapping[Target, Told]:
        """Publish ``standings``; where several policies limit one tenant, the lowest rate counts."""
        self._board.publish(tuple(_served(standing) for standing in strictest(standings).values()))
        return {}

    def news(self) -> Sequence[News]:
        """None: nobody else writes on the board."""
        return ()


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
