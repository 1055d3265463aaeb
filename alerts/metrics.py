"""What the alert process tells of itself, in Prometheus' text format: whoever watches it needs no Sojourn for that."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from alerts.columns import unread
from alerts.control.depth.metrics import Family
from alerts.engine import Snapshot
from alerts.models import AlertState
from alerts.store.database import Store
from lake.errors import SojournError

_WAITING = "SELECT receiver, COUNT(*) FROM outbox GROUP BY receiver"
#: The release of Alertmanager beside which our API is tested.
SPOKEN = "0.25.0"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_EVALUATES = [
    "# HELP sojourn_alerts_evaluates Whether this process evaluates rules; of several over one store one does.",
    "# TYPE sojourn_alerts_evaluates gauge",
]
#: A receiver and how an attempt towards it ended → how often.
Attempts = Mapping[tuple[str, str], int]


def exposition(
    snapshot: Snapshot,
    attempts: Attempts,
    waiting: Mapping[str, int],
    receivers: Sequence[str],
    now: datetime,
    more: Iterable[Family] = (),
) -> str:
    """The metrics at ``now`` on the engine's clock, and ``more`` families. What is unknown has no sample."""
    lines = [
        "# HELP alertmanager_build_info The Alertmanager whose API this speaks; Karma asks before it reads any.",
        "# TYPE alertmanager_build_info gauge",
        f'alertmanager_build_info{{version="{SPOKEN}"}} 1',
    ]
    lines += [*_EVALUATES, "sojourn_alerts_evaluates 1"]
    for name, kind, help, samples in (*_families(snapshot, attempts, waiting, receivers, now), *more):
        lines += [f"# HELP sojourn_alerts_{name} {help}", f"# TYPE sojourn_alerts_{name} {kind}"]
        lines += [f"sojourn_alerts_{name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def standing_by() -> str:
    """The metrics of a process that does not evaluate."""
    return "\n".join([*_EVALUATES, "sojourn_alerts_evaluates 0"]) + "\n"


def _families(
    snapshot: Snapshot, attempts: Attempts, waiting: Mapping[str, int], receivers: Sequence[str], now: datetime
) -> Iterator[Family]:
    evaluations = snapshot.evaluations
    states = Counter(
        (alert.labels.get("severity", ""), "firing" if alert.state.is_firing else "pending")
        for evaluation in evaluations
        for alert in unread(evaluation.alerts)
        if alert.state is not AlertState.INACTIVE
    )
    told = [
        ({"severity": severity, "state": state}, float(count)) for (severity, state), count in sorted(states.items())
    ]
    yield "alerts", "gauge", "Alerts of our own rules, by severity and state.", told
    rules = Counter("failing" if not one.ok else "stale" if one.stale else "ok" for one in evaluations)
    yield (
        "rules",
        "gauge",
        "Rules by how they were last evaluated.",
        [({"state": state}, float(rules[state])) for state in ("ok", "failing", "stale")],
    )
    if snapshot.at is not None:
        age = max(0.0, (now - snapshot.at).total_seconds())
        yield "last_round_age_seconds", "gauge", "Since rules were last evaluated.", [({}, age)]
    if snapshot.freshness.as_of is not None:
        data = (now + snapshot.ahead - snapshot.freshness.as_of).total_seconds()
        yield "data_age_seconds", "gauge", "Age of the newest event that rules saw.", [({}, data)]
    yield "data_stale", "gauge", "Whether rules wait for data.", [({}, float(snapshot.freshness.stale))]
    yield (
        "notifications_waiting",
        "gauge",
        "Notifications that have not been delivered.",
        [({"receiver": name}, float(waiting.get(name, 0))) for name in receivers],
    )
    yield (
        "attempts_total",
        "counter",
        "Attempts to deliver, by how they ended.",
        [
            ({"receiver": name, "outcome": outcome}, float(attempts.get((name, outcome), 0)))
            for name in receivers
            for outcome in ("delivered", "retry", "refused", "failed")
        ],
    )


def waiting_in(store: Store) -> dict[str, int]:
    """How many notifications wait, by receiver; nothing where the store cannot be read now."""
    try:
        if not isinstance(store, Path):
            with store.read() as database:
                return dict(database.execute(_WAITING).fetchall())
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as file:
            return dict(file.execute(_WAITING).fetchall())
    except (sqlite3.Error, SojournError):
        return {}


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
