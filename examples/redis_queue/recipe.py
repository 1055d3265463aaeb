"""A queue in Redis after the dyno-queues recipe: at least once, delayed, by priority, in shards."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import redis

from examples.redis_queue import scripts

#: Overdue messages that one call moves: a script must not hold the server for long.
_SWEEP_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a consumer receives it; ``enqueued_at`` in seconds since 1970, on the server's clock.

    ``deadline``, in milliseconds, is the receipt of this delivery: no other may acknowledge it.
    """

    id: str
    payload: Any
    priority: int
    enqueued_at: float
    shard: str
    deadline: int


class Queue:
    """One queue. ``visibility`` is the seconds in which a message must be acknowledged.

    Any number of processes may use it at once. Somebody must call :meth:`sweep` every few seconds: without it, what a
    crashed consumer held is never delivered again. A message is delivered at least once, never to two consumers while
    its deadline lasts.
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str,
        *,
        prefix: str = "app",
        shards: Sequence[str] = ("a",),
        visibility: float = 60.0,
    ) -> None:
        self.name = name
        self.shards = tuple(shards)
        self._visibility_ms = round(visibility * 1000)
        self._keys = {shard: _keys(prefix, name, shard) for shard in self.shards}
        self._push = client.register_script(scripts.PUSH)
        self._poll = client.register_script(scripts.POLL)
        self._ack = client.register_script(scripts.ACK)
        self._sweep = client.register_script(scripts.SWEEP)

    def push(self, payload: Any, *, id: str | None = None, delay: float = 0.0, priority: int = 0) -> str:
        """Enqueue ``payload`` (what JSON can hold); its id.

        It may be received after ``delay`` seconds, of those due in the same millisecond the lowest ``priority`` first
        (0 … 99). The same ``id`` enqueues once, for as long as the message is in the queue.
        """
        if not 0 <= priority <= 99 or delay < 0:
            raise ValueError("priority is 0 … 99, delay not negative")
        chosen = id if id is not None else str(uuid4())
        arguments = [chosen, json.dumps(payload), round(delay * 1000), priority]
        self._push(keys=self._keys[self.shard_of(chosen)], args=arguments)
        return chosen

    def poll(self, count: int = 1, *, shard: str | None = None) -> list[Message]:
        """Up to ``count`` due messages, of ``shard`` or of each in turn; they are ours until their deadline."""
        taken: list[Message] = []
        for name in (shard,) if shard is not None else self.shards:
            if len(taken) < count:
                deadline, found = self._poll(keys=self._keys[name], args=[count - len(taken), self._visibility_ms])
                taken += [_message(raw, name, int(deadline)) for raw in found]
        return taken

    def ack(self, message: Message) -> bool:
        """Finish ``message``; False if it was ours no longer: swept after its deadline, it is received again."""
        return bool(self._ack(keys=self._keys[message.shard], args=[message.id, message.deadline]))

    def sweep(self) -> int:
        """Let messages whose deadline has passed be received again; how many."""
        moved = 0
        for keys in self._keys.values():
            while (some := int(self._sweep(keys=keys, args=[_SWEEP_AT_ONCE]))) > 0:
                moved += some
        return moved

    def shard_of(self, id: str) -> str:
        """The shard in which the message ``id`` belongs: always the same, so that pushing twice is seen."""
        return self.shards[zlib.crc32(id.encode()) % len(self.shards)]


def _keys(prefix: str, name: str, shard: str) -> list[str]:
    place = f"{{{name}.{shard}}}"
    return [
        f"{prefix}.QUEUE.{place}",
        f"{prefix}.UNACK.{place}.0",
        f"{prefix}.MSG.{place}.0",
        f"{prefix}.SINCE.{place}",
    ]


def _message(raw: bytes, shard: str, deadline: int) -> Message:
    read = json.loads(raw)
    return Message(read["id"], read["payload"], read["priority"], read["enqueuedAt"] / 1000, shard, deadline)
