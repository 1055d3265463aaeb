"""Rows that a client brings along ahead of a plan: taken under the hash of what they are, and nothing but rows.

Spark keeps them for the client's session. It would take jars, files and Python modules the same way.
"""

from __future__ import annotations

import hashlib
from typing import Any

from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError
from spark_analytics.connect.allowed import ARROW, OWN_ROWS, Refused
from spark_analytics.connect.schemas import MOST_CHARACTERS, checked_schema

#: A client's rows in one call, in bytes.
MOST_BYTES = 1 << 30


class OwnRows:
    """The parts of one upload, each to be checked before it is passed on."""

    def __init__(self) -> None:
        self._bytes = 0
        self._due = 0
        self._hash = ""
        self._digest = hashlib.sha256()

    def check(self, request: base_pb2.AddArtifactsRequest) -> None:
        """Raises UserError if ``request``, the next part, brings anything but rows, or not those that it names."""
        kind = request.WhichOneof("payload")
        if kind == "batch":
            for artifact in request.batch.artifacts:
                self._begin(artifact.name, 1)
                self._take(artifact.data.data, first=True)
        elif kind == "begin_chunk":
            self._begin(request.begin_chunk.name, request.begin_chunk.num_chunks)
            self._take(request.begin_chunk.initial_chunk.data, first=True)
        elif kind == "chunk":
            self._take(request.chunk.data, first=False)
        else:
            raise Refused("bringing nothing")

    def _begin(self, name: str, chunks: int) -> None:
        found = OWN_ROWS.fullmatch(name)
        if found is None or self._due > 0 or chunks < 1:
            raise Refused(f"bringing {name[:200]}")
        self._hash, self._due, self._digest = found.group(1), chunks, hashlib.sha256()

    def _take(self, data: bytes, *, first: bool) -> None:
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise Refused(f"bringing more than {MOST_BYTES >> 20} MiB")
        if self._due < 1:
            raise Refused("bringing a part of nothing")
        if first and not data.startswith(ARROW):
            _check_schema(data, whole=self._due == 1)
        self._digest.update(data)
        self._due -= 1
        if self._due == 0 and self._digest.hexdigest() != self._hash:
            raise Refused("bringing rows under the hash of others")


def _check_schema(data: Any, *, whole: bool) -> None:
    """Rows are Arrow's; the schema of rows in many parts comes like them, as text."""
    try:
        text = bytes(data[: 4 * MOST_CHARACTERS + 1]).decode()
        known = whole and text.startswith("{") and bool(checked_schema(text))
    except (UnicodeDecodeError, UserError):
        known = False
    if not known:
        raise Refused("bringing what are no rows")
