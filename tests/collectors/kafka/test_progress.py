"""What follows from a group's progress beside the rules of the window: facts of the log, and counters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kafka.history import History
from collectors.kafka.reader import ClusterReader
from collectors.kafka.settings import StatusSettings
from collectors.kafka.source import KafkaSource
from collectors.kafka.status import Progress, Status, with_facts
from collectors.kafka.tally import implausible
from collectors.kafka.transactions import Transactions
from tests.collectors.kafka.recording import BASE, Recorded, exchanges, recorded_settings

OVERTAKEN = Progress(40, 0, overtaken=460)
KNOWN_TO_WAIT = Progress(90, 0, held=True, committed_only=True)
SEEMS_TO_WAIT = Progress(90, 10, held=True)


@pytest.mark.parametrize(
    ("status", "seen", "expected"),
    [
        ("STOP", OVERTAKEN, "LOST"),
        ("OK", OVERTAKEN, "LOST"),
        (None, OVERTAKEN, "LOST"),  # at once
        (None, KNOWN_TO_WAIT, "BLOCKED"),
        ("OK", KNOWN_TO_WAIT, "BLOCKED"),
        ("STALL", KNOWN_TO_WAIT, "BLOCKED"),
        ("STOP", KNOWN_TO_WAIT, "STOP"),  # nobody is there to go on when the transaction ends
        ("STALL", SEEMS_TO_WAIT, "BLOCKED"),
        ("STOP", SEEMS_TO_WAIT, "STOP"),
        ("OK", SEEMS_TO_WAIT, "OK"),  # it moves: it was there by chance
        (None, SEEMS_TO_WAIT, None),
        ("WARN", Progress(90, 10), "WARN"),
    ],
)
def test_facts_of_the_log_outweigh_the_window(status: Status | None, seen: Progress, expected: Status | None) -> None:
    assert with_facts(status, seen) == expected


def test_a_group_is_lost_from_the_first_reading_until_it_commits_past_the_start() -> None:
    history = History(StatusSettings(window=4, interval=1))

    def look(seen: Progress, second: int) -> tuple[Status | None, int]:
        told = history.judge("g", "t", {0: seen, 1: Progress(7, 0)}, second * 1000, alive=False)
        return told.status, told.lost

    assert look(Progress(40, 100), 0) == (None, 0)
    assert look(Progress(40, 10, overtaken=60), 1) == ("LOST", 60)
    for second in range(2, 60):
        assert look(Progress(40, 0, overtaken=460), second) == ("LOST", 460)  # counted once
    assert look(Progress(30, 0, overtaken=470), 60) == ("LOST", 460)  # a rewind to what is gone loses nothing more
    assert look(Progress(500, 0), 61) == ("OK", 460)
    assert look(Progress(500, 0, overtaken=5), 62) == ("LOST", 465)


@given(st.lists(st.integers(-1, 60), min_size=1, max_size=40))
def test_what_is_acknowledged_counts_every_advance_and_never_falls(offsets: list[int]) -> None:
    history = History(StatusSettings())
    told = [
        history.judge("g", "t", {0: Progress(offset, 5)}, second * 1000, alive=True).acked
        for second, offset in enumerate(offsets)
    ]
    assert told[0] == 0
    for (before, after), (acked, then) in zip(pairwise(offsets), pairwise(told), strict=True):
        assert then - acked == (max(0, after - before) if before >= 0 else 0)


def test_a_partition_that_was_unknown_for_a_while_makes_no_counter_jump_or_fall() -> None:
    history = History(StatusSettings())

    def acked(second: int, **offsets: int) -> int:
        progress = {int(name[1:]): Progress(offset, 5) for name, offset in offsets.items()}
        return history.judge("g", "t", progress, second * 1000, alive=True).acked

    assert acked(0, p0=1_000_000, p1=2_000_000) == 0
    assert acked(1, p0=1_000_010) == 10
    assert acked(2, p0=1_000_010, p1=2_000_030) == 40
    history.forget()  # some topic was recreated: offsets mean other messages, and what was counted stays
    assert acked(3, p0=5, p1=5) == 40
    assert acked(4, p0=6, p1=5) == 41


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (-1, "the record has no timestamp"),
        (0, "1970-01-01T00:00:00"),
        (1_700_000_000, "1970-01-20"),  # seconds
        (1_700_000_000_000_000, "yet to come"),  # microseconds
        (1_700_000_000_000_000_000, "yet to come"),  # nanoseconds
        (-(2**63), "is its time in milliseconds?"),
        (2**63 - 1, "is its time in milliseconds?"),
        (BASE + 301_000, "yet to come"),
        (BASE + 299_000, None),  # clocks are not quite the same
        (BASE - 86_400_000 * 365, None),
    ],
)
def test_a_time_that_cannot_be_is_no_age(time: int, words: str | None) -> None:
    said = implausible(time, BASE)
    assert said is None if words is None else words in str(said)


def test_a_clock_that_is_set_back_blinds_no_judgement() -> None:
    settings = recorded_settings()
    clock = iter(BASE + 100_000 - (3_600_000 if cycle > 3 else 0) for cycle in range(100))
    ticks = iter(range(0, 1_500_000, 15_000))
    source = KafkaSource(settings)
    source.reader = ClusterReader(settings, Recorded(exchanges()), lambda: next(clock), lambda: next(ticks))
    seen = []
    for _ in range(12):
        source.reader.forget_offset_timestamps()  # what was recorded is a first cycle
        found, _ = source._read()
        seen.append(next(one.status for one in found if one.subscriber == "billing"))
    assert seen == [None] * 5 + ["STOP"] * 7


ENDS = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 50))


@given(st.lists(ENDS, max_size=60))
def test_a_transaction_hangs_while_its_offset_stands_for_the_patience_and_the_end_moves(
    steps: list[tuple[int, int, int]],
) -> None:
    """Against the rule told plainly over all of the past."""
    transactions, place = Transactions(100), ("t", 0)
    stable = end = now = 0
    past: list[tuple[int, int, int]] = []
    for forward, written, pause in steps:
        now += pause
        end += written
        stable = min(end, stable + forward)
        past.append((stable, end, now))
        standing = [one for one in past if one[0] == stable and one[0] < one[1]]
        hangs = stable < end and now - standing[0][2] >= 100 and end > standing[0][1]
        assert (place in transactions.see({place: end}, {place: stable}, now)) == hangs


def test_a_transaction_that_is_not_told_of_for_a_while_is_not_forgotten() -> None:
    transactions, place = Transactions(100), ("t", 0)
    assert not transactions.see({place: 5}, {place: 3}, 0)
    assert not transactions.see({place: 9}, {place: "its leader is changing"}, 60)
    assert transactions.see({place: 9}, {place: 3}, 120) == {place}
    transactions.forget()
    assert not transactions.see({place: 9}, {place: 3}, 130)
