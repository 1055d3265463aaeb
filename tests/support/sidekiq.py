"""Sidekiq as Debian has it: unmodified producers and workers of examples/sidekiq, ended by their own process ids."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.debian import debian_program
from tests.support.redis import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "sidekiq"


def push(server: RedisServer, *jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Push ``jobs`` by Sidekiq's own client: before and after which second each was pushed."""
    told = _ruby(server, "push.rb", "".join(json.dumps(job) + "\n" for job in jobs))
    assert len(told) == len(jobs)
    return told


def redrive(server: RedisServer) -> list[dict[str, Any]]:
    """Send every dead job back, as the example does."""
    return _ruby(server, "redrive.rb", "")


def _ruby(server: RedisServer, program: str, given: str) -> list[dict[str, Any]]:
    debian_program("ruby-sidekiq", "sidekiq")
    command = [str(debian_program("ruby", "ruby")), str(EXAMPLE / program)]
    ended = subprocess.run(command, input=given, env=_environment(server), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@contextmanager
def sidekiq(
    server: RedisServer, *queues: str, concurrency: int = 2, fixed: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A Sidekiq process that works on ``queues``; killed at the end, and what it holds is lost with it.

    ``fixed``: it runs the release in which no job is broken any more.
    """
    command = [str(debian_program("ruby-sidekiq", "sidekiq")), "-r", str(EXAMPLE / "jobs.rb"), "-c", str(concurrency)]
    for queue in queues:
        command += ["-q", queue]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        command, cwd=EXAMPLE, env=_environment(server) | ({"FIXED": "1"} if fixed else {}), **quiet
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(server: RedisServer) -> dict[str, str]:
    return {**os.environ, "REDIS_URL": server.url}
