"""Recorded answers of a real broker → the samples that were reasoned out from what was put into it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import Reader
from collectors.kafka.history import Judgement
from collectors.kafka.parse import UNTOLD, samples
from collectors.kafka.reader import ClusterReader
from collectors.kafka.reading import GroupReading, Head, Reading
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.groups import Members, read_list_groups, read_offset_fetch
from collectors.kafka.wire.offsets import read_fetch, read_list_offsets
from collectors.kafka.wire.records import Stamp
from tests.collectors.kafka.reading import by_name
from tests.collectors.kafka.recording import BASE, FILE, Recorded, exchanges, recorded_settings

#: The clock at the reading, in milliseconds.
NOW = BASE + 100_000
DECODERS = {2: read_list_offsets, 9: read_offset_fetch, 1: read_fetch, 16: lambda answer: read_list_groups(answer, 5)}


def never(*_: Any) -> Judgement:
    return Judgement(None)


def test_recorded_answers_become_the_expected_samples() -> None:
    expected = json.loads((FILE.parent / "expected.json").read_text())
    broker = recorded_settings()
    reading = ClusterReader(broker, Recorded(exchanges()), lambda: NOW).read()
    found, ahead = samples(reading, broker, never)
    assert ahead == set()
    told = by_name(found)
    assert set(told) == {(one["queue"], one.get("subscriber")) for one in expected}
    for one in expected:
        sample = dataclasses.asdict(told[one["queue"], one.get("subscriber")])
        reasons = sample.pop("unavailable")
        values = {name: value for name, value in sample.items() if value is not None}
        fixed = {"sampled_at": NOW * 1000, "queue_type": "topic", "staleness_seconds": 0.0}
        assert values == fixed | {name: value for name, value in one.items() if name != "unavailable"}
        assert reasons == UNTOLD | one["unavailable"]


@pytest.mark.parametrize("api", DECODERS)
def test_an_answer_that_is_cut_anywhere_is_a_lost_connection_and_nothing_else(api: int) -> None:
    recorded = next(one for one in exchanges() if one["api"] == api)
    whole = bytes.fromhex(recorded["answer"])
    for length in range(len(whole) - 1):
        with pytest.raises(ConnectionLost):
            DECODERS[api](Reader(whole[:length]))


def reading(committed: dict[int, int], ends: dict[int, int | str], **changes: Any) -> Reading:
    group = GroupReading("g", "Stable", Members(1, {"t": 1}), {"t": committed})
    return dataclasses.replace(
        Reading(
            at=NOW,
            partitions={"t": tuple(ends)},
            groups=(group,),
            ends={("t", partition): end for partition, end in ends.items()},
            stable_ends={("t", partition): end for partition, end in ends.items()},
            starts={("t", partition): 1 for partition in ends},
            stamps={Head("t", 0, 2): Stamp(2, NOW - 9000, False), Head("t", 1, 3): Stamp(3, NOW - 5000, False)},
        ),
        **changes,
    )


def only(found: Reading) -> Any:
    return by_name(samples(found, KafkaBroker(), never)[0])["t", "g"]


def test_what_waits_on_known_partitions_is_told_beside_the_number_of_unknown_ones() -> None:
    sample = only(reading({0: 2, 1: 3, 2: 0}, {0: 10, 1: 10, 2: "its leader is changing"}))
    assert (sample.depth, sample.oldest_age_seconds, sample.retention_margin) == (15, 9.0, 1)
    assert (sample.unknown_partitions, sample.consumers) == (1, 1)
    for name in ("unknown_partitions", "published_total"):  # a sum of ends would seem to jump when the third is back
        assert sample.unavailable[name] == "1 of 3 partitions are unknown; 2: its leader is changing"
    assert sample.published_total is None


def test_nothing_waiting_on_known_partitions_is_no_age_while_another_is_unknown() -> None:
    sample = only(reading({0: 10}, {0: 10, 1: 10}))
    assert (sample.depth, sample.unknown_partitions) == (0, 1)
    for name in ("oldest_age_seconds", "retention_margin"):
        assert getattr(sample, name) is None
        assert sample.unavailable[name] == "1 of 2 partitions are unknown; 1: nothing is committed"


def test_no_known_partition_is_no_depth() -> None:
    sample = only(reading({}, {0: 10, 1: 10}))
    assert (sample.unknown_partitions, sample.consumers) == (2, 1)
    for name in ("depth", "oldest_age_seconds", "acked_total", "lost_total", "retention_margin", "status"):
        assert getattr(sample, name) is None
        assert sample.unavailable[name] == "2 of 2 partitions are unknown; 0: nothing is committed"


def test_the_oldest_of_all_partitions_counts_and_the_least_margin() -> None:
    sample = only(reading({0: 2, 1: 3}, {0: 10, 1: 10}))
    assert (sample.depth, sample.oldest_age_seconds, sample.retention_margin) == (15, 9.0, 1)


def test_where_nothing_was_ever_deleted_no_margin_is_known() -> None:
    sample = only(reading({0: 2, 1: 3}, {0: 10, 1: 10}, starts={("t", 0): 0, ("t", 1): 0}))
    assert (sample.depth, sample.retention_margin) == (15, None)
    assert sample.unavailable["retention_margin"] == "retention has deleted nothing yet"
    assert only(reading({0: 2, 1: 3}, {0: 10, 1: 10}, starts={("t", 0): 0, ("t", 1): 2})).retention_margin == 1


def test_an_end_before_the_committed_offset_is_unknown_never_negative() -> None:
    sample = only(reading({0: 12}, {0: 10}))
    assert sample.depth is None
    assert sample.unavailable["depth"] == "the committed offset 12 is beyond the end 10: the log was recreated"


def test_a_time_that_could_not_be_read_leaves_the_depth_known() -> None:
    sample = only(reading({0: 2}, {0: 10}, stamps={Head("t", 0, 2): "we are not allowed to read the topic"}))
    assert (sample.depth, sample.oldest_age_seconds) == (8, None)
    assert sample.unavailable["oldest_age_seconds"] == "we are not allowed to read the topic"


def test_a_record_without_a_time_has_no_age() -> None:
    sample = only(reading({0: 2}, {0: 10}, stamps={Head("t", 0, 2): Stamp(2, -1, False)}))
    assert (sample.oldest_age_seconds, sample.unavailable["oldest_age_seconds"]) == (
        None,
        "the record has no timestamp",
    )


def test_a_group_whose_coordinator_is_silent_keeps_its_rows_without_numbers() -> None:
    group = GroupReading("g", "Stable", "no answer", {"t": {0: 2}}, failed="no answer")
    sample = only(reading({}, {0: 10}, groups=(group,)))
    assert (sample.depth, sample.consumers, sample.state) == (None, None, None)
    assert sample.unavailable["depth"] == "no answer"
    assert sample.published_total == 10


def test_consumers_are_unknown_while_a_group_rebalances() -> None:
    group = GroupReading("g", "PreparingRebalance", Members(3, {}), {"t": {0: 2}})
    sample = only(reading({}, {0: 10}, groups=(group,)))
    assert (sample.consumers, sample.depth) == (None, 8)


def test_a_head_from_the_future_is_named_once_for_all_groups() -> None:
    groups = tuple(GroupReading(name, "Empty", Members(0, {}), {"t": {0: 2}}) for name in ("g", "h"))
    found = reading({}, {0: 10}, groups=groups, stamps={Head("t", 0, 2): Stamp(2, NOW + 1, False)})
    told, ahead = samples(found, KafkaBroker(), never)
    assert ahead == {Head("t", 0, 2)}
    assert [sample.oldest_age_seconds for sample in told] == [0.0, 0.0]
