"""Actuators put limits in force. They are told all that shall hold, never a difference: telling twice is harmless."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from alerts.control.board import Board
from alerts.control.standing import Standing

#: Name in the settings → where the actuator is.
ACTUATORS: dict[str, str] = {"limits_api": "alerts.control.actuators.limits_api:LimitsApi"}


class Actuator(Protocol):
    """What applies limits somewhere."""

    def enforce(self, standings: Sequence[Standing]) -> None:
        """Make exactly ``standings`` hold, and nothing else of ours. Raises SojournError if that failed."""


def load(name: str, board: Board) -> Actuator:
    """The actuator called ``name``."""
    module, _, attribute = ACTUATORS[name].partition(":")
    return cast(Actuator, getattr(import_module(module), attribute)(board))
