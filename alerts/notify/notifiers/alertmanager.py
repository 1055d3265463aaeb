"""An Alertmanager's ``POST /api/v2/alerts``: it groups, silences and tells by itself.

Source: prometheus/prometheus ``notifier`` and ``rules/manager.go``: a firing alert's end lies four intervals ahead and
moves on as long as it is repeated, so that it is over where nobody repeats it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from alerts.notify.notifiers.base import JSON, Notification, Request, encoded, needed_key
from alerts.notify.target import Target

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

#: How often what fires is repeated, unless the receiver says otherwise; how many repeats may be missed.
RESEND, MISSED = timedelta(minutes=1), 4
_PATH = "/api/v2/alerts"


class Alertmanager:
    """Sends each alert of the group by itself; the url may name the server alone, or the whole path."""

    def __init__(self, settings: ReceiverSettings) -> None:
        target = Target.of(settings.url)
        self._target = target if target.path.endswith(_PATH) else target.below(_PATH)
        self._lasts = MISSED * (settings.repeat_interval or RESEND)
        key = settings.secret()
        self._headers = {"content-type": JSON}
        if key is not None:
            self._headers["authorization"] = f"Bearer {needed_key(key, settings.name, 'its bearer token')}"

    def write(self, notification: Notification) -> Request:
        """The alerts as Alertmanager takes them."""
        until = (notification.at + self._lasts).isoformat()
        alerts = [
            {
                "labels": alert["labels"],
                "annotations": alert["annotations"],
                "startsAt": alert["startsAt"],
                "endsAt": until if alert["status"] == "firing" else alert["endsAt"],
                "generatorURL": alert["generatorURL"],
            }
            for alert in notification.payload["alerts"]
        ]
        return Request(self._target, encoded(alerts), self._headers)
