"""Redis Streams through redis-py: ``client = RecordingRedis(redis.Redis(), recorder)``, and use it as before.

``xadd`` tells enqueued, ``xreadgroup`` received (the entry's id holds when it was added) and how long it waited for how
many, ``xack`` completed, ``xclaim`` and ``xautoclaim`` a further attempt. The tenant is the field ``tenant``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, Deliveries, Delivery, Wrapped, as_text
from sojourn.client.recorder import Recorder

BROKER = "redis"


class RecordingRedis(Wrapped):
    """A redis-py client whose stream commands record; ``tenant_field`` is the field that names the tenant.

    Commands inside a pipeline are not seen: their results come later, elsewhere.
    """

    def __init__(self, client: Any, recorder: Recorder, *, tenant_field: str = TENANT) -> None:
        super().__init__(client, recorder)
        self._tenant_field = tenant_field
        self._deliveries = Deliveries(recorder)

    def xadd(self, name: Any, fields: Mapping[Any, Any], *args: Any, **kwargs: Any) -> Any:
        """As redis-py's; tells enqueued, and counts how long it took."""
        with self._recorder.publishing(as_text(name) or "", broker=BROKER):
            entry = self._inner.xadd(name, fields, *args, **kwargs)
        if entry is not None:  # None: NOMKSTREAM, and there was no stream
            entry_id = as_text(entry) or ""
            self._recorder.enqueued(
                as_text(name) or "",
                entry_id,
                broker=BROKER,
                tenant=self._tenant(fields),
                enqueued_at=added_at(entry_id),
            )
        return entry

    def xreadgroup(
        self, groupname: Any, consumername: Any, streams: Mapping[Any, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """As redis-py's; tells received of each entry, and counts a poll of each stream that was read for new ones."""
        started = time.monotonic()
        answer = self._inner.xreadgroup(groupname, consumername, streams, *args, **kwargs)
        group, now = as_text(groupname), time.monotonic()
        read: dict[str, int] = {}
        pairs: Iterable[Any] = answer.items() if isinstance(answer, dict) else answer or ()
        new = {as_text(name) or "" for name, after in streams.items() if as_text(after) == ">"}
        for name, entries in pairs:
            stream = as_text(name) or ""
            # RESP3 wraps the entries of a stream in one more list.
            found = [entry for part in entries for entry in (part if isinstance(part, list) else [part])]
            read[stream] = len(found)
            for entry_id, fields in found:
                # Read again from one's own pending entries: at least the second attempt.
                self._received(stream, group, entry_id, fields, 1 if stream in new else 2)
        for stream in new:
            self._recorder.polled(
                stream, messages=read.get(stream, 0), waited=now - started, subscriber=group, broker=BROKER
            )
        return answer

    def xautoclaim(self, name: Any, groupname: Any, *args: Any, **kwargs: Any) -> Any:
        """As redis-py's; tells received of each entry, at least the second attempt."""
        answer = self._inner.xautoclaim(name, groupname, *args, **kwargs)
        if not kwargs.get("justid"):
            self._claimed(name, groupname, answer[1])
        return answer

    def xclaim(self, name: Any, groupname: Any, *args: Any, **kwargs: Any) -> Any:
        """As redis-py's; tells received of each entry, at least the second attempt."""
        answer = self._inner.xclaim(name, groupname, *args, **kwargs)
        if not kwargs.get("justid"):
            self._claimed(name, groupname, answer)
        return answer

    def xack(self, name: Any, groupname: Any, *ids: Any) -> Any:
        """As redis-py's; tells completed, unless the entries were not pending any more."""
        acknowledged = self._inner.xack(name, groupname, *ids)
        for entry_id in ids if acknowledged else ():
            self._deliveries.ended((as_text(name), as_text(groupname), as_text(entry_id)), "completed")
        return acknowledged

    def _claimed(self, name: Any, groupname: Any, entries: Iterable[Any]) -> None:
        for entry_id, fields in entries:
            if entry_id is not None:  # Redis before 7 has nothing in the place of an entry that was deleted
                self._received(as_text(name) or "", as_text(groupname), entry_id, fields, 2)

    def _received(self, stream: str, group: str | None, entry: Any, fields: Any, attempt: int) -> None:
        entry_id = as_text(entry) or ""
        # The fields of an entry that was deleted while pending are gone.
        tenant = self._tenant(fields) if fields else None
        delivery = Delivery(
            BROKER, stream, entry_id, group, tenant, attempt, added_at(entry_id), since=time.monotonic()
        )
        self._deliveries.received((stream, group, entry_id), delivery)

    def _tenant(self, fields: Mapping[Any, Any]) -> str | None:
        name = self._tenant_field
        return as_text(fields.get(name, fields.get(name.encode())))


def added_at(entry_id: str) -> float | None:
    """When an entry was added, in seconds: the first part of its id, which Redis made unless the producer chose it."""
    milliseconds = entry_id.partition("-")[0]
    return int(milliseconds) / 1000 if milliseconds.isascii() and milliseconds.isdigit() else None
