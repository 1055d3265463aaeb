"""A group of alerts in words, for people. Nothing from outside in it steers a terminal, a page or an eye."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alerts.notify.notifiers.base import Notification
from lake.visible import visible

#: Alerts that are told of one by one, and characters of any one value.
MOST_ALERTS, LONGEST_VALUE = 10, 500
#: From the loudest on.
SEVERITIES = ("critical", "error", "warning", "info", "none")
#: What pages say beside their rule's words, and what it is called there.
EVIDENCE = {
    "who": "who waits",
    "drain": "drained",
    "being_done": "being done",
    "exemplars": "waited longest",
    "exemplars_unknown": "waited longest: unknown",
}
_WHERE = ("broker", "queue", "subscriber", "tenant")


def title(notification: Notification) -> str:
    """``[FIRING:2] QueueStalled nats orders``."""
    payload = notification.payload
    labels = payload["groupLabels"] | payload["commonLabels"]
    firing = len(notification.firing)
    state = f"FIRING:{firing}" if firing else "RESOLVED"
    name = labels.get("alertname", "alerts")
    return shown(" ".join([f"[{state}]", name, *(labels[name] for name in _WHERE if labels.get(name))]))


def lines(notification: Notification) -> list[str]:
    """A line of each alert's summary, what follows from it, and where to read on; those that fire first."""
    told: list[str] = []
    alerts: Sequence[dict[str, Any]] = notification.payload["alerts"]
    for alert in alerts[:MOST_ALERTS]:
        notes = alert["annotations"]
        summary = notes.get("summary") or notes.get("message") or alert["labels"].get("alertname", "")
        told.append(shown(f"{'firing' if alert['status'] == 'firing' else 'resolved'}: {summary}"))
        told += [shown(f"  {notes[name]}") for name in ("description",) if notes.get(name)]
        value = f"value {notes['value']}, " if notes.get("value") else ""
        if value and notes.get("threshold"):
            value = f"value {notes['value']} (threshold {notes['threshold']}), "
        at = alert["startsAt"] if alert["status"] == "firing" else alert["endsAt"]
        told.append(
            shown(f"  {'since' if alert['status'] == 'firing' else 'at'} {at}, {value}{_labels(alert['labels'])}")
        )
        told += [shown(f"  {called}: {notes[name]}") for name, called in EVIDENCE.items() if notes.get(name)]
        told += [shown(f"  {notes[name]}") for name in sorted(notes) if name == "runbook" or name.endswith("_url")]
    left = len(alerts) - MOST_ALERTS + notification.payload["truncatedAlerts"]
    return [*told, f"and {left} more"] if left > 0 else told


def severity(notification: Notification) -> str:
    """The loudest severity of what fires; ``warning`` where none is known."""
    alerts = notification.firing or notification.payload["alerts"]
    known = [alert["labels"].get("severity", "").lower() for alert in alerts]
    ranks = [SEVERITIES.index(name) for name in known if name in SEVERITIES]
    return SEVERITIES[min(ranks)] if ranks else "warning"


def shown(text: str, longest: int = LONGEST_VALUE) -> str:
    """``text`` as people may safely be shown it."""
    return visible(text, longest)


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != "alertname")
