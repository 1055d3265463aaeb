"""Finished state, as the analytics writes it to gold: what readers hold of it, and whether there is any."""

from lake.state.state import State
from lake.state.unfinished import REMEDY, UNFINISHED, is_unfinished, require_finished, rests_on_state

__all__ = ["REMEDY", "UNFINISHED", "State", "is_unfinished", "require_finished", "rests_on_state"]
