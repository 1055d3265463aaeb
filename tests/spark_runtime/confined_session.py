"""A confined Spark, told by its own side to do what no check would let pass; prints what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.store import Lake
from spark_analytics.connect.inside import serve_inside
from spark_analytics.runtime.launch import begin
from spark_analytics.runtime.session import build_session


def main(lake: Lake, outside: Path) -> None:
    """Try to read and write ``outside`` of ``lake``, to reach others, and to find the secrets."""
    ahead = begin("512m", lake=lake.root)
    assert ahead is not None
    session = build_session("confined", quick_start=True, ahead=ahead)
    java: Any = session._jvm
    port, token = serve_inside(session)
    secret = outside / "secret"

    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: session.read.text(str(secret)).collect(),
        "write": lambda: session.range(1).write.parquet(str(outside / "written")),
        "write to the lake": lambda: session.range(1).write.parquet(str(lake.root / "written")),
        "remove": lambda: java.java.nio.file.Files.delete(java.java.nio.file.Path.of(str(secret))),
        "start Python": lambda: session.createDataFrame([(1,)], "n INT").collect(),
        "connect": lambda: java.java.net.Socket("127.0.0.1", port),
        "the environment of its parent": lambda: java.java.nio.file.Files.readAllBytes(
            java.java.nio.file.Path.of(f"/proc/{os.getpid()}/environ")
        ),
    }
    kept = [
        *(f"{row.key}={row.value}" for row in session.sql("SET").collect()),
        *(f"{row.key}={row.value}" for row in session.newSession().sql("SET").collect()),
        *(f"{key}={value}" for key, value in session.sparkContext.getConf().getAll()),
        *map(str, java.java.lang.System.getProperties().entrySet()),
        *map(str, java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()),
        Path(f"/proc/{ahead.process.pid}/cmdline").read_text(),
        Path(f"/proc/{ahead.process.pid}/environ").read_text(),
    ]
    told = {
        "lake": session.read.format("delta").load(str(lake.path("partials"))).count(),
        "own rows": session.createDataFrame(pa.table({"n": [1]})).count(),
        "refused": {name: _refusal(attempt) for name, attempt in attempts.items()},
        "environment": sorted(java.java.lang.System.getenv().keySet()),
        "token": [where[:80] for where in kept if token in where],
    }
    session.stop()
    ahead.close()
    print(json.dumps(told))


def _refusal(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(Lake(Path(sys.argv[1])), Path(sys.argv[2]))
