"""The libraries that keep jobs in PostgreSQL, one module each."""

from __future__ import annotations

from collectors.postgres.layouts.base import Layout
from collectors.postgres.layouts.good_job import GOOD_JOB
from collectors.postgres.layouts.graphile import GRAPHILE
from collectors.postgres.layouts.oban import OBAN
from collectors.postgres.layouts.pgboss import PGBOSS
from collectors.postgres.layouts.pgmq import PGMQ
from collectors.postgres.layouts.pgqueuer import PGQUEUER
from collectors.postgres.layouts.procrastinate import PROCRASTINATE
from collectors.postgres.layouts.river import RIVER
from collectors.postgres.layouts.solid_queue import SOLID_QUEUE

#: By the names of the settings.
LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (RIVER, PGBOSS, GRAPHILE, PROCRASTINATE, PGQUEUER, OBAN, PGMQ, SOLID_QUEUE, GOOD_JOB)
}
