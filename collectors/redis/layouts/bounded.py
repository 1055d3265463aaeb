"""How much of a key is looked into each cycle: Redis sends a member whole, however large, so sizes are asked first."""

from __future__ import annotations

from brokers.redis.resp import Answer

#: The most that one key's members may take to be read each cycle: a larger answer comes too late.
MOST_BYTES = 8 << 20
#: The most that the members of one queue may take on average, where the next of each of many queues is read.
MOST_EACH = 1 << 20


def too_large(usage: Answer, held: int, wanted: int) -> str | None:
    """Why ``wanted`` of a key's ``held`` members are not read; None where they may be.

    ``usage`` is the answer to MEMORY USAGE, which estimates it from a few members. A user who may not ask it goes
    without this bound.
    """
    if not isinstance(usage, int) or not held:
        return None
    each = usage / held
    if each > MOST_EACH or each * min(held, wanted) > MOST_BYTES:
        return f"its {held} members take about {max(1, usage >> 20)} MiB: too much to look into"
    return None


class Budget:
    """How many jobs of all queues together one cycle looks into."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, wanted: int) -> bool:
        """Whether ``wanted`` more may be looked into; they are counted then."""
        if wanted > self._left:
            return False
        self._left -= wanted
        return True
