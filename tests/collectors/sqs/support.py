"""Reading a server of the SQS protocol in a test, as the sampler does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from collectors.samples import METRIC_NAMES, Sample
from collectors.sqs.settings import SqsBroker
from collectors.sqs.source import SqsSource
from tests.support.faulty import Fault, Reply, Request


def broker(url: str, prefix: str = "", **changes: Any) -> SqsBroker:
    """Settings that read the queues named ``prefix…``, listed each time anew."""
    chosen = {"endpoint": url, "prefix": prefix, "connections": 4, "list_interval": 0.0, "cycle_timeout": 10.0}
    return SqsBroker.model_validate(chosen | changes)


@asynccontextmanager
async def opened(settings: SqsBroker) -> AsyncIterator[SqsSource]:
    """A source that is open, and closed at the end."""
    source = SqsSource(settings)
    try:
        await source.open()
        yield source
    finally:
        await source.close()


async def read_once(settings: SqsBroker) -> dict[str, Sample]:
    """Each queue's sample, by name."""
    async with opened(settings) as source:
        return by_queue(await source.read())


def by_queue(samples: list[Sample]) -> dict[str, Sample]:
    """Samples by the name of their queue."""
    return {sample.queue: sample for sample in samples}


def reasons_missing(sample: Sample) -> list[str]:
    """The fields that are null without a reason."""
    empty = {name for name in METRIC_NAMES if getattr(sample, name) is None} - {"dead_letter_for"}
    return sorted(empty - set(sample.unavailable))


def action(request: Request) -> str:
    """The action that a request asks for."""
    return request.headers.get("x-amz-target", "").rsplit(".", 1)[-1]


def reading(queue: str) -> Callable[[Request], bool]:
    """Whether a request reads the attributes of ``queue``."""

    def is_it(request: Request) -> bool:
        return action(request) == "GetQueueAttributes" and json.loads(request.body)["QueueUrl"].endswith(f"/{queue}")

    return is_it


def error(code: str, status: int = 400, message: str = "") -> Reply:
    """A refusal as AWS services write it in the JSON protocol."""
    body = {"__type": f"com.amazonaws.sqs#{code}", "message": message}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.0"})


def on(matches: Callable[[Request], bool], fault: Fault, *, times: int | None = None) -> Callable[[Request], Fault]:
    """A rule that answers what ``matches`` with ``fault``, at most so many times, and lets all else pass."""
    left = [times]

    def rule(request: Request) -> Fault:
        if not matches(request) or left[0] == 0:
            return None
        if left[0] is not None:
            left[0] -= 1
        return fault

    return rule
