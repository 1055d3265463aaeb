"""An ordinary Kafka application, by confluent-kafka alone: ``produce`` sends orders, ``consume`` works on them.

python -m examples.apps.kafka_app produce|consume BOOTSTRAP JOURNAL NUMBER
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer

from examples.apps.journal import Journal

TOPIC, GROUP = "orders", "billing"


def produce(bootstrap: str, journal: Journal, number: int) -> None:
    """Send ``number`` orders, one each few milliseconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for index in range(number):
        order = uuid.uuid4().hex
        journal.note("sent", order)
        producer.produce(TOPIC, value=order.encode(), headers=[("tenant", f"t{index % 3}".encode())])
        producer.poll(0)
        time.sleep(0.005)
    producer.flush(10)


def consume(bootstrap: str, journal: Journal, number: int) -> None:
    """Work on ``number`` orders, slower than they come; commit each."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    done = 0
    while done < number:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        order = (message.value() or b"").decode()
        journal.note("begun", order)
        time.sleep(0.01)
        journal.note("done", order)
        consumer.commit(message, asynchronous=False)
        done += 1
    consumer.close()


if __name__ == "__main__":
    role, bootstrap, path, number = sys.argv[1:]
    {"produce": produce, "consume": consume}[role](bootstrap, Journal(Path(path)), int(number))
