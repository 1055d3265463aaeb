"""SQS in a fair order, through boto3: what a consumer holds is taken by tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sojourn.client.adapters.wrapping import TENANT
from sojourn.client.fair_consumer import FairConsumer

#: SQS hands out so many at once, at most; a receive waits so long for the first (seconds).
MOST_AT_ONCE, WAIT_SECONDS = 10, 1


def tenant_of(message: dict[str, Any]) -> str:
    """The attribute ``tenant``, else the message group."""
    named = (message.get("MessageAttributes") or {}).get(TENANT, {}).get("StringValue")
    return str(named or (message.get("Attributes") or {}).get("MessageGroupId") or "unknown")


class FairSqs(FairConsumer[dict[str, Any]]):
    """Handles a queue's messages by start-time fair queueing over tenants, and deletes what was handled.

    ``sqs`` is boto3's client, or :class:`RecordingSqs`. A message whose ``handle`` raised is told to ``failed``, and
    comes again when its visibility time-out has passed; so does what a consumer held that died. ``options`` are
    :class:`sojourn.FairConsumer`'s. Keep ``buffer`` below what the workers finish within the visibility time-out.
    """

    def __init__(
        self,
        sqs: Any,
        queue_url: str,
        handle: Callable[[dict[str, Any]], object],
        *,
        tenant_of: Callable[[dict[str, Any]], str] = tenant_of,
        **options: Any,
    ) -> None:
        self._sqs, self._url, self._work_on = sqs, queue_url, handle
        super().__init__(self._receive, self._finish, tenant_of, release=self._let_go, **options)

    def _receive(self, most: int) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(MOST_AT_ONCE, most),
            WaitTimeSeconds=WAIT_SECONDS,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))

    def _finish(self, message: dict[str, Any]) -> None:
        self._work_on(message)
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])

    def _let_go(self, message: dict[str, Any]) -> None:
        self._sqs.change_message_visibility(
            QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
