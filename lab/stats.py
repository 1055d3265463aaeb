"""Few figures, honestly: exact quantiles of a run, means with intervals over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Student's t, two-sided 95 %, by degrees of freedom; 1.96 beyond.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


#: Bootstrap samples that an interval is read from.
RESAMPLES = 5_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its 95 % interval; without bounds where there is one seed."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return short(self.mean)
        return f"{short(self.mean)} ({short(self.low)} to {short(self.high)})"


#: What there is nothing to tell of.
NOTHING = Estimate(math.nan, math.nan, math.nan)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of independent ``values`` and its bootstrap interval: percentiles of the means of samples drawn from them
    with replacement, expanded to the coverage that few values would otherwise lack.

    B. Efron, "Bootstrap methods: another look at the jackknife", 1979; T. Hesterberg, "What teachers should know about
    the bootstrap", The American Statistician 69(4), 2015, section 4: the percentile is Φ(−t √(n ÷ (n − 1))).
    """
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf)
    outside = statistics.NormalDist().cdf(-_t95(n - 1) * math.sqrt(n / (n - 1)))
    drawn = np.random.default_rng(n).integers(0, n, (RESAMPLES, n))
    low, high = np.quantile(np.asarray(values, float)[drawn].mean(axis=1), (outside, 1 - outside)).tolist()
    return Estimate(mean, low, high)


def prediction(values: Sequence[float]) -> Estimate:
    """Mean of ``values``, drawn anew from one run that was, and the interval in which one further run lies.

    The further run varies as the values do, and so did the one that they were drawn from: the variances add (prediction
    interval of one observation from another).
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    half = _t95(len(values) - 1) * statistics.stdev(values) * math.sqrt(2.0)
    return Estimate(mean, mean - half, mean + half)


def _t95(freedom: int) -> float:
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.96


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
