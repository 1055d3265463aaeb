"""An ordinary RabbitMQ application, by pika alone: ``produce`` sends orders, ``consume`` works on them.

python -m examples.apps.rabbitmq_app produce|consume AMQP_URL JOURNAL NUMBER
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pika

from examples.apps.journal import Journal

QUEUE = "orders"


def produce(url: str, journal: Journal, number: int) -> None:
    """Send ``number`` orders, one each few milliseconds."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    for index in range(number):
        order = uuid.uuid4().hex
        properties = pika.BasicProperties(message_id=order, headers={"tenant": f"t{index % 3}"})
        journal.note("sent", order)
        channel.basic_publish("", QUEUE, order.encode(), properties)
        time.sleep(0.005)
    connection.close()


def consume(url: str, journal: Journal, number: int) -> None:
    """Work on ``number`` orders, slower than they come."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.basic_qos(prefetch_count=1)
    done = 0

    def work(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal done
        journal.note("begun", properties.message_id)
        time.sleep(0.01)
        journal.note("done", properties.message_id)
        channel.basic_ack(method.delivery_tag)
        done += 1
        if done == number:
            channel.stop_consuming()

    channel.basic_consume(QUEUE, work)
    channel.start_consuming()
    connection.close()


if __name__ == "__main__":
    role, url, path, number = sys.argv[1:]
    {"produce": produce, "consume": consume}[role](url, Journal(Path(path)), int(number))
