"""Pushes messages of several tenants at a rate, some of them delayed. One JSON line a message on standard output.

python -m examples.redis_queue.producer --url redis://127.0.0.1:6379/0 --rate 20 --count 200
"""

from __future__ import annotations

import argparse
import json
import random
import time

import redis

from examples.redis_queue.recipe import Queue


def main() -> None:
    """Push ``--count`` messages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--shards", nargs="+", default=["a", "b"])
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--delayed", type=float, default=0.1, help="share of messages that are due later")
    parser.add_argument("--delay", type=float, default=5.0, help="seconds by which they are")
    chosen = parser.parse_args()
    with redis.Redis.from_url(chosen.url) as client:
        queue = Queue(client, chosen.queue, shards=chosen.shards)
        due = time.monotonic()
        for number in range(chosen.count):
            delay = chosen.delay if random.random() < chosen.delayed else 0.0
            payload = {"tenant": f"tenant-{number % 3}", "number": number}
            id = queue.push(payload, delay=delay, priority=number % 3)
            print(json.dumps({"event": "enqueued", "id": id, "at": time.time(), "delay": delay, **payload}), flush=True)
            due += 1 / chosen.rate
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
