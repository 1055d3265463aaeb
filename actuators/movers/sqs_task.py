"""``sqs_move_task``: SQS itself moves a dead-letter queue's messages to another queue, at a rate, while a lease lasts.

A move task takes everything that is there, in no order that can be chosen, and cannot be told to end by itself; so it
is put down before it is started, and the reaper cancels what its lease outlived. What was moved by then stays moved.
SQS allows one task a queue at a time, of at most 500 messages/s, from queues alone that are another's dead-letter
queue. Source: Amazon SQS API Reference, StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from actuators import reaper
from actuators.base import ActuatorSettings, Demand, Refused, refuse_other
from actuators.leased import Leased
from actuators.undo_log import UndoLog
from brokers.sqs.link import Declined, Link
from brokers.sqs.settings import SqsAccount

#: The most that SQS moves, messages/s.
FASTEST = 500
#: So long a task goes on after its redrive was last heard of (seconds).
LEASE_SECONDS = 15.0


class SqsTaskSettings(ActuatorSettings, SqsAccount):
    """Which account and region, and where what is dead goes: no policy's, a redrive's own."""

    kind: Literal["sqs_move_task"] = "sqs_move_task"
    target: str = Field(min_length=1)


class SqsMoveTask:
    """Starts, reads and cancels the move task of a dead-letter queue: the ``queue`` of a demand."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: SqsTaskSettings) -> None:
        self._target = settings.target
        self._link = Link(settings)
        #: What was started and not read back yet: a small queue is empty before anybody can ask.
        self._begun: dict[str, str] = {}

    def place(self, demand: Demand) -> str:
        """The dead-letter queue."""
        return demand.queue

    def value(self, demand: Demand) -> str:
        """The task as SQS tells it, but for its handle and how far it is."""
        if not 1 <= round(demand.rate) <= FASTEST:
            raise Refused(f"SQS moves 1 to {FASTEST} messages/s, not {demand.rate:g}")
        return json.dumps({"rate": round(demand.rate), "to": self._target}, sort_keys=True)

    def read(self, place: str) -> str | None:
        """The task that runs there; once, one that was started even if it is over by now."""
        found, begun = self.running(place), self._begun.pop(place, None)
        if found is None:
            return begun
        rate, arn = found.get("MaxNumberOfMessagesPerSecond"), str(found.get("DestinationArn", ""))
        return json.dumps({"rate": rate, "to": arn.rsplit(":", 1)[-1]}, sort_keys=True)

    def check(self, before: str | None, value: str) -> None:
        """A task that ran when we came is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Start the task; None cancels it."""
        if value is None:
            self._cancel(place)
            return
        told = json.loads(value)
        try:
            self._link.ask(
                "StartMessageMoveTask",
                SourceArn=self._arn(place),
                DestinationArn=self._arn(told["to"]),
                MaxNumberOfMessagesPerSecond=told["rate"],
            )
        except Declined as error:
            raise Refused(str(error)) from None
        self._begun[place] = value

    def running(self, queue: str) -> Mapping[str, Any] | None:
        """The task that runs on ``queue`` as SQS tells it."""
        answer = self._link.ask("ListMessageMoveTasks", SourceArn=self._arn(queue), MaxResults=10)
        found = answer.get("Results") or ()
        return next((one for one in found if one.get("Status") == "RUNNING"), None)

    def _cancel(self, queue: str) -> None:
        found = self.running(queue)
        if found is None:
            return
        try:
            self._link.ask("CancelMessageMoveTask", TaskHandle=found.get("TaskHandle"))
        except Declined:
            if self.running(queue) is not None:  # else it has ended meanwhile
                raise

    def _arn(self, queue: str) -> str:
        told = self._link.attributes(queue)
        if told is None or not told.get("QueueArn"):
            raise Refused(f"there is no queue {queue}")
        return told["QueueArn"]


class Far(NamedTuple):
    """How far a task is: messages that it moved as far as SQS says, and whether it still runs."""

    moved: int
    runs: bool


class SqsTask:
    """One redrive's move task, from ``source`` to ``settings.target``: put down in ``folder``, where the reaper looks,
    too."""

    def __init__(self, settings: SqsTaskSettings, folder: Path, broker: str, source: str) -> None:
        self._undo_log = UndoLog(folder)
        self._undo_log.remember(settings)
        self._actuator = SqsMoveTask(settings)
        self._leased = Leased(settings.name, self._actuator, self._undo_log)
        self._broker, self._source, self._id = broker, source, settings.name
        self._moved = 0

    def begin(self, rate: float) -> None:
        """Start it. Refused where SQS does not do it, or another task runs on the queue."""
        until = datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS)
        demand = Demand(self._broker, self._source, "", rate, 0.0, until, "redrive", self._id)
        self._moved = 0
        reaper.ensure(self._undo_log.folder)  # before: killed between the two, nobody would end the task
        self._leased.apply(demand, LEASE_SECONDS)

    def look(self) -> Far:
        """How far it is; its lease begins again. SojournError where SQS does not answer."""
        found = self._actuator.running(self._source)
        if found is None:
            return Far(self._moved, False)
        self._leased.renew(self._source, LEASE_SECONDS)
        self._moved = int(found.get("ApproximateNumberOfMessagesMoved") or 0)
        return Far(self._moved, True)

    def end(self) -> None:
        """Cancel it, one that an earlier process of this redrive left as well."""
        self._leased.end(self._source)

    def close(self) -> None:
        """Cancel it, and forget it."""
        try:
            self.end()
            self._undo_log.forget(self._id)
        finally:
            self._undo_log.close()
