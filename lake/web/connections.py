"""Who is connected: bounded in all and for each peer, with a reserve for peers that are known.

Where there is no place, the connection that has waited the longest for a request is closed to make one, so that
connections that say nothing keep nobody out. Only where all are at work is the newcomer refused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from lake.web.policy import Limits

#: Peers that are remembered as known, and for how many seconds after their last proper request.
_MOST_KNOWN, _KNOWN_SECONDS = 1_024, 3_600.0


class Connection:
    """One connection's place. ``drop`` closes it at once."""

    __slots__ = ("_connections", "drop", "is_proven", "peer")

    def __init__(self, connections: Connections, peer: str) -> None:
        self._connections = connections
        self.peer = peer
        self.drop: Callable[[], object] = _nothing
        self.is_proven = False

    def proven(self) -> None:
        """It has shown the token, or sent a proper request where none is asked for."""
        self.is_proven = True
        self._connections.know(self.peer)

    def waits(self) -> None:
        """It is between requests, or has not sent the headers of its first."""
        self._connections.waits(self)

    def works(self) -> None:
        """A request of it is being answered."""
        self._connections.works(self)

    def leave(self) -> None:
        """It is closed; to be called as often as one likes."""
        self._connections.leave(self)


class Connections:
    """The connections of one listener; belongs to its event loop. ``now`` gives seconds that only grow."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._open: set[Connection] = set()
        self._of_peer: Counter[str] = Counter()
        self._waiting: OrderedDict[Connection, None] = OrderedDict()  # the longest waiting first
        self._known: OrderedDict[str, float] = OrderedDict()  # until when

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, peer: str) -> Connection | None:
        """A place for a new connection of ``peer``, made by closing another where it must be; None: there is none."""
        limits = self._limits
        if not self.is_known(peer):
            if self._of_peer[peer] >= limits.unknown_peer_connections and not self._drop_one(
                one for one in self._waiting if one.peer == peer and not one.is_proven
            ):
                return None
            unknown = sum(count for name, count in self._of_peer.items() if not self.is_known(name))
            if unknown >= limits.connections - limits.reserved_connections and not self._drop_one(
                one for one in self._waiting if not self.is_known(one.peer)
            ):
                return None
        if len(self._open) >= limits.connections and not self.make_room(peer):
            return None
        one = Connection(self, peer)
        self._open.add(one)
        self._of_peer[peer] += 1
        self._waiting[one] = None
        return one

    def make_room(self, peer: str | None = None) -> bool:
        """Close one that waits: of unknown peers first, then one that has sent nothing proper yet; False: none waits.

        One that is proven is not closed for an unknown ``peer``.
        """
        return (
            self._drop_one(one for one in self._waiting if not self.is_known(one.peer))
            or self._drop_one(one for one in self._waiting if not one.is_proven)
            or ((peer is None or self.is_known(peer)) and self._drop_one(self._waiting))
        )

    def is_known(self, peer: str) -> bool:
        """Whether ``peer`` has sent a proper request lately."""
        until = self._known.get(peer)
        return until is not None and until > self._now()

    def know(self, peer: str) -> None:
        """Remember ``peer``."""
        self._known[peer] = self._now() + _KNOWN_SECONDS
        self._known.move_to_end(peer)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def waits(self, one: Connection) -> None:
        """See :meth:`Connection.waits`."""
        if one in self._open:
            self._waiting[one] = None

    def works(self, one: Connection) -> None:
        """See :meth:`Connection.works`."""
        self._waiting.pop(one, None)

    def leave(self, one: Connection) -> None:
        """See :meth:`Connection.leave`."""
        if one in self._open:
            self._open.discard(one)
            self._waiting.pop(one, None)
            self._of_peer[one.peer] -= 1
            if not self._of_peer[one.peer]:
                del self._of_peer[one.peer]

    def _drop_one(self, candidates: Iterable[Connection]) -> bool:
        one = next(iter(candidates), None)
        if one is None:
            return False
        self.leave(one)
        one.drop()
        return True


def _nothing() -> None:
    """What drops a connection that nobody serves yet."""
