"""Ids of events that spans tell: the same for a span that is sent again, made and read many at once.

An id is 49 characters: the span id, the lower half of the trace id (16 hexadecimal digits each), a letter for what
happened, and 16 digits that tell apart what one span says of several messages. On an enqueued event (``e``) those are
the parent's span id and do not count: they let a restarted receiver know again which send span wrapped which.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Keys = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

#: What happened: enqueued, enqueued as one of a batch, received, ended (however it ended).
ENQUEUED, BATCHED, RECEIVED, ENDED = b"e", b"b", b"r", b"x"
NOTHING = bytes(8)
LENGTH = 49
ID = "^[0-9a-f]{32}[a-z][0-9a-f]{16}$"

_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_VALUES = np.zeros(256, dtype=np.uint8)
_VALUES[_DIGITS] = np.arange(16, dtype=np.uint8)
_ODD = [
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
]


def made(
    contexts: Sequence[bytes], letters: Sequence[bytes], salts: Sequence[bytes]
) -> tuple[pa.Array, pa.Array, Keys]:
    """(event ids, trace ids, keys) of events at spans with ``contexts`` (16 bytes trace id, 8 bytes span id)."""
    count = len(contexts)
    context, context_text = _read_and_hex(contexts, 24)
    salt, salt_text = _read_and_hex(salts, 8)
    letter = np.frombuffer(b"".join(letters), dtype=np.uint8)
    text = np.empty((count, LENGTH), dtype=np.uint8)
    text[:, :16] = context_text[:, 32:]
    text[:, 16:32] = context_text[:, 16:32]
    text[:, 32] = letter
    text[:, 33:] = salt_text
    keys = _keys(context[:, 16:], context[:, 8:16], letter, salt)
    return _strings(text), _strings(context_text[:, :32]), keys


def read(event_ids: pa.Array) -> Keys:
    """The keys of ids that :func:`made` made."""
    text = _matrix(event_ids)
    return _keys(_unhex(text[:, :16]), _unhex(text[:, 16:32]), text[:, 32], _unhex(text[:, 33:]))


def key_of(event_id: str) -> int:
    """The key of an id that somebody else made."""
    return int.from_bytes(blake2b(event_id.encode(), digest_size=8).digest(), "little")


def _keys(span: Bytes, trace: Bytes, letter: Bytes, salt: Bytes) -> Keys:
    """64 bits of each id. Two of n ids meet with a probability of n²/2⁶⁵: one in four million at n = 4 million..."""
    counts = letter != ENQUEUED[0]
    parts = [_words(span), _words(trace), letter.astype(np.uint64), _words(salt) * counts]
    key = np.zeros(len(letter), dtype=np.uint64)
    for part, odd in zip(parts, _ODD, strict=True):
        key = (key ^ (part * odd)) * _ODD[0]
        key ^= key >> np.uint64(29)
    return key


def _words(eight: Bytes) -> Keys:
    words: Keys = np.ascontiguousarray(eight).view(np.uint64).reshape(len(eight))
    return words


def _read_and_hex(pieces: Sequence[bytes], length: int) -> tuple[Bytes, Bytes]:
    """``pieces`` of ``length`` bytes each, one a row, and their hexadecimal digits."""
    joined = b"".join(pieces)
    digits = np.frombuffer(hexlify(joined), dtype=np.uint8)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, length), digits.reshape(-1, 2 * length)


def _unhex(text: Bytes) -> Bytes:
    values = _VALUES[text]
    return values[:, ::2] << np.uint8(4) | values[:, 1::2]


def _strings(text: Bytes) -> pa.Array:
    count, length = text.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(length)
    data = np.ascontiguousarray(text)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def _matrix(ids: pa.Array) -> Bytes:
    joined: Any = b"".join(text.encode() for text in ids.to_pylist())
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(ids), LENGTH)
