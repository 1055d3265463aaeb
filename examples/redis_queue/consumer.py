"""Receives messages, works on each for a while, acknowledges it. One JSON line an event on standard output.

    python -m examples.redis_queue.consumer --url redis://127.0.0.1:6379/0 --work 0.1

``age_seconds`` is the application's own measurement of what Sojourn observes from outside. Some messages are left
unacknowledged on purpose (``--forget``): the sweep delivers them again.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import redis

from examples.redis_queue.recipe import Message, Queue

_SWEEP_EVERY = 1.0
_IDLE = 0.05


def main() -> None:
    """Consume until ``--count`` messages are acknowledged, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--shards", nargs="+", default=["a", "b"])
    parser.add_argument("--visibility", type=float, default=10.0, help="seconds until an unacknowledged message is due")
    parser.add_argument("--work", type=float, default=0.1, help="mean seconds of work on a message")
    parser.add_argument("--forget", type=float, default=0.02, help="share of deliveries that are not acknowledged")
    parser.add_argument("--count", type=int, default=None, help="messages to acknowledge; unset: go on for ever")
    chosen = parser.parse_args()
    done, swept = 0, 0.0
    with redis.Redis.from_url(chosen.url) as client:
        queue = Queue(client, chosen.queue, shards=chosen.shards, visibility=chosen.visibility)
        while chosen.count is None or done < chosen.count:
            if time.monotonic() - swept > _SWEEP_EVERY:
                swept = time.monotonic()
                queue.sweep()
            messages = queue.poll()
            if not messages:
                time.sleep(_IDLE)
            for message in messages:
                _say("received", message)
                time.sleep(random.expovariate(1 / chosen.work) if chosen.work > 0 else 0.0)
                if random.random() < chosen.forget:
                    _say("forgotten", message)
                elif queue.ack(message):
                    done += 1
                    _say("completed", message)


def _say(event: str, message: Message) -> None:
    age = time.time() - message.enqueued_at
    print(json.dumps({"event": event, "id": message.id, "at": time.time(), "age_seconds": age}), flush=True)


if __name__ == "__main__":
    main()
