"""Service-level objectives on waiting times, as rules: multi-window, multi-burn-rate alerts over ``attempt_age``.

"99 % of first attempts within 30 s" leaves a budget of 1 % that may be late. The burn rate is how many times faster
than that it is spent: at 14.4 an hour spends 2 % of what is meant for 30 days. An alert needs the burn over a long
window, so that a short disturbance wakes nobody, and over a short one, so that it ends when the trouble does. Source:
Google, The Site Reliability Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts"; the windows are Sloth's.

What is late is counted from histograms, exactly, but at the boundary of a bucket: the one nearest to ``within``, by
ratio at most :data:`lake.histogram.RELATIVE_ERROR` (0.54 %) away. A bucket of time counts where it starts, so that over
history that was rolled up to minutes or hours a window is off by up to one bucket.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from alerts.durations import Duration, format_duration
from alerts.rules.model import AlertingEntry, RuleEntry, Text
from lake.histogram import BASE, BUCKETS_PER_OCTAVE, SMALLEST
from lake.sql.dialect import text_literal

Key = Literal["broker", "queue", "subscriber", "tenant"]
_QUEUE: tuple[Key, ...] = ("broker", "queue", "subscriber")


def _ratio(value: object) -> object:
    """``99%``, or 0.99."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return round(float(value.strip()[:-1]) / 100, 12)
        except ValueError:
            raise ValueError(f"{value!r} is not a share: write it as 99% or 0.99") from None
    return value


