"""Microsoft Teams, by a workflow that takes Adaptive Cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alerts.notify.notifiers.base import JSON, Notification, Request, encoded
from alerts.notify.notifiers.text import lines, severity, title
from alerts.notify.target import Target

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

_COLOURS = {"critical": "attention", "error": "attention", "warning": "warning"}
_CARD = "application/vnd.microsoft.card.adaptive"


class Teams:
    """Sends a card of text runs, which, unlike text blocks, know no Markdown: what a label says is no link."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)

    def write(self, notification: Notification) -> Request:
        """The title, and below it what is told of each alert."""
        colour = "good" if notification.is_over else _COLOURS.get(severity(notification), "accent")
        heading = {"size": "large", "weight": "bolder", "color": colour}
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [_paragraph(title(notification), **heading), *map(_paragraph, lines(notification))],
        }
        message = {"type": "message", "attachments": [{"contentType": _CARD, "content": card}]}
        return Request(self._target, encoded(message), {"content-type": JSON})


def _paragraph(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}
