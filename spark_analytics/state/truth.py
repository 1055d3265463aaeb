"""What `partials` and `marks` have come to, for buckets of age that are no longer held in memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import resources
from string import Template

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lake.dataset import Conditions, dataset
from lake.remote import delta_table
from lake.store import Lake
from spark_analytics.maintenance.receipts import APPLICATION
from spark_analytics.state.ages_of import MARK_COLUMNS, PARTIAL_COLUMNS

_FIRSTS = resources.files("spark_analytics.state").joinpath("receipts.sql")
_MEMORY = "512MB"
_ATTEMPTS = (ds.field("event_type") == "received") & (ds.field("attempt") == 1) & (ds.field("subscriber") != "")


def partials(lake: Lake, broker: str, queues: Iterable[str], first: int, end: int) -> tuple[pa.Table, int]:
    """The rows of ``queues`` of ``broker`` whose buckets begin from unix second ``first`` until before ``end``, and the
    newest fold of first attempts that they tell of. Raises LakeError."""
    table = lake.ensure("partials")
    begins, ends = (datetime.fromtimestamp(second, UTC) for second in (first, end))
    where: Conditions = (("broker", "=", broker), ("bucket_start", ">=", begins), ("bucket_start", "<", ends))
    start = ds.field("bucket_start")
    mine = (ds.field("broker") == broker) & ds.field("queue").isin(sorted(queues)) & (start >= begins) & (start < ends)
    files = dataset(table, where)
    columns = [name for name in PARTIAL_COLUMNS if name in files.schema.names]
    return files.to_table(columns=columns, filter=mine), table.transaction_version(APPLICATION) or 0


def firsts(lake: Lake, newest: int, broker: str | None = None, queues: Iterable[str] = ()) -> pa.Table:
    """Of each message that named subscribers of ``queues`` (default: all) received its first attempt, where partials
    that have come to fold ``newest`` do not tell of it: broker, queue, '' as the subscriber, tenant, at_second,
    age_seconds, age_index, skewed."""
    files = dataset(lake.ensure("marks"))
    mine = _ATTEMPTS
    if broker is not None:
        mine = mine & (ds.field("broker") == broker) & ds.field("queue").isin(sorted(queues))
    columns = [name for name in MARK_COLUMNS if name in files.schema.names]
    rows = files.to_table(columns=columns, filter=mine)
    if "fold" not in rows.column_names:
        rows = rows.append_column("fold", pa.nulls(rows.num_rows, pa.int64()))
    with duckdb.connect(config={"memory_limit": _MEMORY, "threads": "1"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("marks", rows)
        text = Template(_FIRSTS.read_text(encoding="utf-8")).substitute(newest=newest)
        return connection.execute(text).to_arrow_table()


def attempts(lake: Lake, version: int, since: datetime | None = None, of: pa.Table | None = None) -> pa.Table:
    """First attempts of named subscribers that `marks` had at ``version``: from ``since`` on, or of the messages in
    ``of``. Raises LakeError, or OSError where files of that version are gone."""
    files = dataset(delta_table(lake.path("marks"), version))
    mine = _ATTEMPTS
    if since is not None:
        mine = mine & (ds.field("occurred_at") >= since)
    if of is not None:
        for name in ("broker", "queue", "message_id"):
            mine = mine & ds.field(name).isin(pc.unique(of.column(name).cast(pa.string())))
    columns = [name for name in MARK_COLUMNS if name in files.schema.names]
    rows = files.to_table(columns=columns, filter=mine)
    if of is None:
        return rows
    names = ["broker", "queue", "message_id"]
    wanted = of.select(names).cast(pa.schema([(name, pa.string()) for name in names])).group_by(names).aggregate([])
    return rows.join(wanted, keys=names, join_type="inner")
