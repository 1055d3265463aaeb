"""Finished state, as the analytics writes it to gold: the newest row of each key, and the views' stages over it."""

from lake.state.stages import STAGES
from lake.state.state import State

__all__ = ["STAGES", "State"]
