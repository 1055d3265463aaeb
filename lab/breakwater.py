"""Breakwater's spike: 1,000 clients, ten cores of 10 µs, SLO 200 µs; demand goes to 1.4 times the capacity.

In steps of one round trip, 10 µs: what comes and what is served in one are Poisson counts; the wait is the queue ÷
capacity. Published: stable in less than 20 ms with Breakwater, 500 ms with DAGOR, 1.58 s with SEDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alerts.laws import admission

#: Microseconds: a step, delays' target, the SLO; requests that are served a step; clients.
STEP, TARGET, SLO = 10.0, 80.0, 200.0
SERVED, CLIENTS = 10.0, 1_000
#: Parts of the capacity that are asked for before and from the spike on, and for how long each (seconds).
BEFORE, SPIKE = 0.7, 1.4
CALM_SECONDS, SPIKE_SECONDS = 0.05, 2.0
#: Stable is where hardly a request that is served misses the SLO, and most of the capacity is used, so many steps at a
#: time, so often in a row.
WINDOW, MISSED, LEAST, IN_A_ROW = 500, 0.01, 0.8, 4

Admit = Callable[[int, float, float], float]


@dataclass(frozen=True, slots=True)
class Spike:
    """``stable_after`` seconds since the spike; from it on ``goodput`` of the capacity was served within the SLO."""

    law: str
    stable_after: float
    goodput: float


def breakwater_law() -> Admit:
    """What is admitted in a step of what comes, by Breakwater."""
    credits = BEFORE * SERVED

    def admit(_: int, came: float, delay: float) -> float:
        nonlocal credits
        credits = admission.breakwater(credits, delay, TARGET, CLIENTS, 2 * SPIKE * SERVED)
        return min(came, credits)

    return admit


def seda_law() -> Admit:
    """The same by SEDA: clients look after a hundred requests of theirs, each at its own time."""
    most = SPIKE * SERVED / STEP * 1e6 / CLIENTS
    rates, p99 = np.full(CLIENTS, most), np.zeros(CLIENTS)
    sent, owner = np.random.default_rng(0).uniform(0, 100, CLIENTS), 0
    group = 20  # clients that are looked at in a step, in turn

    def admit(_: int, came: float, delay: float) -> float:
        nonlocal owner
        mine = slice(owner, owner + group)
        owner = (owner + group) % CLIENTS
        turns = CLIENTS / group
        sent[mine] += np.minimum(rates[mine], came / STEP * 1e6 / CLIENTS) * turns * STEP / 1e6
        for client in np.flatnonzero(sent[mine] >= 100) + mine.start:
            sent[client] -= 100
            p99[client] = 0.7 * p99[client] + 0.3 * delay if p99[client] else delay
            rates[client] = admission.seda(rates[client], p99[client], TARGET, most)
        return min(came, float(rates.mean()) * CLIENTS * STEP / 1e6)

    return admit


def dagor_law() -> Admit:
    """The same by DAGOR, whose windows are of 2,000 requests here."""
    limit, came_so_far, admitted, waited, steps = np.inf, 0.0, 0.0, 0.0, 0

    def admit(_: int, came: float, delay: float) -> float:
        nonlocal limit, came_so_far, admitted, waited, steps
        through = came * min(1.0, limit)
        came_so_far, admitted, waited, steps = came_so_far + came, admitted + through, waited + delay, steps + 1
        if came_so_far >= 2_000:
            limit = admission.dagor(admitted, came_so_far, waited / steps, TARGET) / came_so_far
            came_so_far, admitted, waited, steps = 0.0, 0.0, 0.0, 0
        return through

    return admit


#: The laws, the best first as published.
LAWS: dict[str, Callable[[], Admit]] = {"Breakwater": breakwater_law, "DAGOR": dagor_law, "SEDA": seda_law}


def spike(law: str, seed: int) -> Spike:
    """One run of one law; ``stable_after`` is infinite where it is not stable by the end."""
    chance, admit = np.random.default_rng(seed), LAWS[law]()
    calm, steps = int(CALM_SECONDS * 1e6 / STEP), int((CALM_SECONDS + SPIKE_SECONDS) * 1e6 / STEP)
    demand = np.where(np.arange(steps) < calm, BEFORE, SPIKE) * SERVED
    came, served = chance.poisson(demand), chance.poisson(SERVED, steps)
    queue, missed, good = 0.0, np.zeros(steps), np.zeros(steps)
    for step in range(steps):
        delay = queue / SERVED * STEP
        admitted = admit(step, float(came[step]), delay)
        if law == "Breakwater" and delay > 2 * TARGET:  # its own queue management
            admitted = 0.0
        done = min(queue + admitted, served[step])
        queue += admitted - done
        (good if delay <= SLO else missed)[step] += done
    bad = []
    for at in range(calm, steps, WINDOW):
        within, late = good[at : at + WINDOW].sum(), missed[at : at + WINDOW].sum()
        bad.append(late > MISSED * (within + late) or within < LEAST * SERVED * WINDOW)
    first = next((at for at in range(len(bad)) if not any(bad[at : at + IN_A_ROW])), None)
    after = math.inf if first is None else first * WINDOW * STEP / 1e6
    return Spike(law, after, float(good[calm:].sum() / (SERVED * (steps - calm))))
