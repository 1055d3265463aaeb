"""Which version of each request is sent: the newest that both sides speak."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.kafka.wire.cluster import METADATA
from collectors.kafka.wire.groups import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH
from collectors.kafka.wire.offsets import FETCH, LIST_OFFSETS
from lake.errors import UserError

#: Request → its name in Kafka's protocol, and the versions of it that we speak. Others can be done without.
NEEDED: dict[int, tuple[str, tuple[int, ...]]] = {
    METADATA: ("Metadata", (10,)),
    LIST_GROUPS: ("ListGroups", (4, 5)),
    DESCRIBE_GROUPS: ("DescribeGroups", (5,)),
    OFFSET_FETCH: ("OffsetFetch", (8,)),
    LIST_OFFSETS: ("ListOffsets", (6,)),
    FETCH: ("Fetch", (12,)),
}


class Unspoken(UserError):
    """The broker answers, but not to requests as we write them: another client may be understood."""


def missing(versions: Mapping[int, tuple[int, int]]) -> str | None:
    """What a broker that speaks ``versions`` (request → oldest, newest) lacks, in words; None if it lacks nothing."""
    lacks = []
    for api, (name, ours) in NEEDED.items():
        oldest, newest = versions.get(api, (0, -1))
        if not any(oldest <= version <= newest for version in ours):
            wanted = " or ".join(map(str, ours))
            there = "does not know it" if newest < 0 else f"speaks {oldest} to {newest}"
            lacks.append(f"{name} {wanted} (it {there})")
    return ", ".join(lacks) or None
