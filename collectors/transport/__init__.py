"""Where bronze records go: the lake's own tables, or Kafka topics that the analytics reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.errors import ConnectionLost
from lake.errors import UserError

if TYPE_CHECKING:
    from collectors.bronze import Bronze
    from collectors.transport.settings import TransportSettings
    from lake.store import Lake


class LakeBehind(ConnectionLost):
    """The analytics have not yet brought into the lake what was sent to Kafka; it is worth waiting for them."""


def chosen_bronze(settings: TransportSettings, lake: Lake) -> Bronze:
    """``lake`` itself, or the transport that brings records there; connects to nothing yet."""
    if settings.kind == "lake":
        return lake
    try:
        from collectors.transport.bronze import KafkaBronze
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name!r} is missing", "pip install 'sojourn[collectors]'") from None
    return KafkaBronze(settings, lake)
