"""Which queues there are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from brokers.sqs import trouble
from brokers.sqs.answers import Refusal, content
from brokers.sqs.client import Channel, Unanswered
from collectors.broker import matching
from collectors.sqs import parse
from collectors.sqs.settings import SqsBroker

_PAGE = 1000
#: A million queues: a server that never ends its listing is not followed further.
_PAGES = 1000
_PAUSE = 0.2


def addresses(broker: SqsBroker, channel: Channel, *, attempts: int) -> list[str] | None:
    """The addresses of all queues; None if the service is too busy to tell, ``attempts`` times.

    ConnectionLost or CredentialsRefused where it does not answer, or not to us.
    """
    found: dict[str, None] = {}
    token: str | None = None
    for _ in range(_PAGES):
        asked: dict[str, Any] = {"MaxResults": _PAGE}
        asked |= {"QueueNamePrefix": broker.prefix} if broker.prefix else {}
        asked |= {"NextToken": token} if token else {}
        answer = _page(broker, channel, asked, attempts)
        if answer is None:
            return None
        try:
            some, token = parse.page(answer)
        except ValueError:
            raise trouble.lost(broker, "its listing of queues cannot be read") from None
        found.update(dict.fromkeys(some))
        if token is None:
            break
    return [address for address in found if not matching(address.rsplit("/", 1)[-1], broker.exclude)]


def _page(broker: SqsBroker, channel: Channel, asked: Mapping[str, Any], attempts: int) -> dict[str, Any] | None:
    for attempt in range(attempts):
        time.sleep(_PAUSE * 2**attempt if attempt else 0)
        try:
            answer = content(channel.ask("ListQueues", asked))
        except Unanswered as error:
            raise trouble.lost(broker, str(error)) from None
        if not isinstance(answer, Refusal):
            return answer
        if answer.kind in ("credentials", "clock", "denied"):
            raise trouble.refused(broker, answer.kind, answer.reason, "sqs:ListQueues")
        if answer.kind not in ("throttled", "busy"):
            raise trouble.lost(broker, f"it refuses to list its queues: {answer.reason}")
    return None
