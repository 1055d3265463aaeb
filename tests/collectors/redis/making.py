"""Queues made by the very libraries that own the layouts: Celery and RQ, each with a worker that is in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import redis
from celery import Celery, Task
from rq import Queue, Retry, SimpleWorker

from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
APP = "tests.collectors.redis.making"

app = Celery("making", broker=os.environ.get("MAKING_BROKER", "redis://127.0.0.1:1/0"))
app.conf.broker_connection_retry_on_startup = True


@app.task(name="making.slow", acks_late=True)
def slow() -> None:
    """A task that is at work for as long as any test."""
    time.sleep(300)


@app.task(name="making.retried", bind=True)
def retried(self: Task) -> None:
    """A task that asks to be tried again in ten minutes."""
    raise self.retry(countdown=600)


def job() -> None:
    """An RQ job that is at work for as long as any test."""
    time.sleep(300)


def broken() -> None:
    """An RQ job that fails."""
    raise ValueError("broken")


@contextmanager
def celery_at_work(server: RedisServer) -> Iterator[float]:
    """Celery's queue ``celery``: 4 wait, one of them at priority 3, 1 is at work, 2 are held back (an ETA, a retry).

    Its oldest message, at work, was enqueued 50 seconds ago by its header: the time is yielded. In ``mail``, which
    nobody consumes, 1 waits without the header.
    """
    oldest = time.time() - 50
    with app.connection_for_write(server.url) as connection:
        send = {"connection": connection}
        slow.apply_async(countdown=900, **send)
        retried.apply_async(**send)
        slow.apply_async(headers={"enqueued_at": oldest}, **send)
        slow.apply_async(queue="mail", priority=9, **send)
    command = [sys.executable, "-m", "celery", "-A", APP, "worker", "--pool", "solo", "--loglevel", "error"]
    command += ["--without-gossip", "--without-mingle", "--queues", "celery"]
    environment = {**os.environ, "MAKING_BROKER": server.url}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, **quiet)
    try:
        with server.client() as client:
            wait_until(lambda: _is_busy(client.hvals("unacked")), "Celery's worker to be busy")
        with app.connection_for_write(server.url) as connection:
            for age in (30, 20, 10):
                slow.apply_async(headers={"enqueued_at": time.time() - age}, connection=connection)
            slow.apply_async(priority=3, connection=connection)
        yield oldest
    finally:
        worker.kill()
        worker.wait()


def _is_busy(unacked: list[bytes]) -> bool:
    """Whether the worker has come to the task at which it stays; the one with an ETA is held back beside it."""
    return len(unacked) == 2 and any(b"enqueued_at" in entry for entry in unacked)


@contextmanager
def rq_at_work(server: RedisServer) -> Iterator[None]:
    """RQ's queue ``default``: 2 wait, 1 is at work, 1 has failed; delayed: 1 scheduled, 1 dependent, 1 retried."""
    with server.client() as client:
        queue = Queue("default", connection=client)
        queue.enqueue(broken)
        queue.enqueue(broken, retry=Retry(max=3, interval=600))
        SimpleWorker([queue], connection=client, log_job_description=False).work(burst=True, logging_level="CRITICAL")
        first = queue.enqueue(job)
        queue.enqueue(job, depends_on=first)
        queue.enqueue_in(timedelta(seconds=900), job)
        queue.enqueue(job)
        queue.enqueue(job)
    work = "import redis, rq, sys; c = redis.Redis.from_url(sys.argv[1]); "
    work += "rq.SimpleWorker([rq.Queue('default', connection=c)], connection=c).work(logging_level='CRITICAL')"
    worker = subprocess.Popen([sys.executable, "-c", work, server.url], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        with server.client() as client:
            wait_until(lambda: client.zcard("rq:wip:default") == 1, "RQ's worker to be busy")
        yield
    finally:
        worker.kill()
        worker.wait()


def streams(client: redis.Redis) -> list[float]:
    """A stream ``events``: the group ``billing`` has 2 pending of 3 delivered and 2 to come, ``audit`` has seen none.

    Ids are ten seconds apart, from 100 seconds ago: these times are returned.
    """
    now = int(time.time())
    times = [now - 100.0 + 10 * number for number in range(5)]
    for number, added in enumerate(times):
        client.xadd("events", {"number": number}, id=f"{added * 1000:.0f}-0")
    client.xgroup_create("events", "billing", id="0")
    client.xgroup_create("events", "audit", id="0")
    [[_, messages]] = client.xreadgroup("billing", "one", {"events": ">"}, count=3)
    client.xack("events", "billing", messages[0][0])
    return times
