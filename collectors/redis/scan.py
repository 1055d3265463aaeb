"""Finding keys in a database of any size at a bounded cost: SCAN, a few calls a cycle, going on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.redis.client import Address
from collectors.redis.server import Server

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Search:
    """Keys of one ``type`` that match the pattern ``match``, as SCAN understands them."""

    match: str
    type: str


class Scanner:
    """Keeps the set of keys that one search finds.

    A key is known from the moment in which a pass over the database meets it; it is forgotten when a whole pass, begun
    after it had gone, did not meet it. SCAN promises that a key which stays is met by every whole pass. In a cluster a
    key may move past a pass, from a node still to be read to one that was: there it takes two passes, and none that a
    node did not answer.
    """

    def __init__(self, search: Search, every: float) -> None:
        self.known: frozenset[bytes] = frozenset()
        self.passes = 0
        self._search = search
        self._every = every
        self._met: set[bytes] = set()
        self._before: frozenset[bytes] = frozenset()
        self._nodes: list[Address] = []  # that the pass under way has still to read
        self._several = self._whole = True
        self._cursor = b"0"
        self._due = 0.0

    async def advance(self, server: Server, budget: int, clock: float) -> int:
        """Look at up to ``budget`` keys if a pass is under way, or due at ``clock`` seconds; how many they were."""
        if not self._nodes:
            if clock < self._due:
                return 0
            self._nodes, self._cursor, self._whole = list(server.nodes()), b"0", True
            self._several = len(self._nodes) > 1
        looked = 0
        while self._nodes and looked < budget:
            answer = await server.scan(
                self._nodes[0],
                ("SCAN", self._cursor, "MATCH", self._search.match, "COUNT", _AT_ONCE, "TYPE", self._search.type),
            )
            self._cursor, keys = answer or (b"0", ())
            self._whole &= answer is not None
            self._met.update(keys)
            looked += _AT_ONCE
            if self._cursor == b"0":
                del self._nodes[0]
        if self._nodes:
            self.known |= self._met
        else:
            self._end(clock)
        return looked

    def _end(self, clock: float) -> None:
        met, self._met = frozenset(self._met), set()
        if self._whole:
            self.known = met | self._before if self._several else met
            self._before = met
        else:
            self.known |= met
        self.passes += 1
        self._due = clock + self._every
