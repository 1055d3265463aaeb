"""``python -m spark_analytics.runtime.training``: make the archive of Java's classes that later starts use.

Runs the statements of an ordinary day in a Spark of its own, which notes what it loaded. Some 30 s of one core, once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from lake.errors import SojournError, UserError
from lake.files import only_one
from lake.schema import TIMESTAMP
from lake.store import Lake
from lake.tables import PARTIALS
from spark_analytics.runtime.archive import SWITCH, TRAINING, archive_path, wait_until_written
from spark_analytics.runtime.cache import cache_root, replacing
from spark_analytics.runtime.launch import begin, quick_command

#: What people ask: a view, a table, an aggregate, a window, a join, a quantile.
ORDINARY = (
    "SELECT * FROM queue_health_now",
    "SELECT queue, tenant, backlog FROM tenant_backlog_now WHERE backlog > 0 ORDER BY backlog DESC LIMIT 10",
    "SELECT queue, max(p99_seconds) AS p99, count(*) AS n FROM attempt_age GROUP BY queue HAVING count(*) > 0",
    "SELECT a.queue, b.depth FROM tenant_backlog_now a LEFT JOIN queue_health_now b USING (queue) WHERE NOT a.noisy",
    "SELECT kind, histogram_quantile(histogram_merge(histogram), 0.99) AS p FROM attempt_age GROUP BY kind ORDER BY 1",
    "SELECT queue, row_number() OVER (PARTITION BY queue ORDER BY backlog) AS r FROM tenant_backlog_now",
)


def main() -> int:
    """Make the archive if it is not there; exit code 1 where that is not possible."""
    os.nice(19)
    try:
        with only_one(cache_root() / "java" / "training.lock", "making the archive of Java's classes"):
            return 0 if ensure_archive() else 1
    except SojournError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def ensure_archive() -> bool:
    """Whether the archive that a quick local session uses is there, made now if it was not."""
    if os.environ.get(SWITCH) == "off":
        return False
    with tempfile.TemporaryDirectory(prefix="sojourn-training-") as folder:
        command = quick_command()
        if command is None:
            return False
        target = archive_path(command)
        if target.is_file():
            return True
        with replacing(target) as temporary:
            temporary.unlink()
            os.environ[TRAINING] = str(temporary)
            try:
                done = _train(temporary, Path(folder))
            finally:
                del os.environ[TRAINING]
            if not done:
                raise UserError("Java wrote no archive of its classes", f"sojourn works without; {SWITCH}=off")
            temporary.chmod(0o644)
    _forget_others(target)
    return True


def _train(target: Path, folder: Path) -> bool:
    ahead = begin()
    if ahead is None:
        return False
    from spark_analytics.sql import Engine, SqlSession

    lake = ordinary_lake(folder / "lake")
    for engine in (Engine.AUTO, Engine.SPARK):
        sql_session = SqlSession(lake, engine=engine, ahead=ahead if engine is Engine.AUTO else None)
        for sql in ORDINARY if engine is Engine.AUTO else ORDINARY[:3]:
            sql_session.answer(sql).table()
        sql_session.close()
    ahead.close()
    return wait_until_written(ahead.process, target)


def ordinary_lake(root: Path) -> Lake:
    """A lake at ``root`` of one queue, with its state finished, as views ask for it."""
    from spark_analytics.state.writer import Writer

    lake = Lake(root)
    lake.create()
    lake.append("partials", pa.Table.from_pylist([_partial()], PARTIALS.schema))
    writer = Writer(root)
    writer.step()
    writer.close()
    return lake


def _partial() -> dict[str, object]:
    """One second of one queue, whatever its numbers."""
    at = datetime.now(UTC)
    row: dict[str, object] = {"broker": "b", "queue": "q", "subscriber": "", "tenant": "t"}
    for field in PARTIALS.schema:
        if field.name not in row:
            row[field.name] = at if field.type == TIMESTAMP else [] if pa.types.is_list(field.type) else 1
    row["completion_age_histogram"] = [{"index": 1, "count": 1}]
    return row


def _forget_others(kept: Path, newest: int = 4) -> None:
    """Archives of Javas and jars that are no more: each takes some 200 MB."""
    others: Sequence[Path] = sorted(kept.parent.glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in others[:-newest]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
