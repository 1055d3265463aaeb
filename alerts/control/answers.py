"""What the limits API answers, rendered once for each version, place and form, however many ask.

Two forms. The plain one names every field and stands by itself: for people and simple clients. The compact one, for
``sojourn.Limits``, groups by queue, says each reason once, and tells only what changed since the version that the
client has; its leases are seconds of the server's clock, to be compared with ``now`` beside them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from alerts.control.board import Board, Change, Congestion, Entitlement, Item, ItemKey, ServedLimit, Snapshot

#: Rendered answers of one version that are kept, in bytes; the newest is always kept.
MOST_KEPT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Selector:
    """Which part of the board is asked for; without brokers, or queues, that of all."""

    brokers: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()

    def takes(self, key: ItemKey) -> bool:
        """Whether what ``key`` is about belongs to the part."""
        return (not self.brokers or key[1] in self.brokers) and (not self.queues or key[2] in self.queues)


EVERYTHING = Selector()


class Answers:
    """Renders and keeps answers; belongs to one thread."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._version = 0
        self._kept: dict[Any, tuple[bytes, datetime | None]] = {}
        self._concerned: dict[tuple[Selector, int], bool] = {}
        #: How many bodies were rendered: what is asked a thousand times is rendered once.
        self.rendered = 0

    def plain(self, selector: Selector, now: datetime, ahead: timedelta, waited: float) -> tuple[int, bytes]:
        """The newest version, and all that is in force as a JSON object that stands by itself."""
        snapshot = self._newest()
        key = ("plain", selector, ahead)
        kept = self._kept.get(key)
        if kept is None or (kept[1] is not None and kept[1] <= now):
            chosen = [item for item in _limits(snapshot, selector) if item.valid_until > now]
            body = _json([_fields(item, ahead) for item in chosen])
            kept = self._keep(key, body, min((item.valid_until for item in chosen), default=None))
        head = {"version": snapshot.version, "generated_at": (now + ahead).isoformat(), "waited_seconds": waited}
        return snapshot.version, _json(head)[:-1] + b',"limits":' + kept[0] + b"}"

    def compact(self, selector: Selector, since: int, now: datetime, waited: float) -> tuple[int, bytes]:
        """The newest version, and what changed since version ``since``, or all if that is unknown."""
        snapshot = self._newest()
        key = ("compact", selector, since)
        kept = self._kept.get(key)
        if kept is None:
            change = self._board.since(since)
            told = since
            if change is None or change.version != snapshot.version:
                change, told = Change(snapshot.version, snapshot.items, frozenset()), -1
            kept = self._keep(key, _compact(change, selector, told), None)
        head = {"version": snapshot.version, "now": round(now.timestamp(), 3), "waited_seconds": waited}
        return snapshot.version, _json(head)[:-1] + b"," + kept[0][1:]

    def concerns(self, selector: Selector, since: int) -> bool:
        """Whether anything that ``selector`` takes has changed since version ``since``."""
        if selector == EVERYTHING:
            return self._board.snapshot.version != since
        self._newest()
        key = (selector, since)
        if key not in self._concerned:
            change = self._board.since(since)
            self._concerned[key] = change is None or any(map(selector.takes, (*change.items, *change.gone)))
        return self._concerned[key]

    def _newest(self) -> Snapshot:
        snapshot = self._board.snapshot
        if snapshot.version != self._version:
            self._version = snapshot.version
            self._kept.clear()
            self._concerned.clear()
        return snapshot

    def _keep(self, key: Any, body: bytes, until: datetime | None) -> tuple[bytes, datetime | None]:
        self.rendered += 1
        self._kept.pop(key, None)
        size = len(body) + sum(len(other) for other, _ in self._kept.values())
        while self._kept and size > MOST_KEPT_BYTES:
            size -= len(self._kept.pop(next(iter(self._kept)))[0])
        self._kept[key] = body, until
        return self._kept[key]


def _limits(snapshot: Snapshot, selector: Selector) -> Iterable[ServedLimit]:
    return (item for item in snapshot.limits if selector.takes(item.key))


def _fields(limit: ServedLimit, ahead: timedelta) -> dict[str, Any]:
    fields = {field.name: getattr(limit, field.name) for field in dataclasses.fields(limit)}
    return fields | {"valid_until": (limit.valid_until + ahead).isoformat()}


def _compact(change: Change, selector: Selector, since: int) -> bytes:
    """``since`` −1: the answer is of all that stands, not of what changed."""
    queues: dict[tuple[str, str], dict[str, Any]] = {}
    reasons: dict[str, int] = {}

    def of(key: ItemKey) -> dict[str, Any]:
        place = key[1:3]
        entry = queues.get(place)
        if entry is None:
            entry = queues[place] = {"broker": key[1], "queue": key[2]}
        return entry

    for key, item in _taken(change.items, selector):
        if isinstance(item, ServedLimit):
            entry = of(key)
            limits = entry.get("limits")
            if limits is None:
                limits = entry["limits"] = []
            until = round(item.valid_until.timestamp(), 3)
            limits.append((item.tenant, item.rate, item.burst, until, reasons.setdefault(item.reason, len(reasons))))
        elif isinstance(item, Entitlement):
            of(key).setdefault("entitled", []).append((item.tenant, item.rate, item.burst))
        elif isinstance(item, Congestion):
            of(key)["congested"] = (round(item.valid_until.timestamp(), 3), item.reason)
    for key in sorted(filter(selector.takes, change.gone)):
        if key[0] == "congested":
            of(key)["congested"] = (0, "")
        else:
            of(key).setdefault("lifted" if key[0] == "limit" else "unentitled", []).append(key[3])
    told = {"since": None if since < 0 else since, "reasons": list(reasons), "queues": list(queues.values())}
    return _json(told)


def _taken(items: Mapping[ItemKey, Item], selector: Selector) -> Iterable[tuple[ItemKey, Item]]:
    return items.items() if selector == EVERYTHING else ((k, item) for k, item in items.items() if selector.takes(k))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
