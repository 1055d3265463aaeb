"""What every collector is: something that watches one broker in steps, and survives the loss of its connection."""

from __future__ import annotations

from typing import Protocol


class Collector(Protocol):
    """One collector of one broker, driven by :mod:`collectors.run`.

    ``open`` connects and finds out where to go on; ``step`` does one cycle's work and is called each ``interval``
    seconds, never twice at once; ``close`` writes what is still held and lets go. ``open`` and ``step`` raise
    ConnectionLost to be opened again, UserError for what only the user can fix.
    """

    @property
    def name(self) -> str:
        """The source named in the records that it writes."""
        ...

    @property
    def interval(self) -> float:
        """Seconds from the beginning of one step to the next."""
        ...

    async def open(self) -> None:
        """Connect, and prepare for the first step; may be called again after ConnectionLost."""
        ...

    async def step(self) -> None:
        """Do one cycle's work."""
        ...

    async def close(self) -> None:
        """Write what is held, then disconnect; never raises for a broker that is gone."""
        ...
