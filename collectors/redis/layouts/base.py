"""What a layout is: how one library keeps its queues in Redis, as pure generators that ask and are told."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from brokers.redis.resp import Answer, Command
from collectors.redis.scan import Search
from collectors.samples import NO_LOG, UNSPLIT, Sample

#: Yields commands, is sent their answers (Refusals among them), and ends with what one queue's samples are. A Refusal
#: that it raises means that the queue is there and could not be read; no samples mean that it is gone.
Reading = Generator[list[Command], list[Answer], list[Sample]]
#: Begins to read one queue; takes the server's time in microseconds since 1970.
Read = Callable[[int], Reading]
#: The same for what is read once a cycle for all queues of a layout.
Preparing = Generator[list[Command], list[Answer], None]


class Layout(Protocol):
    """One library's way to keep queues; holds which queues there are, and talks to nobody."""

    def search(self) -> Search | None:
        """The keys to look for; None where no search is needed."""
        ...

    def take(self, keys: frozenset[bytes], now: int) -> None:
        """``keys`` are what the search has found by ``now``, in microseconds."""
        ...

    def prepare(self, now: int) -> Preparing:
        """What is to be read before the queues, and may be nothing; a Refusal that it raises is of the whole layout."""
        ...

    def queues(self) -> Iterable[tuple[str, Read]]:
        """Each queue's name and how to read it."""
        ...


#: What is raised over something of another shape than the library gives it: by hand, or by another program.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def text(data: bytes) -> str:
    """A key or name as it is shown; what is no UTF-8 is escaped."""
    return data.decode(errors="backslashreplace")


def age(now: int, since: float) -> float:
    """Seconds from ``since`` to ``now``, both in microseconds; a clock that is ahead makes no negative age."""
    return max(0.0, (now - since) / 1e6)


#: What Redis cannot tell of a queue in any layout, and why.
UNTOLD_ANYWHERE = {
    "polls_total": "Redis does not count polls of one key",
    "empty_polls_total": "Redis does not count polls of one key",
    "in_flight_limit": "none is kept in Redis",
    "prefetch": "each consumer chooses its own",
    "visibility_timeout_seconds": "each consumer chooses its own",
    "consumer_utilisation_ratio": "not kept in Redis",
    "publish_latency_seconds": "not probed: a probe would write to the user's database",
    "retention_margin": "nothing is deleted by age or length, unless a producer trims",
    "state": "Redis has no states of queues",
    "status": "not judged",
    "lost_total": "Redis does not count what a producer trims or evicts",
    **NO_LOG,
    **UNSPLIT,
}
