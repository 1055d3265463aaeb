"""Which hours of marks are worth rewriting, and which of them together."""

from __future__ import annotations

#: An hour that needs no rewriting is rewritten when at least this share of it goes.
WORTH = 0.1
#: How many marks one commit rewrites, where an hour does not hold more.
MOST_ROWS = 500_000

#: The hour since 1970, its rows, and a mark: only hours with the same are rewritten together.
Hour = tuple[int, int, bool]


def runs(hours: list[Hour]) -> list[Hour]:
    """(first hour, last, mark) of hours that are rewritten together: of one day, as long as rows are not too many."""
    found: list[Hour] = []
    rows = 0
    for hour, there, marked in hours:
        rows += there
        if found and found[-1][2] == marked and hour // 24 == found[-1][0] // 24 and rows <= MOST_ROWS:
            found[-1] = found[-1][0], hour, marked
        else:
            found.append((hour, hour, marked))
            rows = there
    return found
