"""``[collect.receive]``: where applications send OpenTelemetry spans and events of the client."""

from __future__ import annotations

from collectors.broker import Settings


class ReceiveSettings(Settings):
    """The receiver; off unless enabled."""

    enabled: bool = False
