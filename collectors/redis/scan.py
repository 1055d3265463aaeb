"""Finding keys in a database of any size at a bounded cost: SCAN, a few calls a cycle, going on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.redis.client import Client

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Search:
    """Keys of one ``type`` that match the pattern ``match``, as SCAN understands them."""

    match: str
    type: str


class Scanner:
    """Keeps the set of keys that one search finds.

    A key is known from the moment in which a pass over the database meets it; it is forgotten when a whole pass, begun
    after it had gone, did not meet it. SCAN promises that a key which stays is met by every whole pass.
    """

    def __init__(self, search: Search, every: float) -> None:
        self.known: frozenset[bytes] = frozenset()
        self.passes = 0
        self._search = search
        self._every = every
        self._met: set[bytes] = set()
        self._cursor = b"0"
        self._due = 0.0

    async def advance(self, client: Client, budget: int, clock: float) -> int:
        """Look at up to ``budget`` keys if a pass is under way, or due at ``clock`` seconds; how many they were."""
        if self._cursor == b"0" and clock < self._due:
            return 0
        looked = 0
        while looked < budget:
            self._cursor, keys = await client.demand(
                ("SCAN", self._cursor, "MATCH", self._search.match, "COUNT", _AT_ONCE, "TYPE", self._search.type)
            )
            self._met.update(keys)
            looked += _AT_ONCE
            if self._cursor == b"0":
                self.known, self._met = frozenset(self._met), set()
                self.passes += 1
                self._due = clock + self._every
                return looked
        self.known |= self._met
        return looked
