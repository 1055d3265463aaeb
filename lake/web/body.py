"""A request's body: read within its time and the bytes that there are, unpacked, or refused while it still comes."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from starlette.types import Receive

from lake.web.budget import Budget, Holding
from lake.web.policy import Limits, Refusal

#: How much is unpacked before it is counted.
_STEP = 64 * 1024


class Gone(Exception):
    """The peer went away before its body had come."""


def announced(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """How long the body says it is; None where it does not tell (chunked); 0 where there is none. Refusal."""
    lengths = {value for name, value in headers if name == b"content-length"}
    if any(name == b"transfer-encoding" for name, _ in headers):
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 18:
        raise Refusal(400, "the Content-Length header is malformed")
    return int(length)


def packing(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the body is packed by gzip; Refusal of any other encoding."""
    encodings = [value.decode("latin-1").strip().lower() for name, value in headers if name == b"content-encoding"]
    if encodings in ([], ["identity"], [""]):
        return False
    if encodings == ["gzip"]:
        return True
    raise Refusal(415, "the content encoding is gzip or none")


class BodyReader:
    """Reads the bodies of one listener, all of them together within its budget."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.budget = Budget(limits.bytes_in_flight)

    async def read(self, receive: Receive, headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, Holding]:
        """The body, unpacked, and what it holds of the budget, to be released by the caller; Refusal, Gone."""
        length, packed = announced(headers), packing(headers)
        if length is not None and length > self._limits.body_bytes:
            raise self._too_long()
        waiting = asyncio.timeout(self._limits.body_seconds)

        def evict() -> None:
            waiting.reschedule(asyncio.get_running_loop().time())

        holding = self.budget.holding(evict)
        try:
            async with waiting:
                body = await self._gather(receive, holding, packed)
                holding.whole()
            if holding.evicted:
                raise _crowded()
            return body, holding
        except TimeoutError:
            holding.release()
            raise _crowded() if holding.evicted else Refusal(408, "the body did not come in time") from None
        except BaseException:
            holding.release()
            raise

    async def _gather(self, receive: Receive, holding: Holding, packed: bool) -> bytes:
        body = bytearray()
        unpacking = zlib.decompressobj(wbits=31) if packed else None
        came = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            chunk, more = message.get("body", b""), message.get("more_body", False)
            came += len(chunk)
            if came > self._limits.body_bytes:
                raise self._too_long()
            if unpacking is not None:
                self._unpack(unpacking, chunk, body, holding)
            elif not more and not body:
                self._charge(holding, len(chunk))
                return bytes(chunk)
            else:
                self._charge(holding, len(chunk))
                body += chunk
            if not more:
                break
        if unpacking is not None and (not unpacking.eof or unpacking.unused_data):
            raise Refusal(400, "the body is not gzip, not whole, or more than one member")
        return bytes(body)

    def _unpack(self, unpacking: zlib._Decompress, chunk: bytes, body: bytearray, holding: Holding) -> None:
        while chunk and not unpacking.eof:
            try:
                step = unpacking.decompress(chunk, _STEP)
            except zlib.error:
                raise Refusal(400, "the body is not gzip, or not whole") from None
            self._charge(holding, len(step))
            body += step
            chunk = unpacking.unconsumed_tail

    def _charge(self, holding: Holding, count: int) -> None:
        if holding.bytes + count > self._limits.body_bytes:
            raise self._too_long()
        if not holding.charge(count):
            raise _crowded()

    def _too_long(self) -> Refusal:
        return Refusal(413, f"a request has at most {self._limits.body_bytes} bytes, packed or unpacked")


def _crowded() -> Refusal:
    return Refusal(429, "too many bodies are on their way", retry_seconds=1)
