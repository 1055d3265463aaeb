"""Moving messages between streams of NATS JetStream.

Consumers of the stream are paused for the length of a batch, so that none of them takes what is being moved: messages
behind what they have been delivered are nobody's yet. A pause has a lease of its own and ends with it. Requests of a
batch are under way together, in their order: a message that its stream refuses stays where it is, and those behind it
go. A message keeps its headers; of those that steer the server (``Nats-…``) the trace keeps what they said, as the
server would take a message that comes back under its own ``Nats-Msg-Id`` for a duplicate, and drop it. Needs
nats-server 2.11.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from actuators.base import Refused
from actuators.movers.base import TRACE, Choice, Message, Moved, MoverSettings, Trace
from actuators.nats_kv import talking
from brokers import tenants
from brokers.nats.settings import NatsServer
from lake.errors import SojournError

#: For so long consumers are paused at most: a batch takes a fraction of it.
_PAUSE = timedelta(seconds=15)
#: Messages that a batch looks at for each that it may move.
_LOOK = 20
#: Messages of a stream that are remembered from batch to batch, so that those left are not read each time.
_MOST_SEEN = 20_000
#: Messages that are asked for together, and how many bytes they may be by the stream's mean.
_PAGE, _PAGE_BYTES = range(8, 257), 8 << 20


class NatsMoverSettings(MoverSettings, NatsServer):
    """Which server. Queues are streams; one aside is made where there is none: ``sojourn.aside.<stream>.>``."""

    kind: Literal["nats"] = "nats"
    tenant: Annotated[tenants.TenantRules, tenants.only("header", "key", "queue")] = Field(
        default=(tenants.parse("header:Tenant"),), description="where a message names its tenant; key is its subject"
    )
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


@dataclass(slots=True)
class _Seen:
    """What a stream, made at ``made``, was seen to hold behind the number ``since``, up to ``upto``.

    A message that is stored never changes, but goes: what is chosen of these is read again.
    """

    made: str
    since: int
    upto: int
    messages: dict[int, Message] = field(default_factory=dict)

    def add(self, page: Sequence[_Stored], start: int, upto: int) -> None:
        """Everything from ``start`` up to ``upto`` was read; beyond the bound nothing is remembered."""
        if len(self.messages) + len(page) <= _MOST_SEEN and start == self.upto + 1:
            self.messages.update((one.seq, one.message) for one in page)
            self.upto = upto

    def forget(self, begin: int) -> None:
        """Nothing up to ``begin`` will be asked for."""
        for number in [number for number in self.messages if number <= begin]:
            del self.messages[number]
        self.since, self.upto = begin, max(self.upto, begin)


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
        self._seen: dict[str, _Seen] = {}  # by stream

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
                await self._carry(client, source, target, found)
                return Moved(len(found), looked)

        moved: Moved = self._talk(talk)
        return moved

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""

        async def talk(client: Any) -> Moved:
            async with self._paused(client, home) as taken:
                ahead, looked = await self._chosen(client, aside, 0, choose, max(1, most), 0)
                found = ahead[:most]
                newest = await self._publish(client, aside, home, found)
                if ahead:
                    late, _ = await self._chosen(client, home, taken, _newer(ahead, home), 1 << 30, 0)
                    # Those that stand before the last of these, and are newer.
                    await self._carry(client, home, aside, [one for one in late if not newest or one.seq < max(newest)])
                await self._delete(client, aside, [one.seq for one in found])
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
                await self._delete(client, source, [one.seq for one in found])
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
        whole = await self._info(client, stream)
        if whole is None:
            return [], 0
        state, seen = whole["state"], self._seen.get(stream)
        first, last = int(state["first_seq"]), int(state["last_seq"])
        begin = max(after, first - 1)
        if seen is None or seen.made != whole["created"] or begin < seen.since or seen.upto > last:
            seen = self._seen[stream] = _Seen(str(whole["created"]), begin, begin)
        seen.forget(begin)
        found: list[_Stored] = []
        looked = await self._known(client, stream, seen, choose, most + skip, found)
        mean = max(1, int(state["bytes"]) // max(1, int(state["messages"])))
        widest = max(_PAGE.start, min(_PAGE.stop - 1, _PAGE_BYTES // mean))
        at, width = max(begin, seen.upto) + 1, widest
        while at <= last and len(found) < most + skip and looked < _LOOK * most + skip:
            page, start = await self._page(client, stream, range(at, min(last + 1, at + width))), at
            at = page[-1].seq + 1 if page else last + 1
            # Where most are gone already, asking for each number is in vain; the last of a page finds the next one.
            width = max(_PAGE.start, width // 2) if 8 * len(page) < width else min(widest, 2 * width)
            seen.add(page, start, at - 1)
            looked += len(page)
            found += [one for one in page if choose(one.message)]
        return found[skip : skip + most], looked

    async def _known(
        self, client: Any, stream: str, seen: _Seen, choose: Choice, most: int, found: list[_Stored]
    ) -> int:
        """Put those chosen of what was seen before, and is still there, into ``found``; how many were looked at."""
        looked, numbers = 0, iter(list(seen.messages))
        while len(found) < most:
            wanted: list[int] = []
            for number in numbers:
                looked += 1
                if choose(seen.messages[number]):
                    wanted.append(number)
                    if len(wanted) == most - len(found):
                        break
            if not wanted:
                break
            told = await self._page(client, stream, wanted)
            found += told
            for number in set(wanted) - {one.seq for one in told}:
                seen.messages.pop(number, None)
        return looked

    async def _page(self, client: Any, stream: str, numbers: Sequence[int]) -> list[_Stored]:
        """Those of ``numbers`` that are there; of a range, the next one behind where the last of them is gone."""
        from brokers.nats.client import NO_MESSAGE, Request, accepted

        subject = f"{self._settings.api}.STREAM.MSG.GET.{stream}"
        wanted: list[dict[str, Any]] = [{"seq": number} for number in numbers]
        if isinstance(numbers, range):
            wanted[-1]["next_by_subj"] = ">"
        found = []
        for told in await client.many([Request(subject, json.dumps(body).encode()) for body in wanted]):
            if (told.get("error") or {}).get("err_code") != NO_MESSAGE:
                found.append(self._read(stream, accepted(subject, told)["message"]))
        return found

    def _read(self, stream: str, told: dict[str, Any]) -> _Stored:
        headers = _parsed(base64.b64decode(told.get("hdrs") or ""))
        plain = dict(headers)
        trace = Trace.of(plain.get(TRACE))
        at = datetime.fromisoformat(told["time"]).timestamp()
        enqueued = at if trace is None or trace.enqueued_at is None else trace.enqueued_at
        message = Message(f"{stream}-{told['seq']}", self._tenant(stream, told["subject"], plain), enqueued, plain)
        data = base64.b64decode(told.get("data") or "")
        return _Stored(int(told["seq"]), told["subject"], headers, data, message, trace)

    def _tenant(self, stream: str, subject: str, headers: Mapping[str, str]) -> str | None:
        """Whose it is; one that is aside has its first subject behind the stream's."""
        subject = subject.removeprefix(f"{_aside(stream)}.")
        return tenants.tenant_of(self._settings.tenant, tenants.Message(stream, subject, headers))

    async def _carry(self, client: Any, source: str, target: str, found: list[_Stored]) -> None:
        await self._publish(client, source, target, found)
        await self._delete(client, source, [one.seq for one in found])

    async def _publish(self, client: Any, source: str, target: str, found: list[_Stored]) -> list[int]:
        """Their sequences in ``target``, which has each once however often it is tried (in its duplicate window).

        SojournError where one is not taken; those that are have left ``source`` then.
        """
        told = await client.many([self._copy(source, target, one) for one in found])
        refused = [(one, answer["error"]) for one, answer in zip(found, told, strict=True) if "error" in answer]
        if refused:
            await self._delete(
                client, source, [one.seq for one, said in zip(found, told, strict=True) if "seq" in said]
            )
            one, error = refused[0]
            raise SojournError(f"stream {target} does not take {one.message.id}: {error.get('description')}")
        return [int(answer["seq"]) for answer in told]

    def _copy(self, source: str, target: str, one: _Stored) -> Any:
        from brokers.nats.client import Request

        kept = {name: value for name, value in one.headers if name.startswith("Nats-")}
        trace = one.trace
        if trace is None or not one.subject.startswith(f"{_aside(source)}."):  # from a queue, to which it comes back
            kept_before = {} if trace is None else dict(trace.kept)
            trace = Trace.now(one.message.id, source, one.subject, one.message.enqueued_at, kept | kept_before)
        headers = [(name, value) for name, value in one.headers if name not in kept and name != TRACE]
        headers += [(TRACE, trace.text()), ("Nats-Msg-Id", f"sojourn-{one.message.id}-{target}")]
        headers += [("Nats-Expected-Stream", target)]
        return Request(self._subject(target, one, trace), one.data, _Headers(headers))

    def _subject(self, target: str, one: _Stored, trace: Trace) -> str:
        if one.trace is not None and one.trace.origin == target:
            return one.trace.address  # home
        if self._settings.subject is None:
            return f"{_aside(target)}.{trace.address}"
        return self._settings.subject.replace("{subject}", one.subject).replace("{tenant}", one.message.tenant or "")

    async def _delete(self, client: Any, stream: str, numbers: list[int]) -> None:
        from brokers.nats.client import NO_MESSAGE, Request, accepted

        subject = f"{self._settings.api}.STREAM.MSG.DELETE.{stream}"
        if (seen := self._seen.get(stream)) is not None:
            for number in numbers:
                seen.messages.pop(number, None)
        bodies = (json.dumps({"seq": number, "no_erase": True}).encode() for number in numbers)
        for told in await client.many([Request(subject, body) for body in bodies]):
            # Gone already: an earlier try got so far.
            if (told.get("error") or {}).get("err_code") not in (NO_MESSAGE, 10043):
                accepted(subject, told)


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
