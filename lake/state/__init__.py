"""Finished state, as the analytics writes it to gold: the views' stages over it, and the newest row of each key."""

from lake.state.stages import STAGES
from lake.state.state import State

__all__ = ["STAGES", "State"]
