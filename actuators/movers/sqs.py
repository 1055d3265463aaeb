"""Moving messages between queues of Amazon SQS: received, sent to the other queue, then deleted.

SQS lets nobody look into a queue: whoever looks receives, and what stays is made visible again when the batch is over.
SQS counts that as a delivery. So nothing is moved from a queue with a redrive policy: after some looks it would send
what merely waits there to its dead-letter queue.

A FIFO queue keeps its message groups, and the order in each. What goes from one to another has a deduplication id of
its own – the same for each try – as SQS would drop what comes back under its first one within five minutes; the trace
keeps that one, and the sequence number. Sources: the Amazon SQS API Reference; Developer Guide, "FIFO queue delivery
logic", "Exactly-once processing", "Amazon SQS message quotas".
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from actuators.base import Refused
from actuators.movers.base import TRACE, Choice, Message, Moved, MoverSettings, Trace
from brokers import tenants
from brokers.sqs.link import Declined, Link
from brokers.sqs.settings import SqsAccount
from lake.errors import SojournError

log = logging.getLogger(__name__)

#: The most messages of one request, and of one message group that are received before one of them is deleted.
WINDOW = 10
#: Attributes that a message may have, ours among them, and bytes of one request (the least that SQS has ever allowed).
_ATTRIBUTES, _BYTES = 10, 256 << 10
#: Messages that a batch looks at for each that it may move, and in any case.
_LOOK, _LOOK_ANYWAY = 5, 100
#: Kept there as long as SQS keeps anything: what is aside must not end before it is back (seconds).
_RETENTION = 14 * 86_400
#: For how many batches' time what was received stays in our hands: whoever is killed gives it back by then.
_LEASES = 2
_PARTS = frozenset({"DataType", "StringValue", "BinaryValue"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


class SqsMoverSettings(MoverSettings, SqsAccount):
    """Which account and region; a queue aside is made where there is none. Whose message it is tells an attribute, or
    its message group."""

    kind: Literal["sqs"] = "sqs"
    tenant: Annotated[tenants.TenantRules, tenants.only("header", "key", "queue")] = Field(
        default=(tenants.parse("header:tenant"), tenants.parse("key:{tenant}")),
        description="where a message names its tenant: header is an attribute, key its message group",
    )


class _Got(NamedTuple):
    """One message that was received: ``told`` as SQS tells it."""

    message: Message
    told: Mapping[str, Any]
    trace: Trace | None

    @property
    def group(self) -> str | None:
        """Its message group."""
        found: str | None = _system(self.told).get("MessageGroupId")
        return found

    @property
    def number(self) -> int:
        """Its place in the message group of its first queue."""
        text = self.message.headers.get("SequenceNumber", "") if self.trace is None else self.trace.address
        return int(text) if text.isdecimal() else 0


class SqsMover:
    """Receives, sends, then deletes."""

    def __init__(self, settings: SqsMoverSettings) -> None:
        self._settings = settings
        self._link = Link(settings)

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """See :class:`actuators.movers.base.Mover`; of a FIFO queue, which is taken from at the head of each group
        alone, nothing is skipped: what is to stay there comes back by :meth:`give_back`."""
        if source.endswith(".fifo") != target.endswith(".fifo"):
            raise Refused(f"{source} and {target} are of two kinds: what is beside a FIFO queue ends with .fifo, too")
        self._check(source)
        self._ensure(target)
        return self._carried(source, target, choose, most, 0 if source.endswith(".fifo") else skip)

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`; standard queues keep no order, there what came meanwhile may go
        first. In a FIFO queue ten of a group that are back wait until consumers have taken some."""
        self._check(aside)
        if not home.endswith(".fifo"):
            return self._carried(aside, home, choose, most, 0) if most else Moved(0, 0)
        self._check(home)
        full = self._put_behind(aside, home, choose)
        return self._carried(aside, home, lambda one: one.tenant not in full and choose(one), most, 0)

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`; of a message group of a FIFO queue ten are seen at most."""
        if self._link.address(queue) is None:
            return 0
        self._check(queue)
        return len(self._seen(queue, choose, most))

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        self._check(source)
        dropped: list[_Got] = []

        def delete(some: list[_Got]) -> list[_Got]:
            self._delete(source, some)
            dropped.extend(some)
            return some

        self._pass(source, choose, most, 0, delete)
        return len(dropped)

    def waiting(self, queue: str) -> int:
        """See :class:`actuators.movers.base.Mover`; about so many, those in somebody's hands and delayed ones too."""
        told = self._link.attributes(queue) or {}
        counts = ("", "NotVisible", "Delayed")
        return sum(int(told.get(f"ApproximateNumberOfMessages{what}", 0)) for what in counts)

    def _check(self, queue: str) -> None:
        told = self._link.attributes(queue)
        if told is None:
            raise Refused(f"there is no queue {queue}")
        if told.get("RedrivePolicy"):
            raise Refused(
                f"queue {queue} has a redrive policy: what is looked at, and stays, would end as a dead letter"
            )

    def _ensure(self, queue: str) -> None:
        if self._link.address(queue) is not None:
            return
        if not _NAME.fullmatch(queue):
            raise Refused(f"{queue!r} cannot be the name of a queue: letters, digits, - and _, at most 80")
        attributes = {"MessageRetentionPeriod": str(_RETENTION)}
        if queue.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        self._link.ask("CreateQueue", QueueName=queue, Attributes=attributes)

    def _carried(self, source: str, target: str, choose: Choice, most: int, skip: int) -> Moved:
        moved, left = 0, ""

        def carry(some: list[_Got]) -> list[_Got]:
            nonlocal moved, left
            sent, why = self._send(source, target, some)
            self._delete(source, sent)
            moved, left = moved + len(sent), why or left
            return sent

        looked = self._pass(source, choose, most, skip, carry)
        if left and not moved:
            raise SojournError(f"queue {target} does not take what is moved there: {left}")
        if left:
            log.warning("messages stay in %s: %s does not take them: %s", source, target, left)
        return Moved(moved, looked)

    def _seen(self, queue: str, choose: Choice, most: int) -> list[_Got]:
        """Up to ``most`` of the chosen, which stay where they are."""
        found: list[_Got] = []

        def look(some: list[_Got]) -> list[_Got]:
            found.extend(some)
            return []

        self._pass(queue, choose, most, 0, look)
        return found

    def _put_behind(self, aside: str, home: str, choose: Choice) -> set[str | None]:
        """Carry what came to ``home`` since behind what is aside of the same tenants; who has enough at home."""
        first: dict[str | None, int] = {}
        for one in self._seen(aside, choose, _LOOK_ANYWAY):
            first[one.message.tenant] = min(first.get(one.message.tenant, one.number), one.number)
        older: Counter[str | None] = Counter()

        def newer(message: Message) -> bool:
            if message.tenant not in first:
                return False
            number = message.headers.get("SequenceNumber", "")
            late = TRACE not in message.headers and number.isdecimal() and int(number) > first[message.tenant]
            older[message.tenant] += not late
            return late

        moved = 1
        while first and moved:
            older.clear()
            moved = self._carried(home, aside, newer, WINDOW * len(first), 0).moved
        return {tenant for tenant, count in older.items() if count >= WINDOW}

    def _pass(self, queue: str, choose: Choice, most: int, skip: int, act: Callable[[list[_Got]], list[_Got]]) -> int:
        """Receive until ``act``, which tells what it took away, got ``most`` of the chosen; how many were looked at."""
        address, told = self._link.address(queue), self._link.attributes(queue)
        if address is None or told is None:
            raise Refused(f"there is no queue {queue}")
        visible, deadline = int(told.get("ApproximateNumberOfMessages", 0)), time.monotonic() + self._settings.timeout
        held: list[_Got] = []
        seen: set[str] = set()
        got, enough = 0, max(_LOOK_ANYWAY, _LOOK * most) + skip
        try:
            while got < most and len(seen) < enough and time.monotonic() < deadline:
                # An empty answer without waiting says little: it is of some of SQS' servers. Of a FIFO queue it says
                # that all groups are in somebody's hands, ours among them.
                wait = len(seen) < visible and not (seen and queue.endswith(".fifo"))
                window = self._received(queue, address, WINDOW if held else most - got + skip, wait)
                fresh = [one for one in window if one.message.id not in seen]
                if not fresh:
                    break
                seen.update(one.message.id for one in fresh)
                chosen: list[_Got] = []
                for one in fresh:
                    if choose(one.message) and len(chosen) < most - got:
                        if not skip:
                            chosen.append(one)
                            continue
                        skip -= 1
                    held.append(one)
                held += chosen
                gone = {one.message.id for one in act(chosen)} if chosen else set()
                held = [one for one in held if one.message.id not in gone]
                got += len(chosen)
        finally:
            self._release(address, held)
        return len(seen)

    def _received(self, queue: str, address: str, most: int, wait: bool) -> list[_Got]:
        answer = self._link.ask(
            "ReceiveMessage",
            QueueUrl=address,
            MaxNumberOfMessages=min(WINDOW, most),
            VisibilityTimeout=math.ceil(_LEASES * self._settings.timeout),
            WaitTimeSeconds=1 if wait else 0,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [self._read(queue, told) for told in answer.get("Messages") or ()]

    def _read(self, queue: str, told: Mapping[str, Any]) -> _Got:
        system = _system(told)
        own = told.get("MessageAttributes") or {}
        headers = system | {name: one["StringValue"] for name, one in own.items() if one.get("StringValue") is not None}
        trace = Trace.of(headers.get(TRACE))
        sent = system.get("SentTimestamp", "")
        at = int(sent) / 1000 if sent.isdecimal() else None
        enqueued = at if trace is None or trace.enqueued_at is None else trace.enqueued_at
        named = tenants.Message(queue, system.get("MessageGroupId"), headers)
        tenant = tenants.tenant_of(self._settings.tenant, named)
        return _Got(Message(str(told["MessageId"]), tenant, enqueued, headers), told, trace)

    def _send(self, source: str, target: str, some: list[_Got]) -> tuple[list[_Got], str]:
        """Those that are in ``target`` now, and why others are not."""
        address, fifo, why = self._link.address(target), target.endswith(".fifo"), ""
        if address is None:
            raise Refused(f"there is no queue {target}")
        sent: list[_Got] = []
        stuck: set[str | None] = set()
        for part in _parts([(one, self._entry(source, target, one)) for one in some], fifo):
            if fifo and part[0][0].group in stuck:
                continue  # what is before it in its group stays
            done, refused = self._sent(address, [entry for _, entry in part])
            why = refused or why
            for number, (one, _) in enumerate(part):
                if number in done:
                    sent.append(one)
                else:
                    stuck.add(one.group)
        return sent, why

    def _sent(self, address: str, entries: Sequence[Mapping[str, Any]]) -> tuple[set[int], str]:
        """The numbers of those that were taken, and why others were not."""
        if len(entries[0]["MessageAttributes"]) > _ATTRIBUTES:
            return set(), f"one has {_ATTRIBUTES} attributes, which leave none for the trace"
        numbered = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        try:
            answer = self._link.ask("SendMessageBatch", QueueUrl=address, Entries=numbered)
        except Declined as error:
            return set(), str(error)
        failed = answer.get("Failed") or [{}]
        return {int(one["Id"]) for one in answer.get("Successful") or ()}, str(failed[0].get("Code", ""))

    def _entry(self, source: str, target: str, one: _Got) -> dict[str, Any]:
        system = _system(one.told)
        kept = {name: value for name, value in system.items() if name == "MessageDeduplicationId"}
        address = system.get("SequenceNumber", source)
        mark = one.trace or Trace.now(f"{source}-{one.message.id}", source, address, one.message.enqueued_at, kept)
        own = {
            name: {part: value for part, value in attribute.items() if part in _PARTS and value is not None}
            for name, attribute in (one.told.get("MessageAttributes") or {}).items()
        }
        entry: dict[str, Any] = {"MessageBody": one.told["Body"]}
        entry["MessageAttributes"] = own | {TRACE: {"DataType": "String", "StringValue": mark.text()}}
        if one.group is not None:
            entry["MessageGroupId"] = one.group
        if target.endswith(".fifo"):
            entry["MessageDeduplicationId"] = f"sojourn-{one.message.id}-{target}"
        else:
            entry["DelaySeconds"] = 0
        if "AWSTraceHeader" in system:
            value = {"DataType": "String", "StringValue": system["AWSTraceHeader"]}
            entry["MessageSystemAttributes"] = {"AWSTraceHeader": value}
        return entry

    def _delete(self, queue: str, some: Sequence[_Got]) -> None:
        left = list(some)
        for _ in range(2):
            left = self._each("DeleteMessageBatch", self._link.address(queue), left, {})
        if left:
            raise SojournError(
                f"{len(left)} messages of {queue} were moved and could not be deleted: they are there twice"
            )

    def _release(self, address: str, held: Sequence[_Got]) -> None:
        with suppress(SojournError):  # they come back by themselves when their time is over
            self._each("ChangeMessageVisibilityBatch", address, held, {"VisibilityTimeout": 0})

    def _each(self, action: str, address: str | None, some: Sequence[_Got], more: Mapping[str, Any]) -> list[_Got]:
        """Ask ``action`` for each of ``some``; for which it was not done."""
        left: list[_Got] = []
        for start in range(0, len(some), WINDOW):
            part = some[start : start + WINDOW]
            entries = [
                {"Id": str(number), "ReceiptHandle": one.told["ReceiptHandle"], **more}
                for number, one in enumerate(part)
            ]
            answer = self._link.ask(action, QueueUrl=address, Entries=entries)
            left += [part[int(one["Id"])] for one in answer.get("Failed") or ()]
        return left


def _system(told: Mapping[str, Any]) -> dict[str, str]:
    return dict(told.get("Attributes") or {})


def _parts(some: Sequence[tuple[_Got, dict[str, Any]]], singly: bool) -> Iterator[list[tuple[_Got, dict[str, Any]]]]:
    """Requests of what may go in one; ``singly``: each waits for the one before it, for the order's sake."""
    part: list[tuple[_Got, dict[str, Any]]] = []
    size = 0
    for one, entry in some:
        large = len(json.dumps(entry, ensure_ascii=False).encode())
        alone = singly or len(entry["MessageAttributes"]) > _ATTRIBUTES
        if part and (alone or len(part) == WINDOW or size + large > _BYTES):
            yield part
            part, size = [], 0
        part.append((one, entry))
        size += large
        if alone:
            yield part
            part, size = [], 0
    if part:
        yield part
