"""What `partials` and `marks` have come to, for buckets of age that are no longer held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from lake.dataset import Conditions, dataset
from lake.remote import delta_table
from lake.store import Lake, explained
from spark_analytics.maintenance.receipts import APPLICATION
from spark_analytics.state.ages_of import MARK_COLUMNS, PARTIAL_COLUMNS

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
    mine = _of_queues(broker, queues) & (start >= begins) & (start < ends)
    with _explained(lake, "partials"):
        table = lake.ensure("partials")
        files = dataset(table, where)
        columns = [name for name in PARTIAL_COLUMNS if name in files.schema.names]
        return files.to_table(columns=columns, filter=mine), table.transaction_version(APPLICATION) or 0


def attempts(lake: Lake, broker: str | None = None, queues: Iterable[str] = ()) -> pa.Table:
    """First attempts of named subscribers of ``queues`` of ``broker`` (default: of all). Raises LakeError."""
    return _marks(lake, _ATTEMPTS if broker is None else _ATTEMPTS & _of_queues(broker, queues))


def _of_queues(broker: str, queues: Iterable[str]) -> ds.Expression:
    return (ds.field("broker") == broker) & ds.field("queue").isin(sorted(queues))


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
