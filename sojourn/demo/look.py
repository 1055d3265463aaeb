"""One look at the running demo through the very views that everybody reads."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from lake.errors import SojournError
from lake.reader import Reader
from sojourn.demo import scenario
from sojourn.demo.broker import Broker
from sojourn.demo.freshness import Freshness
from sojourn.demo.layout import Layout
from sojourn.demo.screen import Status

#: How many seconds of data time the live p99 covers.
P99_SECONDS = 6

_QUEUE = f"broker = '{scenario.BROKER}' AND queue = '{scenario.STREAM}'"
_BACKLOGS = (
    f"SELECT tenant, SUM(backlog) AS backlog, MAX(noisy) AS noisy FROM tenant_backlog_now WHERE {_QUEUE} GROUP BY 1"
)
_QUIET_P99 = f"""
SELECT histogram_quantile(histogram_merge(first_attempt_age_histogram), 0.99) AS p99
FROM partials
WHERE {_QUEUE} AND tenant <> '{scenario.NOISY}'
  AND bucket_start >= (SELECT MAX(bucket_start) FROM partials WHERE {_QUEUE}) - INTERVAL {P99_SECONDS} SECONDS
"""
#: The watchdog fires always, on purpose.
_ALERTS = "SELECT rule, labels FROM alert_states WHERE state IN ('firing', 'keep_firing') AND rule <> 'Watchdog'"
_LIMITS = "SELECT tenant, rate FROM limits"


class Looker:
    """Takes looks; what cannot be read at one of them is unknown in it, and does not end the demo."""

    def __init__(self, layout: Layout, broker: Broker, plan: scenario.Scenario, freshness: Freshness) -> None:
        self._began = time.time()
        self._layout = layout
        self._broker = broker
        self._plan = plan
        self._freshness = freshness
        self._reader = Reader(layout.lake)

    def look(self, now: float, troubles: Sequence[str]) -> Status:
        """Where things stand at ``now`` (unix seconds)."""
        start = self._layout.clock_start()
        elapsed = now - start if start is not None else -1.0
        tenants = self._rows(_BACKLOGS)
        quiet = self._rows(_QUIET_P99)
        recent = self._freshness.between(now - 5, now)
        try:
            held = self._broker.reading().held
        except SojournError:
            held = None
        return Status(
            phase=self._plan.phase(elapsed),
            elapsed=elapsed if start is not None else now - self._began,
            total=self._plan.traffic_seconds,
            held=held,
            backlogs={row["tenant"]: int(row["backlog"]) for row in tenants},
            noisy=[row["tenant"] for row in tenants if row["noisy"]],
            quiet_p99=quiet[0]["p99"] if quiet else None,
            freshness=sum(recent) / len(recent) if recent else None,
            alerts=[_alert(row) for row in self._rows(_ALERTS)],
            limits=[f"{row['tenant']} ≤ {row['rate']:.3g}/s" for row in self._rows(_LIMITS)],
            shed=self.shed(),
            troubles=troubles,
        )

    def shed(self) -> int:
        """Messages that the limits held back in this run."""
        total = 0
        for path in self._layout.state.glob("producer-*.json"):
            total += int(json.loads(path.read_text(encoding="utf-8"))["shed"])
        return total

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = self._reader.query(sql).to_pylist()
        except SojournError:
            return []
        return rows


def _alert(row: dict[str, Any]) -> str:
    labels = dict(row["labels"])
    about = labels.get("tenant") or labels.get("queue")
    return f"{row['rule']} ({about})" if about else str(row["rule"])
