"""SQS through boto3: ``sqs = RecordingSqs(boto3.client("sqs"), recorder)``, and use it as before.

``send_message`` tells enqueued, ``receive_message`` received (with SentTimestamp and ApproximateReceiveCount, which it
asks for) and how long it waited for how many, ``delete_message`` completed, a visibility timeout of 0 failed. The
batch calls do likewise. The tenant is the message attribute ``tenant``, else the message group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, Deliveries, Delivery, Wrapped
from sojourn.client.attempt import Attempt
from sojourn.client.recorder import Recorder

BROKER = "sqs"
_SYSTEM_ATTRIBUTES = ("SentTimestamp", "ApproximateReceiveCount", "MessageGroupId")


class RecordingSqs(Wrapped):
    """A boto3 SQS client that records. ``tenant_attribute`` is the message attribute that names the tenant."""

    def __init__(self, client: Any, recorder: Recorder, *, tenant_attribute: str = TENANT) -> None:
        super().__init__(client, recorder)
        self._tenant_attribute = tenant_attribute
        self._deliveries = Deliveries(recorder)

    def send_message(self, **request: Any) -> Any:
        """As boto3's; tells enqueued, and counts how long it took."""
        with self._recorder.publishing(queue_name(request["QueueUrl"]), broker=BROKER):
            response = self._inner.send_message(**request)
        self._sent(request["QueueUrl"], request, response.get("MessageId"))
        return response

    def send_message_batch(self, **request: Any) -> Any:
        """As boto3's; tells enqueued of those that the queue took."""
        entries = {entry["Id"]: entry for entry in request["Entries"]}
        queue, started = queue_name(request["QueueUrl"]), time.monotonic()
        taken = 0
        try:
            response = self._inner.send_message_batch(**request)
            taken = len(response.get("Successful", ()))
        finally:
            seconds = time.monotonic() - started
            for number in range(len(entries)):
                self._recorder.published(queue, seconds=seconds, failed=number >= taken, broker=BROKER)
        for sent in response.get("Successful", ()):
            self._sent(request["QueueUrl"], entries[sent["Id"]], sent.get("MessageId"))
        return response

    def receive_message(self, **request: Any) -> Any:
        """As boto3's; tells received of each message, and counts the poll."""
        old = "AttributeNames" in request
        asked = request.get("AttributeNames" if old else "MessageSystemAttributeNames", ())
        request["AttributeNames" if old else "MessageSystemAttributeNames"] = _with(asked, _SYSTEM_ATTRIBUTES)
        request["MessageAttributeNames"] = _with(request.get("MessageAttributeNames", ()), (self._tenant_attribute,))
        queue = queue_name(request["QueueUrl"])
        with self._recorder.poll(queue, broker=BROKER) as poll:
            response = self._inner.receive_message(**request)
            messages = response.get("Messages", ())
            poll.messages = len(messages)
        since = time.monotonic()
        for message in messages:
            system = message.get("Attributes", {})
            sent, count = system.get("SentTimestamp"), system.get("ApproximateReceiveCount")
            delivery = Delivery(
                BROKER,
                queue,
                message["MessageId"],
                None,
                self._tenant(message, system),
                int(count) if count else None,
                int(sent) / 1000 if sent else None,
                since,
            )
            self._deliveries.received(message["ReceiptHandle"], delivery)
        return response

    def delete_message(self, **request: Any) -> Any:
        """As boto3's; tells completed."""
        response = self._inner.delete_message(**request)
        self._deliveries.ended(request["ReceiptHandle"], "completed")
        return response

    def delete_message_batch(self, **request: Any) -> Any:
        """As boto3's; tells completed of those that were deleted."""
        response = self._inner.delete_message_batch(**request)
        handles = {entry["Id"]: entry["ReceiptHandle"] for entry in request["Entries"]}
        for deleted in response.get("Successful", ()):
            self._deliveries.ended(handles[deleted["Id"]], "completed")
        return response

    def change_message_visibility(self, **request: Any) -> Any:
        """As boto3's; a timeout of 0 gives the message back, and tells failed."""
        response = self._inner.change_message_visibility(**request)
        if request["VisibilityTimeout"] == 0:
            self._deliveries.ended(request["ReceiptHandle"], "failed", "released")
        return response

    def change_message_visibility_batch(self, **request: Any) -> Any:
        """As boto3's; a timeout of 0 gives a message back, and tells failed."""
        response = self._inner.change_message_visibility_batch(**request)
        entries = {entry["Id"]: entry for entry in request["Entries"]}
        for changed in response.get("Successful", ()):
            entry = entries[changed["Id"]]
            if entry.get("VisibilityTimeout") == 0:
                self._deliveries.ended(entry["ReceiptHandle"], "failed", "released")
        return response

    def _sent(self, queue_url: str, entry: Mapping[str, Any], message_id: str | None) -> None:
        if message_id is not None:
            tenant = self._tenant(entry, entry)
            self._recorder.enqueued(queue_name(queue_url), message_id, broker=BROKER, tenant=tenant)

    def _tenant(self, message: Mapping[str, Any], system: Mapping[str, Any]) -> str | None:
        named = message.get("MessageAttributes", {}).get(self._tenant_attribute, {}).get("StringValue")
        tenant: str | None = named or system.get("MessageGroupId")
        return tenant

    def attempt(self, queue_url: str, message: Mapping[str, Any], visibility_timeout: int) -> SqsAttempt:
        """Work on a received message while its visibility is renewed; an exception fails the attempt.

        ``with sqs.attempt(url, message, 30) as attempt: …; attempt.check(); sqs.delete_message(…)``
        """
        return SqsAttempt(self, queue_url, message, visibility_timeout)


class SqsAttempt(Attempt):
    """An attempt whose beginning :class:`RecordingSqs` has told, and whose completion deleting the message tells."""

    def __init__(self, sqs: RecordingSqs, queue_url: str, message: Mapping[str, Any], visibility_timeout: int) -> None:
        handle = message["ReceiptHandle"]
        delivery = sqs._deliveries.get(handle)

        def extend() -> None:
            sqs._inner.change_message_visibility(
                QueueUrl=queue_url, ReceiptHandle=handle, VisibilityTimeout=visibility_timeout
            )

        super().__init__(
            sqs._recorder,
            queue_name(queue_url),
            message["MessageId"],
            {},
            visibility_timeout,
            extend,
            None if delivery is None else delivery.since,
        )
        self._deliveries, self._handle = sqs._deliveries, handle

    def _tell_begin(self) -> None:
        """It is told: the message was received before."""

    def _tell_end(self, event_type: str, reason: str | None, seconds: float) -> None:
        if event_type != "completed":
            self._deliveries.ended(self._handle, event_type, reason)


def queue_name(url: str) -> str:
    """The queue's name, which is the last part of its address."""
    return url.rstrip("/").rpartition("/")[2]


def _with(asked: Iterable[str], more: Iterable[str]) -> list[str]:
    names = list(asked)
    return names if "All" in names else list(dict.fromkeys((*names, *more)))
