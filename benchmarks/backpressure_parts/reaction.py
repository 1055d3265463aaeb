"""Where the time goes from a flood's first message until producers know of its limit, as ``cap`` has it.

Floods come one after the other, each of a tenant that sent nothing before, and last until producers know.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

import sojourn
from benchmarks.backpressure_parts.cap import CONTROL, TARGET_SECONDS
from benchmarks.backpressure_parts.fair import ALONE, RATE, TIMES
from benchmarks.backpressure_parts.load import STREAM, Load, Seen
from benchmarks.backpressure_parts.standing import at_rest
from benchmarks.backpressure_parts.watched import Watched
from benchmarks.figures import Figure
from lake.reader import Reader
from tests.support.nats import NatsServer

FLOODS, FLOOD_SECONDS, BETWEEN_SECONDS = 8, 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds since the flood's first message: the first quiet message comes that will wait longer than the target, and
    the first begins that did; the alert pends, harm is seen, and a limit decided; producers know of it."""

    waits: float
    waited: float
    pends: float
    harm_seen: float
    decided: float
    known: float


def measure(scale: float) -> Iterator[Figure]:
    """Medians over the floods; a line for each goes to standard error."""
    names = [field.name for field in fields(Steps)]
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        found = asyncio.run(_floods(server.url, Path(folder), max(1, round(FLOODS * scale))))
    for one in found:
        told = ", ".join(f"{name} {at:.2f}" for name, at in zip(names, astuple(one), strict=True))
        print(told, file=sys.stderr)
    for name, *values in zip(names, *map(astuple, found), strict=True):
        yield Figure(f"reaction_{name}_seconds", median(values), "s", max(values))


async def _floods(url: str, folder: Path, floods: int) -> list[Steps]:
    async with at_rest(url, folder, CONTROL) as (sojourn_, _, limits, load):
        began = []
        for number in range(floods):
            began.append(await _flood(load, limits, f"flood-{number}"))
            await load.run(BETWEEN_SECONDS, ALONE, limits=limits)
        return [_steps(sojourn_, f"flood-{number}", *one) for number, one in enumerate(began)]


async def _flood(load: Load, limits: sojourn.Limits, name: str) -> tuple[float, float, Seen]:
    """When its first message came (unix seconds), after how many seconds producers knew of its limit, what was seen."""
    at, began = time.time(), time.monotonic()

    async def until_known() -> float:
        while (STREAM, name) not in limits.in_force():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    knows = asyncio.create_task(until_known())
    seen = await load.run(FLOOD_SECONDS, ALONE | {name: RATE * TIMES}, limits=limits, leave=True)
    knows.cancel()
    known = FLOOD_SECONDS if knows.cancelled() or not knows.done() else knows.result()
    return at, known, seen


def _steps(sojourn_: Watched, name: str, at: float, known: float, seen: Seen) -> Steps:
    reader = Reader(sojourn_.lake)
    pends = f"SELECT MIN(at) AS at FROM alert_transitions WHERE labels['tenant'] = '{name}'"
    first = f"SELECT at, inputs FROM actions WHERE tenant = '{name}' AND decision = 'throttle' ORDER BY at LIMIT 1"
    (pended,), decided = reader.query(pends).to_pylist(), reader.query(first).to_pylist()
    late = [(when, age) for when, tenant, age in seen.first_attempts if tenant in ALONE and age > TARGET_SECONDS]
    nothing = float("nan")
    decided_at = decided[0]["at"].timestamp() - at if decided else nothing
    return Steps(
        waits=min((when - age for when, age in late), default=nothing),
        waited=min((when for when, _ in late), default=nothing),
        pends=pended["at"].timestamp() - at if pended["at"] else nothing,
        harm_seen=decided_at - float(dict(decided[0]["inputs"])["harmed_seconds"]) if decided else nothing,
        decided=decided_at,
        known=known,
    )
