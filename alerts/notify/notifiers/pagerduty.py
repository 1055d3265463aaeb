"""PagerDuty's Events API, version 2: a group is an incident, triggered and resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alerts.notify.notifiers.base import JSON, Notification, Request, encoded, needed_key
from alerts.notify.notifiers.text import lines, severity, shown, title
from alerts.notify.target import Target
from lake.errors import UserError

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

URL = "https://events.pagerduty.com/v2/enqueue"
_SEVERITIES = {"critical": "critical", "error": "error", "warning": "warning", "info": "info", "none": "info"}
_LONGEST_SUMMARY, _KEY = 1024, 32


class PagerDuty:
    """Sends events under the receiver's routing key."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)
        self._key = needed_key(settings.secret(), settings.name, "PagerDuty's routing key")
        if len(self._key) != _KEY:
            raise UserError(f"receiver {settings.name}: a routing key has {_KEY} characters", "see the integration")

    def write(self, notification: Notification) -> Request:
        """An event: the same ``dedup_key`` from the first alert of the group to its end."""
        event: dict[str, Any] = {
            "routing_key": self._key,
            "event_action": "resolve" if notification.is_over else "trigger",
            "dedup_key": notification.incident,
        }
        if not notification.is_over:
            payload = notification.payload
            labels = payload["groupLabels"] | payload["commonLabels"]
            event |= {
                "client": "Sojourn",
                "payload": {
                    "summary": shown(title(notification), _LONGEST_SUMMARY),
                    "source": shown(labels.get("broker") or "sojourn", 255),
                    "severity": _SEVERITIES[severity(notification)],
                    "timestamp": notification.firing[0]["startsAt"],
                    "component": shown(labels.get("queue", ""), 255),
                    "class": shown(labels.get("alertname", ""), 255),
                    "custom_details": {"alerts": "\n".join(lines(notification))},
                },
            }
            if payload["externalURL"]:
                event["client_url"] = payload["externalURL"]
        return Request(self._target, encoded(event), {"content-type": JSON})
