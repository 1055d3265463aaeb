"""BullMQ by npm: the unmodified library in the producers and workers of examples/bullmq, ended by their process ids."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.applications import answers, at_work
from tests.support.programs import node, node_folder
from tests.support.redis import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "bullmq"


def produce(server: RedisServer, *jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add ``jobs`` by BullMQ's own client: before and after which second each was added."""
    return answers(_node("produce.mjs"), _environment(server), given=jobs, folder=node_folder(EXAMPLE))


def redrive(server: RedisServer, queue: str) -> dict[str, Any]:
    """Send every failed job of ``queue`` back, as the example does."""
    (told,) = answers(_node("redrive.mjs", queue), _environment(server), folder=node_folder(EXAMPLE))
    return told


def worker(
    server: RedisServer, *queues: str, concurrency: int = 2, fixed: bool = False
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A process with a worker for each of ``queues``; killed at the end: its jobs stay active, without a lock.

    ``fixed``: it runs the release in which no job is broken any more.
    """
    environment = _environment(server) | ({"FIXED": "1"} if fixed else {})
    return at_work(_node("work.mjs", str(concurrency), *queues), environment, folder=node_folder(EXAMPLE))


def _node(name: str, *arguments: str) -> list[str]:
    return [str(node()), name, *arguments]


def _environment(server: RedisServer) -> dict[str, str]:
    return {"REDIS_URL": server.url}
