"""Few figures, honestly: exact quantiles of a run, means with intervals over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Student's t, two-sided 95 %, by degrees of freedom; 1.96 beyond.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the half width of its 95 % interval; infinite with one seed."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{short(self.mean)} ± {short(self.half_width)}" if math.isfinite(self.half_width) else short(self.mean)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of independent ``values``."""
    return _around(values, 1.0 / len(values))


def prediction(values: Sequence[float]) -> Estimate:
    """Mean of ``values``, drawn anew from one run that was, and the interval in which one further run lies.

    The further run varies as the values do, and so did the one that they were drawn from: the variances add (prediction
    interval of one observation from another).
    """
    return _around(values, 2.0)


def _around(values: Sequence[float], part: float) -> Estimate:
    """The mean, and the interval of ``part`` of the values' variance."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, math.inf)
    t = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else 1.96
    return Estimate(mean, t * statistics.stdev(values) * math.sqrt(part))


def quantile(values: Sequence[float], q: float) -> float:
    """The ``q``-quantile by nearest rank; NaN of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 = all equal, 1/n = one has all. R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else math.nan


def short(value: float) -> str:
    """``value`` to three figures; a dash for what there is not."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
