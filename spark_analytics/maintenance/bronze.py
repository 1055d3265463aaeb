"""Old days of bronze: dropped whole, where the user wants them kept no longer.

Gold is not changed by it; but gold can be computed anew (``sojourn analyze --rebuild``) only from what is still there.
"""

from __future__ import annotations

import logging
from datetime import date, datetime, timedelta

from deltalake.exceptions import CommitFailedError, DeltaError

from lake.errors import first_line
from lake.store import Lake, explained
from lake.tables import TABLES

log = logging.getLogger(__name__)

TABLES_BY_DAY = tuple(spec.name for spec in TABLES.values() if spec.partition_by == ("ingest_date",))


def old_days(lake: Lake, name: str, kept_for: timedelta, now: datetime) -> list[date]:
    """The days of table ``name`` that ended longer than ``kept_for`` ago."""
    first_kept = (now - kept_for).date()
    days = {date.fromisoformat(str(partition["ingest_date"])) for partition in lake.ensure(name).partitions()}
    return sorted(day for day in days if day < first_kept)


def drop_days(lake: Lake, name: str, kept_for: timedelta, now: datetime) -> int:
    """Drop those days; how many. Their files stay until every stream has read them: see ``vacuum``."""
    days = old_days(lake, name, kept_for, now)
    if days:
        try:
            # By partition alone: Delta rewrites no file, and streams that ignore deletes pass over the commit.
            lake.ensure(name).delete(f"ingest_date <= '{days[-1].isoformat()}'")
            lake.write_checksum(name)
            log.info("dropped %d days of %s until %s", len(days), name, days[-1])
        except CommitFailedError as error:
            log.info("dropping days of %s deferred: %s", name, first_line(error))
            return 0
        except (DeltaError, OSError) as error:
            raise explained(error, lake.path(name)) from error
    return len(days)