class BurnWindow(BaseModel):
    """One pair of windows: it alerts when the budget burns more than ``burn`` times too fast in both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    long: Duration
    short: Duration
    burn: float = Field(gt=0, allow_inf_nan=False)
    severity: Literal["critical", "warning", "info"] = "critical"

    @model_validator(mode="after")
    def _short_is_shorter(self) -> Self:
        if not timedelta(0) < self.short < self.long:
            raise ValueError("the short window is shorter than the long one")
        if self.short % timedelta(seconds=1) or self.long % timedelta(seconds=1):
            raise ValueError("windows are whole seconds")
        return self


def _window(long: str, short: str, burn: float, severity: str) -> BurnWindow:
    return BurnWindow.model_validate({"long": long, "short": short, "burn": burn, "severity": severity})


#: For a period of 30 days: 2 % of the budget in an hour, 5 % in six, 10 % in a day, 10 % in three days.
WINDOWS = (
    _window("1h", "5m", 14.4, "critical"),
    _window("6h", "30m", 6, "critical"),
    _window("1d", "2h", 3, "warning"),
    _window("3d", "6h", 1, "warning"),
)


class SloEntry(AlertingEntry):
    """One entry under ``slos:``: ``objective`` of the attempts of ``kind`` wait at most ``within``."""

    slo: str = Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")
    objective: Annotated[float, BeforeValidator(_ratio), Field(gt=0, lt=1)]
    within: Duration
    kind: Literal["first_attempt", "first_subscriber_first_attempt", "completion"] = "first_attempt"
    per: Literal["queue", "tenant"] = "queue"
    match: dict[Key, Text] = Field(default_factory=dict)
    minimum: int = Field(default=100, ge=1)
    period: Duration = timedelta(days=30)
    windows: tuple[BurnWindow, ...] = WINDOWS

    @model_validator(mode="after")
    def _can_fire(self) -> Self:
        if self.within.total_seconds() <= SMALLEST:
            raise ValueError("within is longer than a microsecond")
        if not self.windows:
            raise ValueError("windows: at least one is needed")
        fastest = 1 / self.budget
        for window in self.windows:
            if window.burn >= fastest:
                raise ValueError(
                    f"a burn rate of {window.burn:g} cannot be reached: if every message is late, an objective of "
                    f"{self.objective:.12g} burns {fastest:.4g} times too fast; raise the objective or give windows"
                )
        return self

    @property
    def budget(self) -> float:
        """The share that may be late."""
        return round(1 - self.objective, 12)


def boundary(seconds: float) -> int:
    """The index whose bucket is the first that counts as later than ``seconds``: its lower bound is the nearest one."""
    return round(math.log2(seconds) * BUCKETS_PER_OCTAVE)


def counted_within(seconds: float) -> float:
    """The threshold that is really counted at, in seconds, for one of ``seconds``."""
    return float(BASE ** boundary(seconds))


def rules_of(slo: SloEntry) -> list[RuleEntry]:
    """The rules that ``slo`` stands for: one for each severity, ``<slo>BurnsFast`` the critical one."""
    severities = list(dict.fromkeys(window.severity for window in slo.windows))
    return [_rule(slo, severity, [one for one in slo.windows if one.severity == severity]) for severity in severities]


_NAMES = {"critical": "BurnsFast", "warning": "BurnsSlowly", "info": "Burns"}


def _rule(slo: SloEntry, severity: str, windows: list[BurnWindow]) -> RuleEntry:
    who = "tenant {{ labels.tenant }} of {{ labels.queue }}" if slo.per == "tenant" else "{{ labels.queue }}"
    goal = f"{slo.objective * 100:.10g}% within {format_duration(slo.within)}"
    annotations = {
        "summary": f"{who} burns its budget for {goal} {{{{ value | humanize }}}} times too fast",
        "description": (
            "{{ row.late | humanize }} of {{ row.attempts | humanize }} were late in the last "
            "{{ row.window_seconds | humanize_duration }}. At this rate the budget of "
            f"{format_duration(slo.period)} lasts {{{{ row.lasts_seconds | humanize_duration }}}}. "
            f"Late is counted from {counted_within(slo.within.total_seconds()):.6g} s, the nearest bucket boundary."
        ),
        "runbook": "slo.md",
    }
    return RuleEntry.model_validate(
        {
            "alert": slo.slo + _NAMES[severity],
            "expr": expression(slo, severity, windows),
            "for": slo.hold,
            "keep_firing_for": slo.keep_firing_for,
            "labels": {"severity": severity, "slo": slo.slo, **slo.labels},
            "annotations": annotations | slo.annotations,
            "no_data": slo.no_data,
            "actions": slo.actions,
        }
    )


def expression(slo: SloEntry, severity: str, windows: list[BurnWindow]) -> str:
    """The SELECT of one severity; ``value`` is the burn rate of the fastest window that alerts.

    A critical one leaves out queues whose events do not add up with the broker's own count.
    """
    keys = _keys(slo)
    lengths = sorted({_seconds(length) for window in windows for length in (window.long, window.short)})
    fired = [_fired(window, slo) for window in windows]
    fastest = "\n  UNION ALL\n  ".join(
        f"SELECT {', '.join(keys)}, CAST(late_{_seconds(window.long)} AS DOUBLE) "
        f"/ ({_number(slo.budget)} * attempts_{_seconds(window.long)}) AS burn, late_{_seconds(window.long)} AS late, "
        f"attempts_{_seconds(window.long)} AS attempts, {_seconds(window.long)} AS window_seconds, "
        f"{_number(window.burn)} AS threshold "
        f"FROM windows WHERE {condition}"
        for window, condition in zip(windows, fired, strict=True)
    )
    trusted = "\nWHERE b.place = 1"
    if severity == "critical":
        trusted = (
            "\nLEFT JOIN queue_health_now AS h ON h.broker = b.broker AND h.queue = b.queue "
            "AND h.subscriber IS NOT DISTINCT FROM b.subscriber"
            "\nWHERE b.place = 1 AND (h.coverage IS NULL OR h.coverage BETWEEN 0.8 AND 1.25)"
        )
    named, period = ", ".join(f"b.{key}" for key in keys), _number(slo.period.total_seconds())
    return f"""WITH {_windows(slo, lengths)}, burning AS (
  {fastest}
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY {", ".join(keys)} ORDER BY burn DESC, threshold DESC) AS place FROM burning
)
SELECT {named}, b.burn AS value, b.threshold, b.late, b.attempts, b.window_seconds, {period} / b.burn AS lasts_seconds
FROM ranked AS b{trusted}"""


def burned(slo: SloEntry) -> str:
    """The SELECT of how fast each of whom ``slo`` is for burns the budget, whether it alerts or not.

    For each of :func:`lengths_of`: ``attempts_N``, ``late_N`` and ``burn_N``, null where nothing was attempted.
    ``severity``: of the loudest window that alerts by what :func:`expression` asks, else null.
    """
    lengths = lengths_of(slo)
    burns = ", ".join(
        f"attempts_{length}, late_{length}, "
        f"late_{length} / NULLIF({_number(slo.budget)} * attempts_{length}, 0) AS burn_{length}"
        for length in lengths
    )
    ranks = {severity: place for place, severity in enumerate(_NAMES)}
    ordered = sorted(slo.windows, key=lambda window: ranks[window.severity])
    cases = " ".join(f"WHEN {_fired(window, slo)} THEN {text_literal(window.severity)}" for window in ordered)
    return f"""WITH {_windows(slo, lengths)}
