"""``[collect.transport]``: where collectors put their records."""

from __future__ import annotations

from typing import Literal

from collectors.broker import Settings


class TransportSettings(Settings):
    """The lake itself, unless another is chosen."""

    kind: Literal["lake", "kafka"] = "lake"
