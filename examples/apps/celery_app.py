"""An ordinary Celery application on Redis: ``produce`` calls tasks, ``consume`` is a worker that runs them.

python -m examples.apps.celery_app produce|consume REDIS_URL JOURNAL NUMBER
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import task_postrun
from celery.worker import state

from examples.apps.journal import Journal

QUEUE = "orders"

app = Celery("orders", broker=os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/0"))
app.conf.update(task_default_queue=QUEUE, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task(name="work")  # type: ignore[untyped-decorator]
def work(order: str, path: str) -> None:
    """Work on one order."""
    journal = Journal(Path(path))
    journal.note("begun", order)
    time.sleep(0.01)
    journal.note("done", order)


def produce(path: str, number: int) -> None:
    """Call the task ``number`` times, once each few milliseconds."""
    journal = Journal(Path(path))
    for _ in range(number):
        order = uuid.uuid4().hex
        journal.note("sent", order)
        work.delay(order, path)
        time.sleep(0.005)


def consume(number: int) -> None:
    """A worker of one thread, which stops after ``number`` tasks."""
    done = 0

    def count(**_: Any) -> None:
        nonlocal done
        done += 1
        if done == number:
            state.should_stop = 0  # the worker looks at it between two tasks; 0 is its exit code

    task_postrun.connect(count, weak=False)
    app.Worker(pool="solo", concurrency=1, loglevel="WARNING", without_gossip=True, without_mingle=True).start()


if __name__ == "__main__":
    role, url, path, number = sys.argv[1:]
    app.conf.broker_url = url
    produce(path, int(number)) if role == "produce" else consume(int(number))
