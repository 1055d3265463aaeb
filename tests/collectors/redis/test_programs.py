"""The example's two programs, as a user runs them, observed from outside: what they log and what is sampled agree."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.redis.reading import counts, read
from tests.support.redis import RedisServer

ROOT = Path(__file__).parents[3]


def run(program: str, server: RedisServer, *arguments: str) -> list[dict[str, Any]]:
    """The lines that ``program`` printed."""
    command = [sys.executable, "-m", f"examples.redis_queue.{program}", "--url", server.url, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_age_that_is_sampled_is_the_age_that_the_applications_log(redis_server: RedisServer) -> None:
    pushed = run("producer", redis_server, "--rate", "200", "--count", "40", "--delayed", "0")
    time.sleep(1)
    sample = read(redis_server, dyno={"prefix": "app"})["orders", None]
    assert counts(sample) == (40, 0, 0)
    assert sample.oldest_age_seconds == pytest.approx(sample.sampled_at / 1e6 - pushed[0]["at"], abs=0.1)
    lives = run("consumer", redis_server, "--work", "0", "--count", "40", "--forget", "0.2", "--visibility", "0.5")
    received = [life for life in lives if life["event"] == "received"]
    assert received[0]["age_seconds"] >= sample.oldest_age_seconds
    assert {life["id"] for life in lives if life["event"] == "completed"} == {one["id"] for one in pushed}
    assert sum(life["event"] == "forgotten" for life in lives) == len(received) - 40
    after = read(redis_server, dyno={"prefix": "app", "queues": ["orders"], "shards": ["a", "b"]})["orders", None]
    assert counts(after) == (0, 0, 0)
    assert after.oldest_age_seconds == 0.0
