"""What no order of messages gets below, where all servers are busy and no attempt is interrupted: M/M/c.

D. Gross, C. Harris, "Fundamentals of Queueing Theory", 2.3 (Erlang's delay formula), 3.4 (priorities).
"""

from __future__ import annotations

import math


def delayed(servers: int, rate: float, service: float, kept_free: int = 0) -> float:
    """The part of messages that come at ``rate`` a second, need ``service`` seconds each and go before all others, that
    have to wait for a server at all.

    Others' messages begin only while more than ``kept_free`` of the ``servers`` are free, and are as many as one likes;
    with as many kept free as there are, there are no others.
    """
    likely = [1.0]  # how likely it is that so many servers are busy, from the fewest on, in proportion
    for busy in range(servers - kept_free + 1, servers + 1):
        likely.append(likely[-1] * rate * service / busy)
    all_busy = likely[-1] / (1 - rate * service / servers)
    return all_busy / (sum(likely[:-1]) + all_busy)


def p99(servers: int, rate: float, service: float, kept_free: int = 0) -> float:
    """How long 99 in 100 of those messages wait at most (seconds), among themselves in order of arrival."""
    return max(0.0, math.log(100 * delayed(servers, rate, service, kept_free)) / (servers / service - rate))


def idle(servers: int, rate: float, service: float, kept_free: int) -> float:
    """The part of the servers' time that is lost by keeping some free."""
    likely, total, lost = 1.0, 0.0, 0.0
    for busy in range(servers - kept_free, servers):
        total += likely
        lost += likely * (servers - busy)
        likely *= rate * service / (busy + 1)
    return lost / servers / (total + likely / (1 - rate * service / servers))
