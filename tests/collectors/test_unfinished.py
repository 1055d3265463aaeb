"""What a tap remembers from the lake after a restart: the unfinished, whatever the order of the events."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collectors.nats.unfinished import CHUNK, COLUMNS, open_messages
from collectors.records import Event, events_table

SOURCE = "nats-tap:mq"
AT = 1_790_000_000_000_000


def told(events: list[Event], size: int = 7, source: str = SOURCE) -> list[pa.RecordBatch]:
    """``events`` as the lake tells them."""
    return list(events_table(events, "mq", source).select(COLUMNS).to_batches(max_chunksize=size))


def opened(events: list[Event], known: set[int] = frozenset()) -> dict[tuple[int, int, str | None], tuple[object, ...]]:  # type: ignore[assignment]
    rows = open_messages(lambda: told(events), SOURCE, {("q", 0): set(known)}).to_pylist()
    keys = [(row["generation"], row["sequence"], row["subscriber"]) for row in rows]
    assert len(set(keys)) == len(keys)
    facts = ("enqueued_at", "tenant", "attempts", "arrived", "finished")
    return {key: tuple(row[name] for name in facts) for key, row in zip(keys, rows, strict=True)}


def event(kind: str, message: str, subscriber: str | None = None, attempt: int | None = None) -> Event:
    return Event(kind, "q", subscriber, "t", message, attempt, AT + int(message.split(":")[-1]), AT)


def life(message: str, attempts: int, *, done: bool, subscriber: str | None = None) -> Iterator[Event]:
    for attempt in range(1, attempts + 1):
        yield event("received", message, subscriber, attempt)
    if done:
        yield event("completed", message, subscriber, attempts)


@hypothesis_settings(deadline=None)  # the first example loads Arrow's kernels
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "3:"]),
)
def test_in_whatever_order_the_unfinished_and_the_newest_are_remembered(
    lives: list[tuple[int, bool]], chance: random.Random, prefix: str
) -> None:
    events = []
    for sequence, (attempts, done) in enumerate(lives, 1):
        events.append(event("enqueued", f"{prefix}{sequence}"))
        events += life(f"{prefix}{sequence}", attempts, done=done and attempts > 0)
    chance.shuffle(events)
    generation = int(prefix[:-1] or 0)
    assert opened(events) == {
        (generation, sequence, None): (AT + sequence, "t", attempts, True, done and attempts > 0)
        for sequence, (attempts, done) in enumerate(lives, 1)
        if not (done and attempts) or sequence == len(lives)
    }


def test_a_message_is_finished_when_every_subscriber_has_finished_it() -> None:
    events = [event("enqueued", str(sequence)) for sequence in range(1, 5)]
    events += life("1", 1, done=True, subscriber="a")
    events += life("1", 1, done=True, subscriber="b")
    events += life("2", 2, done=True, subscriber="a")
    assert {key[1:] for key in opened(events)} == {(2, None), (2, "a"), (3, None), (4, None)}


def test_consumers_that_share_by_subject_leave_only_their_own_unfinished() -> None:
    events = [event("enqueued", "1", "a"), event("enqueued", "2", "b"), event("enqueued", "3", "b")]
    events += [*life("1", 1, done=True, subscriber="a"), *life("3", 1, done=True, subscriber="b")]
    assert {key[1:] for key in opened(events)} == {(2, "b"), (3, "b")}  # 3: the newest


def test_a_known_message_is_told_of_although_it_is_finished() -> None:
    events = [*life("1", 2, done=True), *life("2", 1, done=True), event("enqueued", "9")]
    assert opened(events, {1})[0, 1, None] == (AT + 1, "t", 2, False, True)
    assert (0, 2, None) not in opened(events, {1})


def test_many_finished_messages_take_no_more_memory_than_few() -> None:
    count = 4 * CHUNK
    events = [
        kind for n in range(CHUNK, count) for kind in (event("enqueued", str(n)), *life(str(n), 1, done=n != 70_00))
    ]
    batches = told(events, 10_000)
    rows = open_messages(lambda: batches, SOURCE, {}).to_pylist()
    assert [row["sequence"] for row in rows] == [count - 1]


@pytest.mark.parametrize("message", ["x", "1:2:3", "", "-4", "9" * 30])
def test_what_is_no_message_of_a_stream_or_of_another_source_is_left_out(message: str) -> None:
    odd = Event("enqueued", "q", None, None, message, None, None, AT)
    other = told([event("enqueued", "5")], source="replay:x")
    batches = [*told([odd, event("enqueued", "1")]), *other]
    rows = open_messages(lambda: batches, SOURCE, {}).to_pylist()
    assert [row["sequence"] for row in rows] == [1]


def test_nothing_told_is_nothing_open() -> None:
    assert open_messages(list, SOURCE, {}).num_rows == 0
