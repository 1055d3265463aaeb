"""Slack's incoming webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alerts.notify.notifiers.base import JSON, Notification, Request, encoded
from alerts.notify.notifiers.text import lines, severity, title
from alerts.notify.target import Target

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

_COLOURS = {"critical": "danger", "error": "danger", "warning": "warning"}


class Slack:
    """Sends plain text: what a label says is no link, no mark-up, and calls nobody (``<!channel>``)."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)

    def write(self, notification: Notification) -> Request:
        """The title, and below it what is told of each alert."""
        heading = _escaped(title(notification))
        colour = "good" if notification.is_over else _COLOURS.get(severity(notification), "#439FE0")
        text = _escaped("\n".join(lines(notification)))
        message = {
            "text": heading,
            "mrkdwn": False,
            "attachments": [{"color": colour, "fallback": heading, "text": text, "mrkdwn_in": []}],
        }
        return Request(self._target, encoded(message), {"content-type": JSON})


def _escaped(text: str) -> str:
    """The three signs by which Slack knows links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
