"""BullMQ by npm: the unmodified library in the producers and workers of examples/bullmq, ended by their process ids."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import node_folder
from tests.support.redis import RedisServer
from tests.support.servers import program

EXAMPLE = Path(__file__).parents[2] / "examples" / "bullmq"


def produce(server: RedisServer, *jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add ``jobs`` by BullMQ's own client: before and after which second each was added."""
    return _node(server, "produce.mjs", given="".join(json.dumps(job) + "\n" for job in jobs))


def redrive(server: RedisServer, queue: str) -> dict[str, Any]:
    """Send every failed job of ``queue`` back, as the example does."""
    (told,) = _node(server, "redrive.mjs", queue)
    return told


def _node(server: RedisServer, name: str, *arguments: str, given: str = "") -> list[dict[str, Any]]:
    command, folder = [str(program("node")), name, *arguments], node_folder(EXAMPLE)
    ended = subprocess.run(
        command, cwd=folder, input=given, env=_environment(server), capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@contextmanager
def worker(
    server: RedisServer, *queues: str, concurrency: int = 2, fixed: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a worker for each of ``queues``; killed at the end: its jobs stay active, without a lock.

    ``fixed``: it runs the release in which no job is broken any more.
    """
    command = [str(program("node")), "work.mjs", str(concurrency), *queues]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = _environment(server) | ({"FIXED": "1"} if fixed else {})
    process = subprocess.Popen(command, cwd=node_folder(EXAMPLE), env=environment, **quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(server: RedisServer) -> dict[str, str]:
    return {**os.environ, "REDIS_URL": server.url}
