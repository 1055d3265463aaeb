"""The limits API as an actuator: producers that use ``sojourn.Limits`` fetch what stands on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actuators.undo_log import News
from alerts.control.active_limit import ActiveLimit, Target, strictest
from alerts.control.actuators import Told
from alerts.control.board import Board, ServedLimit


class LimitsApi:
    """Serves the strictest limit of each tenant."""

    shows_in_arrivals = True

    def __init__(self, board: Board) -> None:
        self._board = board

    def enforce(self, active_limits: Sequence[ActiveLimit]) -> Mapping[Target, Told]:
        """Publish ``active_limits``; where several policies limit one tenant, the lowest rate counts."""
        self._board.publish(tuple(_served(active) for active in strictest(active_limits).values()))
        return {}

    def news(self) -> Sequence[News]:
        """None: nobody else writes on the board."""
        return ()


def _served(active: ActiveLimit) -> ServedLimit:
    target = active.key.target
    return ServedLimit(
        target.broker,
        target.queue,
        target.tenant,
        active.limit.rate,
        active.burst,
        active.valid_until,
        active.reason,
        active.action_id,
    )
