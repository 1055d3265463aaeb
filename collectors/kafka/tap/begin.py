"""Where a partition is begun: behind what bronze holds, else where its groups are, or at an end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from collectors.kafka.settings import KafkaBroker
from collectors.kafka.tap.partition import Partition
from collectors.kafka.tap.rows import Rows
from collectors.kafka.tap.settings import TapTopic

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What bronze holds of a partition: the next offset to read, and for each group where its ends are to go on."""

    label: str
    generation: int
    position: int | None
    told: Mapping[str, int | None]


def begin(
    broker: KafkaBroker,
    topic: TapTopic,
    known: Known,
    ends: tuple[int, int],
    committed: Mapping[str, int],
    *,
    later: bool,
) -> Partition:
    """The partition as it is to be followed, given its first offset and the one behind its last.

    ``committed`` is what the watched groups have committed; ``later``: the topic was followed before this partition
    was there, or was recreated, so that all of it is new.
    """
    low, high = ends
    position = known.position
    if position is None:
        position = low if later else _first(broker, known.label, low, high, list(committed.values()))
    told = {}
    for group in topic.groups:
        before, reached = known.told[group], committed.get(group, position)
        if before is not None:
            told[group] = before
        elif known.position is None:
            told[group] = max(position, reached)
        else:  # watched from now on: what it has committed already was done before, what it has not is in bronze
            told[group] = max(low, min(position, reached))
    rows = Rows(broker.name, topic.queue_name, known.label)
    return Partition(rows, position, told, named=len(topic.groups) > 1, bound=broker.tap.max_unfinished)


def _first(broker: KafkaBroker, label: str, low: int, high: int, committed: list[int]) -> int:
    """Where to begin a partition that was never followed."""
    tap = broker.tap
    if tap.start == "latest" or (tap.start == "backlog" and not committed):
        return high
    wanted = low if tap.start == "earliest" else min(high, max(low, min(committed)))
    if high - wanted > tap.first_look_limit:
        log.warning("kafka-tap:%s: only the newest %d records in %s are told", broker.name, tap.first_look_limit, label)
        return high - tap.first_look_limit
    return wanted
