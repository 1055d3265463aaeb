"""Opsgenie's Alert API, version 2: a group is an alert of theirs, created and closed under one alias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alerts.notify.notifiers.base import JSON, Notification, Request, encoded, needed_key
from alerts.notify.notifiers.text import lines, severity, shown, title
from alerts.notify.target import Target

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

URL = "https://api.opsgenie.com/"
_PRIORITIES = {"critical": "P1", "error": "P2", "warning": "P3", "info": "P4", "none": "P5"}
_LONGEST_MESSAGE, _LONGEST_DETAIL, _MOST_DETAILS = 130, 200, 30


class Opsgenie:
    """Creates an alert, and closes it. Created again under its alias, it counts; it is not told twice."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)
        key = needed_key(settings.secret(), settings.name, "Opsgenie's API key")
        self._headers = {"content-type": JSON, "authorization": f"GenieKey {key}"}

    def write(self, notification: Notification) -> Request:
        """The request that creates, or closes."""
        alias = notification.incident
        if notification.is_over:
            body = {"source": "sojourn", "note": shown(title(notification))}
            close = self._target.below(f"/v2/alerts/{alias}/close?identifierType=alias")
            return Request(close, encoded(body), self._headers)
        labels = sorted(notification.payload["commonLabels"].items())[:_MOST_DETAILS]
        alert = {
            "message": shown(title(notification), _LONGEST_MESSAGE),
            "alias": alias,
            "description": "\n".join(lines(notification)),
            "source": "sojourn",
            "priority": _PRIORITIES[severity(notification)],
            "details": {name: shown(value, _LONGEST_DETAIL) for name, value in labels},
        }
        return Request(self._target.below("/v2/alerts"), encoded(alert), self._headers)
