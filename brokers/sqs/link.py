"""One account's queues for those who ask now and then and block: a kept connection, busy servers asked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from brokers.sqs import client, trouble
from brokers.sqs.answers import Kind, Refusal, content
from brokers.sqs.client import Channel, Unanswered
from brokers.sqs.settings import SqsAccount
from lake.errors import SojournError

_ATTEMPTS = 4
_PAUSE = 0.1


class Declined(SojournError):
    """SQS answers, and does not do it: ``kind`` of refusal and the service's own ``code``."""

    def __init__(self, what: str, refusal: Refusal) -> None:
        self.kind: Kind = refusal.kind
        self.code = refusal.reason
        super().__init__(f"{what}: {refusal.reason}")


class Link:
    """Connects when it is first asked. For one thread at a time."""

    def __init__(self, account: SqsAccount) -> None:
        self._account = account
        self._channel: Channel | None = None
        self._addresses: dict[str, str] = {}

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one action.

        ConnectionLost where none comes, CredentialsRefused where we are not known or may not, Declined for the rest.
        """
        refusal = Refusal("busy", "not asked")
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE * 2**attempt if attempt else 0)
            try:
                answer = content(self._open().ask(action, arguments))
            except Unanswered as error:
                raise trouble.lost(self._account, str(error)) from None
            if not isinstance(answer, Refusal):
                return answer
            refusal = answer
            if refusal.kind not in ("throttled", "busy"):
                break
        if refusal.kind in ("throttled", "busy"):
            raise trouble.lost(self._account, f"it is too busy for {action}: {refusal.reason}")
        if refusal.kind in ("credentials", "clock", "denied"):
            raise trouble.refused(self._account, refusal.kind, refusal.reason, f"sqs:{action}")
        raise Declined(f"broker {self._account.name!r} declines {action}", refusal)

    def address(self, queue: str) -> str | None:
        """What requests call a queue; None where there is none of that name."""
        if queue not in self._addresses:
            found = self._of(lambda: self.ask("GetQueueUrl", QueueName=queue)["QueueUrl"])
            if found is None:
                return None
            self._addresses[queue] = str(found)
        return self._addresses[queue]

    def attributes(self, queue: str) -> dict[str, str] | None:
        """All attributes of a queue; None where there is none of that name."""
        address = self.address(queue)
        if address is None:
            return None
        asked = {"QueueUrl": address, "AttributeNames": ["All"]}
        found = self._of(lambda: dict(self.ask("GetQueueAttributes", **asked)["Attributes"]))
        if found is None:
            self._addresses.pop(queue, None)
            return None
        return {str(name): str(value) for name, value in found.items()}

    def close(self) -> None:
        """Disconnect."""
        if self._channel is not None:
            self._channel.close()

    def _open(self) -> Channel:
        if self._channel is None:
            from brokers.sqs.credentials import find

            self._channel = Channel(client.sqs(self._account), find(self._account))
        return self._channel

    def _of(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Declined as error:
            if error.kind == "gone":
                return None
            raise
        except (KeyError, TypeError):
            raise trouble.lost(self._account, "its answers are not those of SQS") from None
