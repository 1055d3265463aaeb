"""What a broker's newest reading told of one queue's tenants: all that is known of them where no message is seen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lake.dataset import rows_of
from lake.errors import SojournError, first_line
from lake.store import Lake

log = logging.getLogger(__name__)

#: How far back a reading is looked for that tells of tenants.
LOOK_BACK = timedelta(minutes=10)
_COLUMNS = ("subscriber", "sampled_at", "tenants")


@dataclass(frozen=True, slots=True)
class Shares:
    """When the queue was read, and of each tenant `tenant`, `depth`, `in_flight`, `delayed`, `oldest_age_seconds`,
    whose messages are most first; None is unknown."""

    sampled_at: datetime
    tenants: tuple[Mapping[str, Any], ...]


def newest_shares(root: Path, broker: str, queue: str, subscriber: str | None, now: datetime) -> Shares | None:
    """As the newest reading before ``now`` has it; None where it names no tenants, or cannot be had."""
    lake = Lake(root)
    if not lake.exists("queue_samples"):
        return None
    since = now - LOOK_BACK
    of = [("broker", "=", broker), ("queue", "=", queue)]
    young = [("ingest_date", ">=", since.date()), ("sampled_at", ">", since)]
    try:
        rows = rows_of(lake.ensure("queue_samples"), _COLUMNS, [*of, *young]).to_pylist()
    except (SojournError, DeltaError, OSError, pa.ArrowException) as error:
        log.warning("what %s was read to hold of each tenant is unknown: %s", queue, first_line(error))
        return None
    mine = (row for row in rows if (row["subscriber"] or "") == (subscriber or ""))
    newest = max(mine, key=lambda row: row["sampled_at"], default=None)
    if newest is None or not newest["tenants"]:
        return None
    ranked = sorted(newest["tenants"], key=lambda one: (-_held(one), one["tenant"]))
    return Shares(newest["sampled_at"], tuple(ranked))


def _held(share: Mapping[str, Any]) -> int:
    return sum(share[name] or 0 for name in ("depth", "in_flight", "delayed"))
