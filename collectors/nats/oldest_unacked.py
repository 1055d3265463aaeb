"""The oldest unacknowledged message of each consumer: asked for once, and again only when it was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from collectors.nats.exchange import Answer
from collectors.nats.parse import microseconds

#: Filters of one consumer that are looked through; one with more gets the age of the oldest of any subject.
_MOST_FILTERS = 8

#: Stream, when it was made, the first sequence that may be it, and the subjects that it may have.
Place = tuple[str, str, int, str]


class Head(NamedTuple):
    """A stored message: its sequence, and when it was stored (microseconds, the broker's clock)."""

    sequence: int
    stored_at: int


def outstanding(info: Mapping[str, Any]) -> int:
    """Messages that wait for a consumer, or are in its hands."""
    return int(info["num_pending"]) + int(info["num_ack_pending"])


class OldestUnacked:
    """Remembers them from one cycle to the next, those in use alone: consumers at one place share one look."""

    def __init__(self) -> None:
        self._known: dict[Place, Head | None] = {}
        self._used: dict[Place, Head | None] = {}

    def begin(self) -> None:
        """A cycle begins: forget what the one before did not use."""
        self._known, self._used = self._used, {}

    def unknown(self, streams: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Place]:
        """The places to look at: those of (stream, consumer) with something outstanding that are not known yet."""
        wanted: dict[Place, None] = {}
        for stream, info in streams:
            for place in _places(stream, info):
                known = self._known.get(place, self._used.get(place))
                if known is not None and known.sequence >= stream["state"]["first_seq"]:
                    self._used[place] = known
                else:
                    self._used.pop(place, None)  # removed meanwhile: the next one is the oldest
                    wanted[place] = None
        return list(wanted)

    def learn(self, places: Iterable[Place], answers: Iterable[Answer]) -> None:
        """What looking at ``places`` showed; a refusal is: nothing there."""
        for place, answer in zip(places, answers, strict=True):
            message = answer.get("message") if isinstance(answer, dict) else None
            self._used[place] = Head(message["seq"], microseconds(message["time"])) if message else None

    def of(self, stream: Mapping[str, Any], info: Mapping[str, Any]) -> Head | None:
        """The consumer's oldest unacknowledged message; None if nothing is outstanding, or it is gone."""
        found = [head for place in _places(stream, info) if (head := self._used.get(place)) is not None]
        return min(found) if found else None


def request(place: Place) -> tuple[str, dict[str, Any]]:
    """What to ask the server for the first message at a place."""
    stream, _, sequence, subjects = place
    return f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subjects}


def _places(stream: Mapping[str, Any], info: Mapping[str, Any]) -> list[Place]:
    if not outstanding(info):
        return []
    name, created, config = stream["config"]["name"], stream["created"], info["config"]
    first = info["ack_floor"]["stream_seq"] + 1
    several = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
    filters = several if len(several) <= _MOST_FILTERS else [">"]
    return [(name, created, first, subjects) for subjects in filters]