SELECT {", ".join(_keys(slo))}, {burns}, CASE {cases} END AS severity FROM windows"""


def lengths_of(slo: SloEntry) -> list[int]:
    """The lengths, in seconds, of all windows of ``slo`` and of its period, the shortest first."""
    windows = {_seconds(length) for window in slo.windows for length in (window.long, window.short)}
    return sorted(windows | {_seconds(slo.period)})


def _keys(slo: SloEntry) -> list[Key]:
    return [*_QUEUE, "tenant"] if slo.per == "tenant" else [*_QUEUE]


def late_of(slo: SloEntry) -> str:
    """The expression that counts, of a row of ``attempt_age``, the attempts that were late."""
    return (
        f"aggregate(filter(histogram, cell -> cell.index >= {boundary(slo.within.total_seconds())}), "
        "CAST(0 AS BIGINT), (so_far, cell) -> so_far + cell.count)"
    )


def _windows(slo: SloEntry, lengths: list[int]) -> str:
    """CTEs of which ``windows`` has, for each of whom ``slo`` is for, what was attempted and late in each length."""
    keys, wanted = (
        _keys(slo),
        "".join(f"\n    AND {name} = {text_literal(value)}" for name, value in sorted(slo.match.items())),
    )
    sums = ",\n    ".join(
        f"SUM(CASE WHEN age_seconds < {length} THEN {what} ELSE 0 END) AS {name}_{length}"
        for length in lengths
        for what, name in (("late", "late"), ("attempts", "attempts"))
    )
    return f"""counted AS (
  SELECT {", ".join(keys)}, count AS attempts, {late_of(slo)} AS late,
    unix_seconds(:evaluation_time) - unix_seconds(bucket_start) AS age_seconds
  FROM attempt_age
  WHERE kind = {text_literal(slo.kind)}
    AND bucket_start > :evaluation_time - INTERVAL {lengths[-1]} SECONDS AND bucket_start <= :evaluation_time{wanted}
), windows AS (
  SELECT {", ".join(keys)},
    {sums}
  FROM counted GROUP BY {", ".join(keys)}
)"""


def _fired(window: BurnWindow, slo: SloEntry) -> str:
    long, short = _seconds(window.long), _seconds(window.short)
    share = _number(window.burn * slo.budget)
    return (
        f"attempts_{long} >= {slo.minimum} AND late_{long} > {share} * attempts_{long} "
        f"AND late_{short} > {share} * attempts_{short}"
    )


def _number(value: float) -> str:
    """In SQL: a literal with a point would be a decimal, whose digits run out."""
    return f"CAST({round(value, 12)!r} AS DOUBLE)"


def _seconds(length: timedelta) -> int:
    return round(length.total_seconds())
