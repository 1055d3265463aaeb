"""A program: a collector that writes so many events a second, each 0.2 s, and says when the newest of them happened.

Called by the other parts in a process of its own, so that it takes no turns with what they measure.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.analytics_parts.making import LIFE, events
from lake.store import Lake

INTERVAL = 0.2


def main(root: Path, rate: int, tenants: int, seconds: float) -> None:
    """Write lives spread over the interval before each commit; print "<events so far> <newest time>" for each."""
    lake = Lake(root)
    rng = np.random.default_rng(1)
    count = max(1, int(rate * INTERVAL / len(LIFE)))
    began = time.time()
    commits = 0
    while (now := time.time()) - began < seconds:
        at = np.linspace(now - INTERVAL, now, count)
        number = np.arange(count) + commits * count
        tenant = rng.zipf(1.3, count) % tenants if tenants < 10_000 else rng.integers(0, tenants, count)
        # Each message arrives, is received and ends in the same interval: three events, all of them new.
        kind = np.tile(np.arange(len(LIFE)), count)
        message = np.repeat(np.arange(count), len(LIFE))
        rows = events(kind, number[message], tenant[message], at[message] - 0.05, at[message], np.full(len(kind), 0.02))
        lake.append("message_events", rows)
        commits += 1
        print(commits * count * len(LIFE), now, flush=True)
        time.sleep(max(0.0, began + commits * INTERVAL - time.time()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
