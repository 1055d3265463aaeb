"""Three laws that admit requests to an overloaded server, as their sources publish them, to be compared.

* Breakwater (Cho et al., OSDI 2020; ``breakwater/src/bw_server.c``): credits, each round trip. Delay d beyond its
  target dt: C × max(1 − 0.02 (d − dt) ÷ dt, 0.5); else C + 0.001 × clients. What waited 2 dt is dropped.
* SEDA (Welsh, Culler, USITS 2003; ``sd_client.c``): each client's rate, by the p99 of its last hundred requests, EWMA
  of 0.7: error above 0: rate ÷ 1.04; below −0.5: rate − (error + 0.1) × 40.
* DAGOR (Zhou et al., SoCC 2018; ``server_interceptor.go``): each second, or 2,000 requests: mean queueing above 20 ms:
  0.95 of what was admitted; else that and 0.01 of all that came. Where a server's time is of microseconds, its target
  is scaled as the Breakwater authors did.
"""

from __future__ import annotations


def breakwater(credits: float, delay: float, target: float, clients: int, most: float) -> float:
    """The credits after a round trip in which requests waited ``delay``; ``most`` is what clients have to send."""
    if delay >= target:
        return max(1.0, credits * max(1 - 0.02 * (delay - target) / target, 0.5))
    return min(most, credits + 0.001 * clients)


def seda(rate: float, p99: float, target: float, most: float) -> float:
    """A client's rate (requests/s) after a look at the smoothed ``p99`` (in the unit of ``target``)."""
    error = (p99 - target) / target
    if error > 0:
        return max(1.0, rate / 1.04)
    if error < -0.5:
        return min(most, rate - (error + 0.1) * 40)
    return rate


def dagor(admitted: float, came: float, delay: float, target: float) -> float:
    """How many requests are to be admitted in the next window, after ``came`` of which ``admitted`` went through."""
    return 0.95 * admitted if delay > target else min(came, admitted + 0.01 * came)
