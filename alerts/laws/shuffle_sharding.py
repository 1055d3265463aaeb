"""Shuffle sharding: each tenant gets k of n queues of its own, so that hardly any two share all of theirs.

Source: C. MacCárthaigh, "Workload isolation using shuffle-sharding", Amazon Builders' Library. A tenant that floods its
shard leaves others at least one queue unless they were dealt the very same k: one in C(n, k).
"""

from __future__ import annotations

import hashlib
import math
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


def _rank(*parts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()
