"""How a notification is written for each kind of receiver: one file, and one line here, for each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from alerts.notify.notifiers.base import Notifier

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

#: ``format`` of a receiver → what writes for it.
NOTIFIERS = {
    "webhook": "alerts.notify.notifiers.webhook:Webhook",
    "alertmanager": "alerts.notify.notifiers.alertmanager:Alertmanager",
    "pagerduty": "alerts.notify.notifiers.pagerduty:PagerDuty",
    "opsgenie": "alerts.notify.notifiers.opsgenie:Opsgenie",
    "slack": "alerts.notify.notifiers.slack:Slack",
    "teams": "alerts.notify.notifiers.teams:Teams",
    "email": "alerts.notify.notifiers.email:Email",
    "template": "alerts.notify.notifiers.template:TemplateNotifier",
}


def notifier_of(settings: ReceiverSettings) -> Notifier:
    """What writes for the receiver; UserError where its key or its template cannot be used."""
    module, _, name = NOTIFIERS[settings.format].partition(":")
    notifier: Notifier = getattr(import_module(module), name)(settings)
    return notifier
