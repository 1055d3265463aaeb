"""Rows of a view against rows of the reference: every row, every column, each with the exactness it promises."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tests.reference.reference import Reference

Row = dict[str, Any]

METRIC_VIEWS = tuple(
    view + twin for view in ("attempt_age", "tenant_backlog", "concurrency", "queue_health") for twin in ("", "_now")
)
_KEY = ("as_of", "bucket_start", "broker", "queue", "subscriber", "tenant", "kind")
#: Quantiles come from histograms of scale 6; everything else is exact but for the rounding of sums of floats.
_QUANTILES = frozenset({"p50_seconds", "p90_seconds", "p99_seconds", "p99_processing_seconds"})
QUANTILE_ERROR = 0.0055
_ROUNDING = 1e-9


def expected_rows(reference: Reference, view: str) -> list[Row]:
    """What the reference says that ``view`` holds."""
    name = view.removesuffix("_now")
    rows: list[Row] = getattr(reference, name)(now=view != name)
    return rows


def differences(expected: list[Row], actual: list[Row]) -> list[str]:
    """What differs, one line each; empty where the rows agree."""
    found = []
    left, right = _grouped(expected), _grouped(actual)
    for key in sorted(left.keys() | right.keys(), key=repr):
        ours, theirs = left.get(key, []), right.get(key, [])
        if len(ours) != len(theirs):
            found.append(f"{_words(key)}: {len(ours)} rows expected, {len(theirs)} found")
            continue
        for one, other in zip(ours, theirs, strict=True):
            if one.keys() != other.keys():
                found.append(f"{_words(key)}: columns {sorted(one.keys() ^ other.keys())}")
                continue
            found += [
                f"{_words(key)}: {name} is {other[name]!r}, expected {one[name]!r}"
                for name in one
                if not _agree(name, one[name], other[name])
            ]
    return found


def _grouped(rows: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by key. Two instants can share an ``as_of`` (the last second before data time): those stand in order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in _KEY), []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: repr([row[name] for name in sorted(row) if isinstance(row[name], int | str | None)]))
    return groups


def _words(key: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in key if part is not None)


def _agree(name: str, one: Any, other: Any) -> bool:
    if name == "histogram":
        return one == _counts(other)
    if isinstance(one, float) and isinstance(other, float | int) and not isinstance(other, bool):
        if name in _QUANTILES:
            return math.isclose(one, other, rel_tol=QUANTILE_ERROR, abs_tol=1e-6)
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    return type(one) is type(other) and one == other


def _counts(histogram: Any) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for cell in histogram:
        counts[cell["index"]] += cell["count"]
    return dict(counts)
