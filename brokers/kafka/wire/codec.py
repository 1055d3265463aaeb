"""Kafka's primitive types, "flexible": lengths are varints of length + 1, and tagged fields end a structure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from brokers.errors import ConnectionLost

Value = TypeVar("Value")

_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")

#: The end of a structure without tagged fields.
END = b"\0"


@dataclass(frozen=True, slots=True)
class Request:
    """One request without its header; ``body`` is complete."""

    api: int
    version: int
    body: bytes


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """A compact string."""
    raw = value.encode()
    return varint(len(raw) + 1) + raw


def blob(value: bytes) -> bytes:
    """Compact bytes."""
    return varint(len(value) + 1) + value


def array(items: Iterable[bytes]) -> bytes:
    """A compact array of encoded items."""
    chosen = list(items)
    return varint(len(chosen) + 1) + b"".join(chosen)


class Reader:
    """Reads one answer from its beginning to its end; ConnectionLost if it ends too soon.

    ``data`` and ``at`` are open to decoders of long arrays, which read fixed layouts by themselves.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def short(self) -> int:
        """An int16."""
        return self.fixed(_SHORT)

    def integer(self) -> int:
        """An int32."""
        return self.fixed(_INT)

    def long(self) -> int:
        """An int64."""
        return self.fixed(_LONG)

    def byte(self) -> int:
        """An int8, read as unsigned."""
        return self.take(1)[0]

    def fixed(self, layout: struct.Struct) -> int:
        """The one number that ``layout`` describes."""
        try:
            value: int = layout.unpack_from(self.data, self.at)[0]
        except struct.error:
            raise cut_off() from None
        self.at += layout.size
        return value

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        found = self.data[self.at : self.at + length]
        if len(found) != length:
            raise cut_off()
        self.at += length
        return found

    def varint(self) -> int:
        """An unsigned varint of at most 64 bits."""
        data, at = self.data, self.at
        if at < len(data) and data[at] < 0x80:  # most are small
            self.at = at + 1
            return data[at]
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise cut_off()

    def signed(self) -> int:
        """A zigzag varint, as records have it."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str:
        """A compact string; empty where it is null."""
        length = self.varint()
        return self.take(length - 1).decode("utf-8", "replace") if length > 1 else ""

    def blob(self) -> bytes:
        """Compact bytes; empty where they are null."""
        length = self.varint()
        return self.take(length - 1) if length > 1 else b""

    def array(self, item: Callable[[], Value]) -> list[Value]:
        """A compact array, each item read by ``item``; empty where it is null."""
        return [item() for _ in range(self.count())]

    def count(self) -> int:
        """The length of a compact array; 0 where it is null."""
        length = self.varint() - 1
        if length > len(self.data) - self.at:
            raise cut_off()  # each item has a byte at least
        return max(0, length)

    def tags(self) -> None:
        """Pass over the tagged fields at the end of a structure."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def cut_off() -> ConnectionLost:
    """What is raised for an answer that ends too soon."""
    return ConnectionLost("the broker's answer is not what Kafka's protocol says")
