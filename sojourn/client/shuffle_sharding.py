"""Shuffle sharding: each tenant gets k of n queues of its own, so that hardly any two share all of theirs.

Source: C. MacCárthaigh, "Workload isolation using shuffle-sharding", Amazon Builders' Library. A tenant that floods its
shard leaves others at least one queue unless they were dealt the very same k: one in C(n, k).
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence


def shard(tenant: str, queues: Sequence[str], size: int, salt: str = "") -> tuple[str, ...]:
    """The ``size`` queues of ``tenant``: those whose hash with it is highest (rendezvous hashing).

    Every combination is as likely as any other; a queue that comes or goes changes at most one place of each shard.
    Another ``salt`` deals anew. ValueError if there are fewer queues, or one is named twice.
    """
    if not 1 <= size <= len(queues):
        raise ValueError(f"a shard of {size} cannot be of {len(queues)} queues")
    if len(set(queues)) != len(queues):
        raise ValueError("a queue is named twice")
    return tuple(sorted(queues, key=lambda queue: _rank(salt, tenant, queue), reverse=True)[:size])


def emptiest(shard: Sequence[str], backlogs: Mapping[str, float]) -> str:
    """Where of its ``shard`` a tenant's next message goes; a queue that is not in ``backlogs`` is empty."""
    return min(shard, key=lambda queue: backlogs.get(queue, 0.0))


def overlap(queues: int, size: int, shared: int) -> float:
    """The probability that two tenants share exactly ``shared`` queues of ``size`` each (hypergeometric)."""
    return math.comb(size, shared) * math.comb(queues - size, size - shared) / math.comb(queues, size)


class ShuffleShards:
    """Where a producer puts each tenant's messages: into the emptiest of the tenant's ``size`` of ``queues``::

        shards = sojourn.ShuffleShards([f"orders-{n}" for n in range(10)], size=2)
        publish(shards.queue_for(tenant), message)

    Every process with the same queues, size and ``salt`` deals alike; consumers take from all queues, in turns. Any
    thread may ask. A tenant's own messages are in order within each of its queues alone.
    """

    def __init__(self, queues: Sequence[str], size: int = 2, *, salt: str = "") -> None:
        shard("", queues, size)  # which says what is wrong with them
        self._queues, self._size, self._salt = tuple(queues), size, salt
        self._lock = threading.Lock()
        self._sent = dict.fromkeys(self._queues, 0)

    def of(self, tenant: str) -> tuple[str, ...]:
        """The tenant's queues."""
        return shard(tenant, self._queues, self._size, self._salt)

    def queue_for(self, tenant: str, backlogs: Mapping[str, float] | None = None) -> str:
        """Where the tenant's next message goes.

        ``backlogs``: messages that wait in each queue, where the producer knows; a queue that is not among them is
        empty. None: that of the tenant's queues to which this process has sent least.
        """
        own = self.of(tenant)
        with self._lock:
            chosen = emptiest(own, self._sent if backlogs is None else backlogs)
            self._sent[chosen] += 1
        return chosen


def _rank(*parts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()
