"""One reading of many queues by several threads: adaptive, bounded in time, and one queue's trouble stays its own."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from brokers.sqs.answers import Kind, Refusal, content
from brokers.sqs.client import Channel, Unanswered
from collectors.records import now_us
from collectors.sqs import parse
from collectors.sqs.pace import Pace

#: How often one queue is tried in one reading where the service is at fault.
_ATTEMPTS = 3
_FIRST_PAUSE = 0.05


class Read(NamedTuple):
    """A queue's attributes, and when they came (microseconds since 1970)."""

    attributes: dict[str, Any]
    at: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Why a queue was not read: a kind of refusal, or ``away`` where no answer came at all."""

    kind: Kind | None
    reason: str

    @property
    def away(self) -> bool:
        """Whether nobody answered."""
        return self.kind is None


class Sweep:
    """Reads ``addresses`` once. Each of the threads calls :meth:`work`; another one may call :meth:`stop`."""

    def __init__(self, addresses: Iterable[str], pace: Pace, *, patience: int) -> None:
        self.outcomes: dict[str, Read | Missed] = {}
        self.gave_up = False
        self._left = deque((address, 1) for address in addresses)
        self._pace = pace
        self._patience = patience
        self._over = threading.Event()
        self._unanswered = 0
        self._channels: set[Channel] = set()

    def work(self, channel: Channel) -> None:
        """Read one queue after the other until none is left, or the time is over."""
        self._channels.add(channel)
        try:
            while not self._over.is_set():
                try:
                    address, attempt = self._left.popleft()
                except IndexError:
                    return
                self._one(channel, address, attempt)
        finally:
            self._channels.discard(channel)

    def stop(self) -> None:
        """End the reading now; what is under way is cut off and has no outcome."""
        self._over.set()
        for channel in tuple(self._channels):
            channel.abort()

    def _one(self, channel: Channel, address: str, attempt: int) -> None:
        pause = self._pace.take(time.monotonic())
        if attempt > 1:
            pause = max(pause, _FIRST_PAUSE * 2**attempt * random.random())
        if pause > 0 and self._over.wait(pause):
            return
        asked = {"QueueUrl": address, "AttributeNames": parse.ATTRIBUTES}
        outcome: Read | Missed
        try:
            answer = channel.ask("GetQueueAttributes", asked)
        except Unanswered as error:
            if self._over.is_set():
                return
            outcome = Missed(None, str(error))
            self._unanswered += 1
            if self._unanswered >= self._patience:
                self.gave_up = True  # nobody is there: the rest is not worth waiting for
                self._over.set()
        else:
            self._unanswered = 0
            held = content(answer)
            found = held if isinstance(held, Refusal) else parse.attributes(held)
            if isinstance(found, Refusal):
                outcome = self._refused(found)
            else:
                outcome = Read(found, now_us())
        if self._again(outcome, attempt):
            self._left.append((address, attempt + 1))
        else:
            self.outcomes[address] = outcome

    def _refused(self, refusal: Refusal) -> Missed:
        if refusal.kind == "throttled":
            self._pace.throttled(time.monotonic())
        elif refusal.kind in ("credentials", "clock"):
            self._over.set()  # what is refused to one request is refused to all
        return Missed(refusal.kind, refusal.reason)

    def _again(self, outcome: Read | Missed, attempt: int) -> bool:
        if isinstance(outcome, Read) or attempt >= _ATTEMPTS or self._over.is_set():
            return False
        return outcome.away or outcome.kind in ("throttled", "busy")
