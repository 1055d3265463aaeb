"""What `partials` and `marks` have come to, for buckets of age that are no longer held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from string import Template

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from lake.dataset import Conditions, dataset
from lake.remote import delta_table
from lake.store import Lake, explained
from spark_analytics.maintenance.receipts import APPLICATION
from spark_analytics.state.ages_of import MARK_COLUMNS, PARTIAL_COLUMNS

_FIRSTS = resources.files("spark_analytics.state").joinpath("receipts.sql")
_MEMORY = "512MB"
_NO_FIRSTS = pa.schema(
    [(name, pa.string()) for name in ("broker", "queue", "subscriber", "tenant")]
    + [("at_second", pa.int64()), ("age_seconds", pa.float64()), ("age_index", pa.int32()), ("skewed", pa.bool_())]
).empty_table()
_ATTEMPTS = (ds.field("event_type") == "received") & (ds.field("attempt") == 1) & (ds.field("subscriber") != "")


@contextmanager
def _explained(lake: Lake, name: str) -> Iterator[None]:
    """Have errors of reading table ``name`` be ours."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise explained(error, lake.path(name)) from error


def partials(lake: Lake, broker: str, queues: Iterable[str], first: int, end: int) -> tuple[pa.Table, int]:
    """The rows of ``queues`` of ``broker`` whose buckets begin from unix second ``first`` until before ``end``, and the
    newest fold of first attempts that they tell of. Raises LakeError."""
    begins, ends = (datetime.fromtimestamp(second, UTC) for second in (first, end))
    where: Conditions = (("broker", "=", broker), ("bucket_start", ">=", begins), ("bucket_start", "<", ends))
    start = ds.field("bucket_start")
    mine = (ds.field("broker") == broker) & ds.field("queue").isin(sorted(queues)) & (start >= begins) & (start < ends)
    with _explained(lake, "partials"):
        table = lake.ensure("partials")
        files = dataset(table, where)
        columns = [name for name in PARTIAL_COLUMNS if name in files.schema.names]
        return files.to_table(columns=columns, filter=mine), table.transaction_version(APPLICATION) or 0


def firsts(lake: Lake, newest: int, broker: str | None = None, queues: Iterable[str] = ()) -> pa.Table:
    """Of each message that named subscribers of ``queues`` (default: all) received its first attempt, where partials
    that have come to fold ``newest`` do not tell of it: broker, queue, '' as the subscriber, tenant, at_second,
    age_seconds, age_index, skewed. Raises LakeError."""
    mine = _ATTEMPTS
    if broker is not None:
        mine = mine & (ds.field("broker") == broker) & ds.field("queue").isin(sorted(queues))
    rows = _marks(lake, mine)
    if rows.num_rows == 0:  # of most lakes: a query engine's start costs 25 ms
        return _NO_FIRSTS
    if "fold" not in rows.column_names:
        rows = rows.append_column("fold", pa.nulls(rows.num_rows, pa.int64()))
    with duckdb.connect(config={"memory_limit": _MEMORY, "threads": "1"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("marks", rows)
        text = Template(_FIRSTS.read_text(encoding="utf-8")).substitute(newest=newest)
        return connection.execute(text).to_arrow_table()


def attempts_since(lake: Lake, version: int, since: datetime) -> pa.Table:
    """First attempts of named subscribers from ``since`` on that `marks` had at ``version``. Raises LakeError, where
    files of that version are gone as well."""
    return _marks(lake, _ATTEMPTS & (ds.field("occurred_at") >= since), version)


def attempts_at(lake: Lake, version: int, of: pa.Table) -> pa.Table:
    """The same at any time of the messages in ``of``."""
    names = ["broker", "queue", "message_id"]
    wanted = of.select(names).cast(pa.schema([(name, pa.string()) for name in names])).group_by(names).aggregate([])
    mine = _ATTEMPTS
    for name in names:
        mine = mine & ds.field(name).isin(pc.unique(wanted.column(name)))
    return _marks(lake, mine, version).join(wanted, keys=names, join_type="inner")


def _marks(lake: Lake, chosen: ds.Expression, version: int | None = None) -> pa.Table:
    """The ``chosen`` rows that `marks` had at ``version``, or have."""
    with _explained(lake, "marks"):
        table = lake.ensure("marks") if version is None else delta_table(lake.path("marks"), version)
        files = dataset(table)
        return files.to_table(columns=[name for name in MARK_COLUMNS if name in files.schema.names], filter=chosen)
