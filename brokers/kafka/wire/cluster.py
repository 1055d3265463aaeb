"""Which brokers, topics and leaders there are, and which versions a broker speaks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from brokers.kafka.wire.codec import END, Reader, Request

API_VERSIONS, METADATA = 18, 3
_PARTITION = struct.Struct(">hiii")


class Node(NamedTuple):
    """Where one broker listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: ``leaders`` maps each partition to its leader's node id, negative while it has none."""

    identity: bytes
    internal: bool
    leaders: Mapping[int, int]
    error: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster as one broker sees it."""

    nodes: Mapping[int, Node]
    topics: Mapping[str, Topic]


def api_versions_request() -> Request:
    """Asks for the versions of every request; version 0, which every broker understands."""
    return Request(API_VERSIONS, 0, b"")


def read_api_versions(answer: Reader) -> dict[int, tuple[int, int]]:
    """Request → oldest and newest version that the broker speaks."""
    answer.short()
    return {answer.short(): (answer.short(), answer.short()) for _ in range(answer.integer())}


def metadata_request() -> Request:
    """Asks for all topics, and creates none."""
    return Request(METADATA, 10, b"\0" + b"\0\0\0" + END)


def read_metadata(answer: Reader) -> Metadata:
    """The cluster."""
    answer.integer()
    nodes = {}
    for _ in range(answer.count()):
        number = answer.integer()
        nodes[number] = Node(answer.text(), answer.integer())
        answer.text()
        answer.tags()
    answer.text()
    answer.integer()
    topics = {}
    for _ in range(answer.count()):
        error, name, identity, internal = answer.short(), answer.text(), answer.take(16), answer.byte()
        topics[name] = Topic(identity, bool(internal), _leaders(answer), error)
        answer.integer()
        answer.tags()
    return Metadata(nodes, topics)


def _leaders(answer: Reader) -> dict[int, int]:
    leaders = {}
    for _ in range(answer.count()):
        _, partition, leader, _ = _PARTITION.unpack(answer.take(_PARTITION.size))
        leaders[partition] = leader
        for _ in range(3):  # replicas, those in sync, those that are offline
            answer.take(4 * answer.count())
        answer.tags()
    return leaders
