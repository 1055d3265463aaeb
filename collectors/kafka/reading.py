"""What one cycle of reading found: plain data, from which samples are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from collectors.kafka.settings import Selection
from collectors.kafka.wire.groups import Members
from collectors.kafka.wire.records import Stamp

#: States of classic groups in which the members' assignments are not decided.
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
#: Kind of group whose members share partitions, and finish records out of order (KIP-932).
SHARE = "share"
#: A partition of a topic.
Place: TypeAlias = tuple[str, int]


class Head(NamedTuple):
    """The place in the log where a group goes on: the first message at or after ``offset``."""

    topic: str
    partition: int
    offset: int


class Earlier(NamedTuple):
    """What was last known of a head that could not be read in this cycle: what was the head then had been written at
    ``time``. Then is ``at``, both in milliseconds since 1970, and ``tick``, on a clock that is never set.
    """

    time: int
    at: int
    tick: int


#: What is known of a head: its message; what it was earlier; None where nothing but control records is left; or why
#: nothing is known.
Found: TypeAlias = Stamp | Earlier | str | None


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One consumer group: its members (or why they are unknown) and its committed offsets (or why they are).

    ``committed`` has −1 where nothing is committed; ``errors`` says of partitions why their offset is not told. Of a
    share group it is the first offset that is not done with, and ``lags`` what waits from there on, where that is told.
    """

    name: str
    state: str
    members: Members | str
    committed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    errors: Mapping[Place, str] = field(default_factory=dict)
    failed: str | None = None
    kind: str = ""
    lags: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """One cycle. Times are in milliseconds since 1970, on our clock: Kafka does not tell its own; ``tick`` is in
    milliseconds on a clock that is never set.

    ``partitions``: the topics that are there. ``ends`` and ``stable_ends`` (the last stable offsets): the next offset,
    or why it is unknown. ``starts``: the first offset that is still kept, where it mattered. ``stamps``: what is known
    of the message at each head. ``assumed``: group → where it begins on partitions on which it has committed nothing,
    as the settings say. ``hung``: partitions whose last stable offset stands while their end moves on.
    ``unlisted``: why there may be groups that are not among ``groups``; empty where all are known.
    """

    at: int
    partitions: Mapping[str, tuple[int, ...]]
    groups: tuple[GroupReading, ...]
    ends: Mapping[Place, int | str]
    stable_ends: Mapping[Place, int | str]
    starts: Mapping[Place, int | str]
    stamps: Mapping[Head, Found]
    assumed: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)
    hung: Collection[Place] = frozenset()
    tick: int = 0
    unlisted: str = ""


def matches(name: str, globs: tuple[str, ...]) -> bool:
    """Whether ``name`` matches one of ``globs``."""
    return any(glob == "*" or fnmatchcase(name, glob) for glob in globs)


def wanted(name: str, selection: Selection) -> bool:
    """Whether ``selection`` has it."""
    return matches(name, selection.include) and not matches(name, selection.exclude)
