"""An application that uses Dramatiq, over Redis or RabbitMQ by the address in QUEUE_URL.

``app.py work QUEUE…`` works with two threads. ``app.py send`` sends what each line of the input says as JSON ({"actor",
"args", "queue", "delay"}) and prints when each was sent. ``app.py redrive QUEUE`` sends a queue's dead letters on Redis
back.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

URL = os.environ["QUEUE_URL"]
broker = RedisBroker(url=URL) if URL.startswith("redis") else RabbitmqBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def work(tenant: str, seconds: float) -> None:
    """Takes as long as it is told."""
    time.sleep(seconds)


@dramatiq.actor(max_retries=0)
def doomed() -> None:
    """Fails, and is a dead letter at once."""
    raise ValueError("doomed")


@dramatiq.actor(max_retries=3, min_backoff=900_000, max_backoff=1_800_000)
def broken() -> None:
    """Fails, and is tried again in a quarter of an hour."""
    raise ValueError("broken")


def send() -> None:
    actors = {actor.actor_name: actor for actor in (work, doomed, broken)}
    for line in sys.stdin:
        given = json.loads(line)
        message = actors[given["actor"]].message(*given.get("args", ()))
        message = message.copy(queue_name=given.get("queue", "default"))
        broker.declare_queue(message.queue_name)
        before = time.time()
        broker.enqueue(message, delay=given.get("delay"))
        print(json.dumps({"before": before, "after": time.time()}))


def redrive(queue: str) -> None:
    """Enqueue each dead letter anew, then forget it: one that comes twice is better than one that is lost."""
    key = f"{broker.namespace}:{queue}.XQ"
    for identity, body in broker.client.hgetall(f"{key}.msgs").items():
        message = dramatiq.Message.decode(body)
        options = {
            name: value for name, value in message.options.items() if name not in ("retries", "eta", "traceback")
        }
        broker.enqueue(dramatiq.Message(**{**message.asdict(), "queue_name": queue, "options": options}))
        broker.client.zrem(key, identity)
        broker.client.hdel(f"{key}.msgs", identity)
        print(json.dumps({"queue": queue, "message": message.message_id}))


def main() -> None:
    command, *queues = sys.argv[1:]
    if command == "work":
        for queue in queues:
            broker.declare_queue(queue)
        dramatiq.Worker(broker, queues={*queues, *(f"{queue}.DQ" for queue in queues)}, worker_threads=2).start()
        threading.Event().wait()
    elif command == "send":
        send()
    else:
        redrive(*queues)


if __name__ == "__main__":
    main()
