"""A producer and a worker around a plain in-memory queue, told to Sojourn: `python examples/client/worker.py`.

It needs nothing but Sojourn's client. With a collector on port 4318 (`sojourn collect` with `[collect.receive]`) the
events arrive in the lake; without one the program runs just the same, and the last line says what was left.
"""

from __future__ import annotations

import queue
import random
import threading
import time
import uuid

import sojourn

recorder = sojourn.Recorder("http://127.0.0.1:4318", broker="memory", worker="example")
orders: queue.Queue[tuple[str, str, float]] = queue.Queue()


def produce(messages: int) -> None:
    """Put messages of three tenants into the queue."""
    for _ in range(messages):
        message_id, tenant = str(uuid.uuid4()), random.choice(("acme", "zeta", "kappa"))
        orders.put((message_id, tenant, time.time()))
        recorder.enqueued("orders", message_id, tenant=tenant)
        time.sleep(0.01)


def work() -> None:
    """Take messages until none comes for a second."""
    while True:
        try:
            with recorder.poll("orders") as poll:
                message_id, tenant, enqueued_at = orders.get(timeout=1)
                poll.messages = 1
        except queue.Empty:
            return
        try:
            with recorder.attempt("orders", message_id, tenant=tenant, attempt=1, enqueued_at=enqueued_at):
                time.sleep(random.expovariate(100))
                if random.random() < 0.02:
                    raise ValueError("an order nobody can read")
        except ValueError:
            recorder.dead_lettered("orders", message_id, tenant=tenant, attempt=1, reason="unreadable")


if __name__ == "__main__":
    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    produce(300)
    for worker in workers:
        worker.join()
    recorder.close(timeout=5)
    print(recorder.stats())
