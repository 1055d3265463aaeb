"""The declared topology: which queues feed which, and whether backpressure could run in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

#: Broker and queue.
Place = tuple[str, str]


def cycle(flows: Iterable[tuple[Place, Place]]) -> list[Place] | None:
    """A shortest circle of ``flows`` (from, to), the first place again at its end; None where there is none.

    Within a circle a limit would slow those who are to drain the queue that it protects, and never end. Of several
    circles of one length, the one that begins at the first place in order of names.
    """
    after: dict[Place, list[Place]] = {}
    for origin, target in sorted(set(flows)):
        after.setdefault(origin, []).append(target)
    found: list[Place] | None = None
    for start in sorted(after):
        path = _back_to(start, after)
        if path is not None and (found is None or len(path) < len(found)):
            found = path
    return found


def _back_to(start: Place, after: Mapping[Place, list[Place]]) -> list[Place] | None:
    """The shortest way from ``start`` to itself, by breadth first."""
    came_from: dict[Place, Place] = {}
    pending = deque([start])
    while pending:
        here = pending.popleft()
        for target in after.get(here, ()):
            if target == start:
                path = [here]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return [*reversed(path), start]
            if target not in came_from:
                came_from[target] = here
                pending.append(target)
    return None
