"""SQS on ElasticMQ: how many queues a second one process reads, beside boto3 doing only the reads, and its memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from tests.support.elasticmq import ElasticMq

_QUEUES = 2000
_ROUNDS = 5
#: Each reader is a process of its own: what it holds in memory is its own too, and it shares no lock with the other.
_OURS = """
import asyncio, json, sys, time
from collectors.sqs.settings import SqsBroker
from collectors.sqs.source import SqsSource

async def main(url, rounds):
    source = SqsSource(SqsBroker(endpoint=url, list_interval=3600))
    await source.open()
    await source.read()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        samples = await source.read()
        seconds.append(time.perf_counter() - began)
        assert all(sample.depth is not None for sample in samples)
    await source.close()
    return len(samples), seconds

queues, seconds = asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
_BOTO3 = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config

names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
         "VisibilityTimeout", "RedrivePolicy"]
config = Config(max_pool_connections=32, retries={"mode": "adaptive"})
client = boto3.client("sqs", region_name="us-east-1", endpoint_url=sys.argv[1], config=config)
addresses = client.list_queues(MaxResults=1000)["QueueUrls"]
pool = ThreadPoolExecutor(32)
read = lambda address: client.get_queue_attributes(QueueUrl=address, AttributeNames=names)
list(pool.map(read, addresses))
seconds = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    answers = list(pool.map(read, addresses))
    seconds.append(time.perf_counter() - began)
queues = len(answers)
"""
_TELL = """
held = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"queues": queues, "seconds": seconds, "mb": int(held[0].split()[1]) / 1024}))
"""


def measure(scale: float) -> Iterator[Figure]:
    """``sqs_queues_per_second``: the median of several readings by our sampler, and by boto3 with adaptive retries.
    ``sqs_rss_mb``: the most memory that either process held."""
    with tempfile.TemporaryDirectory() as folder:
        server = ElasticMq(Path(folder))
        try:
            server.start()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(server.make, (f"bench-{index:05}" for index in range(max(10, round(_QUEUES * scale))))))
            _read(_OURS, server.url, 2)  # the server's own Java code is compiled as it is used
            ours = _read(_OURS, server.url, _ROUNDS)
            theirs = _read(_BOTO3, server.url, 3)
        finally:
            server.stop()
    yield Figure("sqs_queues_per_second", _rate(ours), "queues/s", _rate(theirs))
    yield Figure("sqs_rss_mb", ours["mb"], "MB", theirs["mb"])


def _rate(told: dict[str, Any]) -> float:
    return float(told["queues"] / statistics.median(told["seconds"]))


def _read(program: str, url: str, rounds: int) -> dict[str, Any]:
    known = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    done = subprocess.run(
        [sys.executable, "-c", program + _TELL, url, str(rounds)],
        env=os.environ | known,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    return dict(json.loads(done.stdout))
