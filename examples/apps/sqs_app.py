"""An ordinary SQS application, by boto3 alone: ``produce`` sends orders, ``consume`` works on them and deletes them.

python -m examples.apps.sqs_app produce|consume ENDPOINT JOURNAL NUMBER
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Any

import boto3

from examples.apps.journal import Journal

QUEUE = "orders"


def client(endpoint: str) -> Any:
    """A client as any application makes it; credentials and region come from the environment."""
    return boto3.client("sqs", endpoint_url=endpoint)


def produce(endpoint: str, journal: Journal, number: int) -> None:
    """Send ``number`` orders, one each few milliseconds."""
    sqs = client(endpoint)
    url = sqs.create_queue(QueueName=QUEUE)["QueueUrl"]
    for index in range(number):
        order = uuid.uuid4().hex
        tenant = {"tenant": {"DataType": "String", "StringValue": f"t{index % 3}"}}
        journal.note("sent", order)
        sqs.send_message(QueueUrl=url, MessageBody=order, MessageAttributes=tenant)
        time.sleep(0.005)


def consume(endpoint: str, journal: Journal, number: int) -> None:
    """Work on ``number`` orders, slower than they come; delete each."""
    sqs = client(endpoint)
    url = sqs.create_queue(QueueName=QUEUE)["QueueUrl"]
    done = 0
    while done < number:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageAttributeNames=["All"]
        )
        for message in answer.get("Messages", []):
            journal.note("begun", message["Body"])
            time.sleep(0.01)
            journal.note("done", message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            done += 1


if __name__ == "__main__":
    role, endpoint, path, number = sys.argv[1:]
    {"produce": produce, "consume": consume}[role](endpoint, Journal(Path(path)), int(number))
