"""A lake in an object store: event → readable in gold, what a commit takes, and the requests that each costs.

The store is a server of the S3 protocol on this machine, written in Python, that shares the processors with all else:
beside each commit stands what the same server takes for as many puts of the same bytes by a bare client.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from obstore.store import S3Store

from benchmarks.analytics_parts.live import SECONDS, lived
from benchmarks.analytics_parts.making import lives
from benchmarks.analytics_parts.scale import as_read
from benchmarks.figures import Figure
from benchmarks.processor import yardstick_seconds
from lake.store import Lake
from spark_analytics.batches.flows import EVENTS
from tests.support.s3 import BUCKET, CREDENTIALS, Request, S3Server

RATE, TENANTS = 10_000, 1_000
COMMITS, EVENTS_A_COMMIT = 60, 2_000
#: A commit is one put of rows and one of the log's entry; bronze has a checksum for Spark besides.
PUTS = {"message_events": 3, "partials": 2}


def measure(scale: float) -> Iterator[Figure]:
    """Commits by themselves, then freshness at 10,000 events/s and 1,000 tenants."""
    os.environ |= CREDENTIALS
    yield Figure("yardstick_seconds", yardstick_seconds(), "s")
    yield Figure("load", os.getloadavg()[0], "1")
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as name:
        folder = Path(name)
        with S3Server(folder / "s3", noting=True) as server:
            yield from _commits(server, folder, max(10, int(COMMITS * scale)))
            live = lived(server.home(folder / "live", "live"), RATE, TENANTS, scale)
            for name, ages in (("s3_freshness", live.ages), ("s3_freshness_finished", live.finished)):
                yield Figure(f"{name}_p50_seconds", statistics.median(ages), "s")
                yield Figure(f"{name}_p99_seconds", float(np.quantile(ages, 0.99)), "s")
            yield Figure("s3_rss_mb", live.memory, "MB")
            yield from _asked(server.requests(), SECONDS * scale)
    yield Figure("load_afterwards", os.getloadavg()[0], "1")


def _commits(server: S3Server, folder: Path, count: int) -> Iterator[Figure]:
    """What a commit of ``EVENTS_A_COMMIT`` events takes in bronze, and what one of their partials takes in gold."""
    lake = Lake(server.home(folder / "commits", "commits"))
    bronze = lives(EVENTS_A_COMMIT // 3, begins=time.time(), rate=RATE, tenants=TENANTS)
    gold = EVENTS.compute(as_read(bronze))["partials"]
    for table, rows in (("message_events", bronze), ("partials", gold)):
        lake.append(table, rows, app_id="bench", version=0)  # which opens the table
        before = len(server.requests())
        took = [_seconds(_append, lake, table, rows, number) for number in range(1, count + 1)]
        asked = server.requests()[before:]
        size = pa.table(lake.ensure(table).get_add_actions(flatten=True)).column("size_bytes")[0].as_py()
        plain = _plain(server, size, PUTS[table], count)
        name = f"s3_commit_{table}"
        yield Figure(f"{name}_p50_ms", 1e3 * statistics.median(took), "ms", 1e3 * statistics.median(plain))
        yield Figure(
            f"{name}_p95_ms", 1e3 * float(np.quantile(took, 0.95)), "ms", 1e3 * float(np.quantile(plain, 0.95))
        )
        yield Figure(f"{name}_requests", len(asked) / count, "1", PUTS[table])


def _append(lake: Lake, table: str, rows: pa.Table, number: int) -> None:
    assert lake.append(table, rows, app_id="bench", version=number)


def _plain(server: S3Server, size: int, puts: int, count: int) -> list[float]:
    """Seconds that as many puts of rows, an entry and so on take by themselves."""
    bare = S3Store(
        BUCKET,
        config={"endpoint": server.url, "region": "us-east-1"},
        client_options={"allow_http": True},
        prefix="bare",
    )

    def put(number: int) -> None:
        for place in range(puts):
            bare.put(f"{number}-{place}", bytes(1_000 if place else size))

    return [_seconds(put, number) for number in range(count)]


def _asked(requests: Sequence[Request], seconds: float) -> Iterator[Figure]:
    """Requests a second of the last ``seconds`` of analysis, by client; the kinds of them on standard error."""
    end = requests[-1].at
    last = [one for one in requests if one.at > end - seconds and "/live/" in one.path]
    kinds: Counter[tuple[str, ...]] = Counter()
    took: Counter[tuple[str, ...]] = Counter()
    for one in last:
        kind = (one.client, one.method, one.status, _kind(one.path))
        kinds[kind] += 1
        took[kind] += one.seconds  # type: ignore[assignment]
    for kind, number in kinds.most_common():
        print(f"{number / seconds:7.2f}/s {1e3 * took[kind] / number:6.1f} ms  {' '.join(kind)}", file=sys.stderr)
    for client in sorted({one.client for one in last}):
        count = sum(one.client == client for one in last)
        yield Figure(f"s3_requests_{client.lower().replace(' ', '_')}", count / seconds, "1/s")


def _kind(path: str) -> str:
    """What of a table a request is about: ``message_events entry``."""
    parts = urlsplit(path)
    words = parts.path.strip("/").split("/")
    if "list-type" in parts.query or "prefix=" in parts.query:
        return "list " + parts.query.partition("prefix=")[2].partition("&")[0][-60:]
    layers = [number for number, word in enumerate(words) if word in ("bronze", "gold", "alerts")]
    table = words[layers[0] + 1] if layers else "-"
    name = words[-1]
    digits = name[:20].isdigit()
    return (
        f"{table} {'entry' if digits and name.endswith('.json') else name[20:] if digits else name.rpartition('.')[2]}"
    )


def _seconds(work: Callable[..., None], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started
