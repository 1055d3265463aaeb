"""Client-side throttling: a client that is refused often refuses by itself, before it loads anybody.

Source: "Site Reliability Engineering" (Beyer, Jones, Petoff, Murphy, 2016), chapter 21, "Handling overload":
p(reject) = max(0, (requests − K × accepts) ÷ (requests + 1)) over the last two minutes, K = 2. A backend then gets
about K requests for each that it accepts, however many there are; a smaller K is stricter, and slower to see that it
recovers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

WINDOW_SECONDS = 120.0
K = 2.0
#: The window moves in so many pieces.
PIECES = 24


@dataclass(frozen=True, slots=True)
class State:
    """(piece, requests, accepts), the newest last."""

    pieces: tuple[tuple[int, int, int], ...] = ()


def rejection(requests: float, accepts: float, k: float = K) -> float:
    """The probability with which a client rejects its next request by itself."""
    if k < 1:
        raise ValueError(f"K {k} must be at least 1: below, a healthy backend would be starved")
    return max(0.0, (requests - k * accepts) / (requests + 1))


def seen(state: State, accepted: bool, now: float) -> State:
    """``state`` after a request at ``now``; one that the client rejected by itself was not accepted."""
    current = _kept(state, now)
    piece = math.floor(now / (WINDOW_SECONDS / PIECES))
    if current.pieces and current.pieces[-1][0] == piece:
        _, requests, accepts = current.pieces[-1]
        return replace(current, pieces=(*current.pieces[:-1], (piece, requests + 1, accepts + accepted)))
    return replace(current, pieces=(*current.pieces, (piece, 1, int(accepted))))


def decide(state: State, chance: float, now: float, k: float = K) -> tuple[bool, str]:
    """Whether the next request may go, and why; ``chance`` is uniform in [0, 1)."""
    pieces = _kept(state, now).pieces
    requests, accepts = sum(piece[1] for piece in pieces), sum(piece[2] for piece in pieces)
    p = rejection(requests, accepts, k)
    return chance >= p, f"{accepts} of {requests} accepted in {WINDOW_SECONDS:g} s: rejected with probability {p:.3g}"


def _kept(state: State, now: float) -> State:
    oldest = math.floor(now / (WINDOW_SECONDS / PIECES)) - PIECES
    return State(tuple(piece for piece in state.pieces if piece[0] > oldest))
