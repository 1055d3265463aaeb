"""Moving messages between streams of NATS JetStream.

Consumers of the stream are paused for the length of a batch, so that none of them takes what is being moved: messages
behind what they have been delivered are nobody's yet. A pause has a lease of its own and ends with it. A message keeps
its headers; of those that steer the server (``Nats-…``) the trace keeps what they said, as the server would take a
message that comes back under its own ``Nats-Msg-Id`` for a duplicate, and drop it. Needs nats-server 2.11.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from pydantic import Field

from actuators.base import Refused
from actuators.movers.base import TRACE, Choice, Message, Moved, MoverSettings, Trace
from actuators.nats_kv import talking
from brokers.nats.settings import NatsServer
from lake.errors import SojournError

#: For so long consumers are paused at most: a batch takes a fraction of it.
_PAUSE = timedelta(seconds=15)
#: Messages that a batch looks at for each that it may move.
_LOOK = 20


class NatsMoverSettings(MoverSettings, NatsServer):
    """Which server. Queues are streams; one aside is made where there is none: ``sojourn.aside.<stream>.>``."""

    kind: Literal["nats"] = "nats"
    subject: str | None = Field(
        default=None, description="subject in another stream than the first; {subject} and {tenant} are replaced"
    )


class _Stored(NamedTuple):
    seq: int
    subject: str
    headers: list[tuple[str, str]]
    data: bytes
    message: Message
    trace: Trace | None


class _Headers:
    """Headers with their order and repetitions, as the client library writes them."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def items(self) -> Iterator[tuple[str, str]]:
        """Each as it came."""
        return iter(self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs)


