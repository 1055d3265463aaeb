"""Sidekiq as Debian has it: unmodified producers and workers of examples/sidekiq, ended by their own process ids."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.applications import answers, at_work
from tests.support.debian import debian_program
from tests.support.redis import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "sidekiq"


def push(server: RedisServer, *jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Push ``jobs`` by Sidekiq's own client: before and after which second each was pushed."""
    told = answers(_ruby("push.rb"), _environment(server), given=jobs)
    assert len(told) == len(jobs)
    return told


def redrive(server: RedisServer) -> list[dict[str, Any]]:
    """Send every dead job back, as the example does."""
    return answers(_ruby("redrive.rb"), _environment(server))


def sidekiq(
    server: RedisServer, *queues: str, concurrency: int = 2, fixed: bool = False
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A Sidekiq process that works on ``queues``; killed at the end, and what it holds is lost with it.

    ``fixed``: it runs the release in which no job is broken any more.
    """
    command = [str(debian_program("ruby-sidekiq", "sidekiq")), "-r", str(EXAMPLE / "jobs.rb"), "-c", str(concurrency)]
    for queue in queues:
        command += ["-q", queue]
    return at_work(command, _environment(server) | ({"FIXED": "1"} if fixed else {}), folder=EXAMPLE)


def _ruby(program: str) -> list[str]:
    debian_program("ruby-sidekiq", "sidekiq")
    return [str(debian_program("ruby", "ruby")), str(EXAMPLE / program)]


def _environment(server: RedisServer) -> dict[str, str]:
    return {"REDIS_URL": server.url}
