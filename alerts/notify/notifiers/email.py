"""E-mail: plain text, for a mail server to pass on."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING

from alerts.notify.notifiers.base import Mail, Notification
from alerts.notify.notifiers.text import lines, shown, title
from alerts.notify.target import Target

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

_LONGEST_SUBJECT = 200


class Email:
    """Writes one message for all recipients. Its Message-ID is the notification's, so that a repeat is known as one."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._settings = settings
        self._target = Target.of(settings.url)
        self._password = settings.secret() or self._target.password

    def write(self, notification: Notification) -> Mail:
        """The message; those of one group answer each other, so that mail programs show them as one thread."""
        settings = self._settings
        domain = settings.mail_from.rpartition("@")[2]
        message = EmailMessage(policy=SMTP)
        message["From"] = settings.mail_from
        message["To"] = ", ".join(settings.mail_to)
        message["Subject"] = shown(title(notification), _LONGEST_SUBJECT)
        message["Date"] = format_datetime(notification.at)
        message["Message-ID"] = f"<{notification.id}@{domain}>"
        message["References"] = f"<{notification.incident[:32]}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        url = notification.payload["externalURL"]
        message.set_content("\n".join([*lines(notification), "", *([url] if url else [])]))
        return Mail(
            self._target, settings.mail_from, settings.mail_to, bytes(message), settings.starttls, self._password
        )
