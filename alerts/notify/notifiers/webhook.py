"""Alertmanager's webhook, version 4, signed by Standard Webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standardwebhooks.webhooks import Webhook as Signer

from alerts.notify.notifiers.base import JSON, Notification, Request
from alerts.notify.target import Target
from lake.errors import UserError

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings


class Webhook:
    """Sends the body as it is. While keys are changed, both sign: a receiver that knows either one takes it."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)
        keys = [key for key in (settings.secret(), settings.old_secret()) if key]
        self._signers = [_signer(key, settings.name) for key in keys]

    def write(self, notification: Notification) -> Request:
        """The id of the notification, the time of the attempt, the signatures over all."""
        id, at, body = notification.id, notification.at, notification.body
        headers = {"content-type": JSON, "webhook-id": id, "webhook-timestamp": str(int(at.timestamp()))}
        if self._signers:
            headers["webhook-signature"] = " ".join(signer.sign(id, at, body) for signer in self._signers)
        return Request(self._target, body.encode(), headers)


def _signer(key: str, receiver: str) -> Signer:
    try:
        return Signer(key)
    except Exception as error:  # the library raises what its base64 decoder does
        raise UserError(
            f"receiver {receiver}: its signing key is not valid", "give whsec_ followed by base64 of 24 to 64 bytes"
        ) from error
