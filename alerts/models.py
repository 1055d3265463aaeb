"""What an evaluation of the rules yields: the vocabulary shared by notifiers, policies and the dashboard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_MASK = (1 << 64) - 1


class AlertState(StrEnum):
    """Where one alert stands, as in Prometheus; ``keep_firing`` is firing on after its expression stopped matching."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    KEEP_FIRING = "keep_firing"

    @property
    def is_firing(self) -> bool:
        """Whether the world has been, or must be, told: firing, or kept firing."""
        return self in (AlertState.FIRING, AlertState.KEEP_FIRING)


@dataclass(frozen=True, slots=True)
class AlertInstance:
    """One alert of one rule: a set of labels with the state it is in.

    ``labels`` hold ``alertname``, the rule's labels and the string columns of its row; never the value.
    ``active_since`` is when the expression began to match, ``fired_at`` when ``for`` had passed; both are data time on
    the engine's clock.
    """

    rule: str
    group: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float | None
    state: AlertState
    active_since: datetime
    fired_at: datetime | None
    fingerprint: str
    generator_url: str = ""  # of what has no page of its own: another program's alert, a receipt
    inputs: Mapping[str, object] = field(default_factory=dict)  # the other columns of the rule's row

    @property
    def threshold(self) -> float | None:
        """What the value is held against, where its rule says so: the column of that name, if it is a number."""
        found = self.inputs.get("threshold")
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """One evaluation of one rule, with the alerts it leaves: pending, firing or kept firing.

    Nothing may act on an evaluation that is not ``ok`` (the query failed, ``error`` says how) or that is ``stale``
    (the data stopped); its ``alerts`` are then those known before. ``data_as_of`` is the newest event it saw,
    ``evaluated_at`` the engine's clock, which nobody sets. ``pending_since`` is no later than when the expression began
    to match whichever of the pending will fire first; None = none pends.
    """

    rule: str
    group: str
    actions: tuple[str, ...]
    evaluated_at: datetime
    data_as_of: datetime | None
    ok: bool
    stale: bool
    error: str | None
    alerts: Sequence[AlertInstance]
    pending_since: datetime | None = None


def fingerprint(labels: Mapping[str, str]) -> str:
    """Alertmanager's identity of a label set: 16 hex digits of FNV-1a, 64 bit, over ``name 0xFF value 0xFF``.

    Source: prometheus/common, ``model/signature.go``.
    """
    digest = _FNV_OFFSET
    for name in sorted(labels):
        for byte in name.encode() + b"\xff" + labels[name].encode() + b"\xff":
            digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return f"{digest:016x}"