class NatsMover:
    """Carries messages one by one, each acknowledged by the stream it goes to before it leaves the other."""

    def __init__(self, settings: NatsMoverSettings) -> None:
        self._settings = settings

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""

        async def talk(client: Any) -> Moved:
            await self._ensure(client, target)
            if await self._info(client, source) is None:
                raise Refused(f"there is no stream {source}")
            # Looked for while consumers go on: they pause only while what was found is carried.
            behind = await self._taken(client, source)
            found, looked = await self._chosen(client, source, behind, choose, most, skip)
            if not found:
                return Moved(0, looked)
            async with self._paused(client, source) as taken:
                found = [one for one in found if one.seq > taken]
                for one in found:
                    await self._publish(client, source, target, one)
                await asyncio.gather(*(self._delete(client, source, one.seq) for one in found))
                return Moved(len(found), looked)

        moved: Moved = self._talk(talk)
        return moved

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""

        async def talk(client: Any) -> Moved:
            async with self._paused(client, home) as taken:
                ahead, looked = await self._chosen(client, aside, 0, choose, max(1, most), 0)
                found = ahead[:most]
                newest = [await self._publish(client, aside, home, one) for one in found]
                if ahead:
                    late, _ = await self._chosen(client, home, taken, _newer(ahead, home), 1 << 30, 0)
                    for one in late:
                        if not newest or one.seq < max(newest):  # it stands before the last of these, and is newer
                            await self._carry(client, home, aside, one)
                await asyncio.gather(*(self._delete(client, aside, one.seq) for one in found))
                return Moved(len(found), looked)

        moved: Moved = self._talk(talk)
        return moved

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`; what consumers take meanwhile may be counted."""

        async def talk(client: Any) -> int:
            if await self._info(client, queue) is None:
                return 0
            taken = await self._taken(client, queue)
            return len((await self._chosen(client, queue, taken, choose, most, 0))[0])

        return int(self._talk(talk))

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""

        async def talk(client: Any) -> int:
            async with self._paused(client, source) as taken:
                found, _ = await self._chosen(client, source, taken, choose, most, 0)
                for one in found:
                    await self._delete(client, source, one.seq)
                return len(found)

        return int(self._talk(talk))

    def waiting(self, queue: str) -> int:
        """See :class:`actuators.movers.base.Mover`."""

        async def talk(client: Any) -> int:
            info = await self._info(client, queue)
            return 0 if info is None else int(info["state"]["messages"])

        return int(self._talk(talk))

    def _talk(self, talk: Any) -> Any:
        return talking(self._settings, talk)

    async def _info(self, client: Any, stream: str) -> dict[str, Any] | None:
        from brokers.nats.client import NO_STREAM, ApiError

        try:
            return dict(await client.api(f"STREAM.INFO.{stream}"))
        except ApiError as error:
            if error.code == NO_STREAM:
                return None
            raise

    async def _ensure(self, client: Any, stream: str) -> None:
        there = await self._info(client, stream)
        if there is not None and self._settings.subject is None:
            if f"{_aside(stream)}.>" not in there["config"].get("subjects", ()):
                raise Refused(f"stream {stream} was not made for what is put aside: name the subject to publish to")
        elif there is None:
            config = {"name": stream, "subjects": [f"{_aside(stream)}.>"], "storage": "file"}
            await client.api(f"STREAM.CREATE.{stream}", config)

    @asynccontextmanager
    async def _paused(self, client: Any, stream: str) -> AsyncIterator[int]:
        """No consumer of ``stream`` takes anything meanwhile; the sequence up to which they have taken."""
        whole = await self._info(client, stream)
        if whole is None:
            raise Refused(f"there is no stream {stream}")
        if whole["config"].get("deny_delete") or whole["config"].get("sealed"):
            raise Refused(f"stream {stream} lets nobody delete its messages: nothing can be moved from it")
        until = (datetime.now(UTC) + _PAUSE).isoformat()
        ours: list[str] = []
        try:
            taken = 0
            for name in await self._consumers(client, stream):
                info = await client.api(f"CONSUMER.INFO.{stream}.{name}")
                if not info.get("paused"):
                    ours.append(name)
                    told = await client.api(f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": until})
                    if not told.get("paused"):
                        raise Refused(f"consumer {name} cannot be paused: it needs nats-server 2.11")
                    info = await client.api(f"CONSUMER.INFO.{stream}.{name}")
                taken = max(taken, int(info["delivered"]["stream_seq"]))
            yield taken
        finally:
            for name in ours:
                await client.api(f"CONSUMER.PAUSE.{stream}.{name}", {})

    async def _taken(self, client: Any, stream: str) -> int:
        """Up to which sequence some consumer has taken, just now."""
        taken = 0
        for name in await self._consumers(client, stream):
            info = await client.api(f"CONSUMER.INFO.{stream}.{name}")
            taken = max(taken, int(info["delivered"]["stream_seq"]))
        return taken

    async def _consumers(self, client: Any, stream: str) -> list[str]:
        names: list[str] = []
        while True:
            page = await client.api(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
            names += page.get("consumers") or []
            if len(names) >= int(page["total"]) or not page.get("consumers"):
                return names

    async def _chosen(
        self, client: Any, stream: str, after: int, choose: Choice, most: int, skip: int
    ) -> tuple[list[_Stored], int]:
        from brokers.nats.client import NO_MESSAGE, ApiError

        found: list[_Stored] = []
        at, looked = after + 1, 0
        while len(found) < most and looked < _LOOK * most + skip:
            try:
                told = await client.api(f"STREAM.MSG.GET.{stream}", {"seq": at, "next_by_subj": ">"})
            except ApiError as error:
                if error.code == NO_MESSAGE:
                    break
                raise
            one = self._read(stream, told["message"])
            at, looked = one.seq + 1, looked + 1
            if choose(one.message):
                if skip:
                    skip -= 1
                else:
                    found.append(one)
        return found, looked

    def _read(self, stream: str, told: dict[str, Any]) -> _Stored:
        headers = _parsed(base64.b64decode(told.get("hdrs") or ""))
        plain = dict(headers)
        trace = Trace.of(plain.get(TRACE))
        at = datetime.fromisoformat(told["time"].replace("Z", "+00:00")[:26].rstrip("+") + "+00:00").timestamp()
        enqueued = at if trace is None or trace.enqueued_at is None else trace.enqueued_at
        message = Message(f"{stream}-{told['seq']}", plain.get(self._settings.tenant_header), enqueued, plain)
        data = base64.b64decode(told.get("data") or "")
        return _Stored(int(told["seq"]), told["subject"], headers, data, message, trace)

    async def _carry(self, client: Any, source: str, target: str, one: _Stored) -> None:
        await self._publish(client, source, target, one)
        await self._delete(client, source, one.seq)

    async def _publish(self, client: Any, source: str, target: str, one: _Stored) -> int:
        """Its sequence in ``target``, which has it once however often it is tried (within its duplicate window)."""
        kept = {name: value for name, value in one.headers if name.startswith("Nats-")}
        first = Trace.now(one.message.id, source, one.subject, one.message.enqueued_at, kept)
        trace = one.trace or first
        headers = [(name, value) for name, value in one.headers if name not in kept and name != TRACE]
        headers += [(TRACE, trace.text()), ("Nats-Msg-Id", f"sojourn-{one.message.id}-{target}")]
        headers += [("Nats-Expected-Stream", target)]
        subject = self._subject(target, one, trace)
        reply = await client.connection.request(subject, one.data, headers=_Headers(headers), timeout=5)
        answer = json.loads(reply.data)
        if "error" in answer:
            raise SojournError(f"stream {target} does not take {one.message.id}: {answer['error'].get('description')}")
        return int(answer["seq"])

    def _subject(self, target: str, one: _Stored, trace: Trace) -> str:
        if one.trace is not None and one.trace.origin == target:
            return trace.address
        if self._settings.subject is None:
            return f"{_aside(target)}.{trace.address}"
        return self._settings.subject.replace("{subject}", one.subject).replace("{tenant}", one.message.tenant or "")

    async def _delete(self, client: Any, stream: str, seq: int) -> None:
        from brokers.nats.client import NO_MESSAGE, ApiError

        try:
            await client.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})
        except ApiError as error:
            if error.code not in (NO_MESSAGE, 10043):  # gone already: an earlier try got so far
                raise


def _newer(ahead: list[_Stored], home: str) -> Choice:
    """Chooses what came to ``home`` after the first of its tenant that is aside, and was not moved itself."""
    first: dict[str | None, int] = {}
    for one in ahead:
        number = (one.trace.id if one.trace is not None else "").removeprefix(f"{home}-")
        first.setdefault(one.message.tenant, int(number) if number.isdecimal() else 0)

    def chooses(message: Message) -> bool:
        number = int(message.id.removeprefix(f"{home}-"))
        return message.tenant in first and number > first[message.tenant] and TRACE not in message.headers

    return chooses


def _aside(stream: str) -> str:
    return f"sojourn.aside.{stream}"


def _parsed(block: bytes) -> list[tuple[str, str]]:
    """A header block (``NATS/1.0``, then a line for each)."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    return [(name, value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon]
