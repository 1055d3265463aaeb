"""The body of a notification: Alertmanager's webhook format, version 4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from alerts.models import AlertInstance
from alerts.notify.links import links
from alerts.notify.plan import Decision, Notice
from lake.clock import ZERO

#: What Go writes for a time that is not set: the end of an alert that still fires.
NO_END = "0001-01-01T00:00:00Z"
#: Alerts in one body; more are counted in ``truncatedAlerts``. An Alertmanager knows none that it is not sent.
MOST_ALERTS, MOST_FOR_ALERTMANAGER = 500, 10_000


def alertmanager(
    decision: Decision,
    external_url: str,
    ahead: timedelta = ZERO,
    most: int = MOST_ALERTS,
    templates: Mapping[str, str] = MappingProxyType({}),
    dashboard: str | None = None,
) -> dict[str, Any]:
    """The payload that tells ``decision.receiver`` of the group's alerts, the firing ones first.

    Its instants are shown as the wall clock stands, ``ahead`` of the engine's. ``dashboard`` is where people reach it.
    """
    notices = [*decision.firing, *decision.resolved]
    shown = notices[:most]
    alerts = [alert_of(notice, external_url, ahead, templates, dashboard) for notice in shown]
    return {
        "receiver": decision.receiver,
        "status": "firing" if decision.firing else "resolved",
        "alerts": alerts,
        "groupLabels": dict(decision.group_labels),
        "commonLabels": common(alert["labels"] for alert in alerts),
        "commonAnnotations": common(alert["annotations"] for alert in alerts),
        "externalURL": external_url,
        "version": "4",
        "groupKey": decision.group_key,
        "truncatedAlerts": len(notices) - len(shown),
    }


def alert_of(
    notice: Notice,
    external_url: str,
    ahead: timedelta = ZERO,
    templates: Mapping[str, str] = MappingProxyType({}),
    dashboard: str | None = None,
) -> dict[str, Any]:
    """One alert of the payload.

    Its annotations also say its ``value``, the ``threshold`` that this is held against, up to when data had been seen
    (``data_as_of``), and the links that ``templates`` make; those of the rule go before.
    """
    alert = notice.alert
    made = links(templates, {"fingerprint": alert.fingerprint, **alert.labels})
    annotations = figures_of(alert) | made | dict(alert.annotations)
    if notice.data_as_of is not None:
        annotations["data_as_of"] = iso(notice.data_as_of)
    return {
        "status": "firing" if notice.resolved_at is None else "resolved",
        "labels": dict(alert.labels),
        "annotations": annotations,
        "startsAt": iso((alert.fired_at or alert.active_since) + ahead),
        "endsAt": NO_END if notice.resolved_at is None else iso(notice.resolved_at + ahead),
        "generatorURL": source_of(alert, dashboard, external_url),
        "fingerprint": alert.fingerprint,
    }


def figures_of(alert: AlertInstance) -> dict[str, str]:
    """The ``value`` of an alert and the ``threshold`` that this is held against, where known, as annotations."""
    figures = ("value", alert.value), ("threshold", alert.threshold)
    return {name: f"{number:.6g}" for name, number in figures if number is not None}


def source_of(alert: AlertInstance, dashboard: str | None, external_url: str = "") -> str:
    """Where to look next (``generatorURL``): what another program says of its alert, its page on the dashboard, else
    the API; empty where none is known."""
    if alert.generator_url:
        return alert.generator_url
    if dashboard:
        return f"{dashboard.rstrip('/')}/alerts?alert={alert.fingerprint}"
    return f"{external_url}/api/v2/alerts" if external_url else ""


def encoded(payload: Mapping[str, Any]) -> str:
    """The exact text that is kept, signed and sent."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_receiver(name: str, text: str) -> str:
    """The encoded payload ``text``, which names no receiver, as the receiver called ``name`` gets it."""
    return f'{{"receiver":{json.dumps(name, ensure_ascii=False)},{text[1:]}'


def iso(at: datetime) -> str:
    """``at`` as RFC 3339 in UTC: ``2026-01-01T00:00:00.000000Z``."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def common(mappings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What all of ``mappings`` have."""
    common: dict[str, str] | None = None
    for mapping in mappings:
        if common is None:
            common = dict(mapping)
        else:
            common = {name: value for name, value in common.items() if mapping.get(name) == value}
    return common or {}
