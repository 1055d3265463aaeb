"""Sidelining: a limited tenant's excess, or what of his is old, goes to a queue aside and comes back when all is calm.

Nothing is refused or lost: who is limited keeps what his rate may have in the queue, the rest waits aside, in its
order. It comes back at a rate once no limit holds on the queue. What is aside is in the broker: whoever starts
next brings it back.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field, model_validator

from actuators.movers.base import Message, Mover
from actuators.movers.registry import KINDS, AnyMover
from actuators.undo_log import News
from alerts.control.active_limit import ActiveLimit, Target, strictest
from alerts.control.actuators import Told
from brokers.settings import Settings
from lake.errors import SojournError

log = logging.getLogger(__name__)

#: Messages of one batch, and seconds from one round to the next.
BATCH, EVERY = 200, 0.5
#: How long whoever decides waits for the first round (seconds).
PATIENCE = 2.0


class SpilloverSettings(Settings):
    """Which queues have a queue aside, and when it is used. Times are seconds."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="what policies call it in `actuator`")
    mover: AnyMover = Field(
        description="the broker: `kind` (nats, redis_stream, redis_list, rabbitmq, sqs) and where it is"
    )
    queues: tuple[str, ...] = Field(min_length=1, description="the queues that it serves, as the broker names them")
    aside: str = Field(default="{queue}-aside", description="the queue aside; {queue} is replaced")
    keep_seconds: float = Field(default=1.0, ge=0, description="so much of a tenant's rate is left in the queue")
    old_seconds: float | None = Field(default=None, gt=0, description="only what has waited so long goes aside")
    delay_seconds: float = Field(default=0.0, ge=0, description="nothing comes back before it is so old")
    return_rate: float = Field(default=50.0, gt=0, description="messages/s that come back")
    expire_seconds: float | None = Field(default=None, gt=0, description="what is aside and older than this is dropped")
    may_lose_messages: bool = Field(default=False, description="the queue's owner says that messages may be lost")

    @model_validator(mode="after")
    def _loses_nothing(self) -> SpilloverSettings:
        if self.expire_seconds is not None and not self.may_lose_messages:
            raise ValueError("expire_seconds drops messages: that needs may_lose_messages = true")
        if "{queue}" not in self.aside or self.aside == "{queue}":
            raise ValueError("aside needs {queue} and more: each queue has one of its own")
        return self


class Spillover:
    """Moves messages in a thread of its own for as long as limits hold, and back afterwards."""

    shows_in_arrivals = False

    def __init__(
        self, settings: SpilloverSettings, mover: Mover | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self.name = settings.name
        self._settings, self._now = settings, now
        self._mover = mover or KINDS.make(settings.mover)
        self._changed = threading.Condition()
        self._wanted: dict[Target, ActiveLimit] = {}
        self._asked = self._done = 0
        self._errors: dict[str, str] = {}  # by queue
        self._aside: Counter[Target] = Counter()
        self._credit = 0.0
        self._returned_at = time.monotonic()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin: what an earlier process left aside comes back."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"spillover-{self.name}", daemon=True)
            self._thread.start()

    def enforce(self, active_limits: Sequence[ActiveLimit]) -> Mapping[Target, Told]:
        """Put aside what is too much of these tenants; let all others' come back."""
        wanted = {target: item for (target, _), item in strictest(active_limits).items()}
        told = {target: self._refused(target) for target in wanted}
        wanted = {target: item for target, item in wanted.items() if told[target].error is None}
        with self._changed:
            new = wanted.keys() - self._wanted.keys()
            self._wanted = wanted
            if new:
                self._asked += 1
                mine = self._asked
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._done >= mine or self._closed, PATIENCE)
                if self._done < mine and self._thread is not None:
                    return told | dict.fromkeys(new, Told(f"no answer within {PATIENCE:g} s"))
            for target in wanted:
                error = self._errors.get(target.queue)
                facts = {"setting": self._place(target.queue), "effect": f"{self._aside[target]} put aside so far"}
                told[target] = Told(error, facts)
        return told

    def news(self) -> Sequence[News]:
        """None: what comes back is no decision."""
        return ()

    def close(self) -> None:
        """Stop; what is aside stays there until the next start."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def round(self) -> None:
        """One look at every queue: aside what is too much, back what may."""
        with self._changed:
            wanted, version = dict(self._wanted), self._asked
        errors: dict[str, str] = {}
        for queue in self._settings.queues:
            try:
                limited = {target: item for target, item in wanted.items() if target.queue == queue}
                for target, item in limited.items():
                    self._put_aside(target, item)
                self._drop(queue)
                if not limited:
                    self._bring_back(queue)
            except SojournError as error:
                errors[queue] = str(error)
        for queue, why in errors.items():
            if self._errors.get(queue) != why:
                log.warning("spillover %s: %s", self.name, why)
        with self._changed:
            self._errors, self._done = errors, max(self._done, version)
            self._aside = Counter({target: count for target, count in self._aside.items() if target in wanted})
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            self.round()
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._done < self._asked, EVERY)
                if self._closed:
                    return

    def _place(self, queue: str) -> str:
        return self._settings.aside.replace("{queue}", queue)

    def _refused(self, target: Target) -> Told:
        if target.broker != self._settings.mover.name:
            return Told(f"refused: {self.name} moves messages of {self._settings.mover.name!r}")
        if target.queue not in self._settings.queues:
            return Told(f"refused: {self.name} does not serve the queue {target.queue!r}")
        return Told()

    def _put_aside(self, target: Target, item: ActiveLimit) -> None:
        """All of a tenant's but what his rate may have; with something aside, all that is new goes behind it."""
        old, now, home, aside = self._settings.old_seconds, self._now(), target.queue, self._place(target.queue)

        def chooses(message: Message) -> bool:
            return message.tenant == target.tenant and (old is None or message.age(now) >= old)

        if old is not None:
            self._aside[target] += self._mover.move(home, aside, chooses, BATCH).moved
            return
        keep = max(1, math.ceil(item.limit.rate * self._settings.keep_seconds))
        if not self._mover.count(aside, chooses, 1):
            self._aside[target] += self._mover.move(home, aside, chooses, BATCH, skip=keep).moved
            return
        self._mover.give_back(aside, home, chooses, 0)
        if (there := self._mover.count(home, chooses, keep)) < keep:
            self._mover.give_back(aside, home, chooses, keep - there)

    def _bring_back(self, queue: str) -> None:
        clock = time.monotonic()
        rate = self._settings.return_rate
        self._credit = min(max(1.0, rate), self._credit + rate * (clock - self._returned_at))
        self._returned_at = clock
        if self._credit < 1 or not self._mover.waiting(self._place(queue)):
            return
        now, delay = self._now(), self._settings.delay_seconds
        most = min(BATCH, int(self._credit))
        moved = self._mover.give_back(self._place(queue), queue, lambda one: one.age(now) >= delay, most).moved
        self._credit -= moved

    def _drop(self, queue: str) -> None:
        expire, now = self._settings.expire_seconds, self._now()
        if expire is None or not self._settings.may_lose_messages or not self._mover.waiting(self._place(queue)):
            return
        if dropped := self._mover.drop(self._place(queue), lambda one: one.age(now) > expire, BATCH):
            log.warning("spillover %s: %d messages older than %g s dropped", self.name, dropped, expire)
