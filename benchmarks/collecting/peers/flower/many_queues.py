"""A Celery application with many queues and no worker, for Flower to tell their lengths."""

from __future__ import annotations

import os

from celery import Celery
from kombu import Queue

app = Celery("many_queues", broker=os.environ["REDIS_URL"])
app.conf.task_queues = [Queue(f"queue-{number}") for number in range(int(os.environ["QUEUES"]))]
