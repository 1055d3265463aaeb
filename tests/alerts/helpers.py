"""What tests of alerts hold in their hands: what a receiver got, and a lake whose gold they write."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from standardwebhooks.webhooks import Webhook

from lake.store import Lake
from lake.tables import EVENT_TYPES
from tests.support.finishing import finish
from tests.support.waiting import PATIENCE

SECRET = "whsec_" + base64.b64encode(b"a signing key of 24 bytes").decode()


@dataclass(frozen=True)
class Received:
    """One request that arrived."""

    headers: dict[str, str]
    body: bytes
    at: datetime
    path: str = ""

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def payload(self) -> dict[str, Any]:
        """The body, once its signature has been verified by the reference library."""
        verified = Webhook(SECRET).verify(self.body, self.headers)
        assert isinstance(verified, dict)
        return verified


@dataclass
class WebhookReceiver:
    """Answers with ``script``'s statuses in turn, then 200; ``hold`` delays every answer by so many seconds."""

    script: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    hold: float = 0.0
    received: list[Received] = field(default_factory=list)
    url: str = ""

    def wait(self, count: int, timeout: float = 40.0) -> list[Received]:
        """The first ``count`` requests; fails if they do not come in time."""
        deadline = time.monotonic() + PATIENCE * timeout
        while len(self.received) < count:
            assert time.monotonic() < deadline, f"only {len(self.received)} of {count} webhooks arrived"
            time.sleep(0.01)
        return list(self.received)


class GoldLake:
    """A lake whose partial aggregates a test writes itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = Lake(root)
        self.lake.create()

    def partial(
        self, *, queue: str = "orders", tenant: str = "acme", at: datetime | None = None, **counts: int
    ) -> datetime:
        """Append one partial aggregate of the second of ``at`` (default: now); returns ``at``."""
        at = at or datetime.now(UTC)
        row = {
            "broker": "nats",
            "queue": queue,
            "subscriber": "",
            "tenant": tenant,
            "bucket_start": at.replace(microsecond=0),
            "bucket_seconds": 1,
            "newest_occurred_at": at,
            **dict.fromkeys((*EVENT_TYPES, "started", "retries", "finished_unreceived"), 0),
            **counts,
        }
        if counts.get("enqueued"):
            row["backlog_cells"] = [{"second": int(at.timestamp()), "net": counts["enqueued"]}]
        self.lake.append("partials", pa.Table.from_pylist([row]))
        finish(self.root)
        return at
