"""Attempts that nobody numbered: inferred in the order of arrival, also after a crash at any instant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.errors import UserError
from spark_analytics.batches.attempts import CHANGES, Attempts
from spark_analytics.transforms import EVENT_COLUMNS
from tests.spark_analytics.events import Row, bronze, event
from tests.support.deep import examples


def rows(*events: Row) -> pa.Table:
    return bronze(events).select(list(EVENT_COLUMNS))


def one(event_type: str, message: str = "m", **more: object) -> Row:
    return event(event_type, message_id=message, **more)


def run(attempts: Attempts, batch_id: int, *events: Row) -> list[int | None]:
    """The attempts of one batch, noted as the engine notes them."""
    attempts.begin(batch_id)
    numbers: list[int | None] = attempts.numbered(rows(*events)).column("attempt").to_pylist()
    attempts.keep(batch_id)
    return numbers


def test_the_second_receipt_of_a_message_is_its_second_attempt(tmp_path: Path) -> None:
    life = [one(kind) for kind in ("enqueued", "received", "failed", "received", "completed")]
    assert run(Attempts(tmp_path), 0, *life) == [None, 1, 1, 2, 2]


def test_each_subscriber_and_message_counts_for_itself(tmp_path: Path) -> None:
    events = [one("received", subscriber="a"), one("received", subscriber="b"), one("received", "n", subscriber="a")]
    assert run(Attempts(tmp_path), 0, *events, one("received", subscriber="a")) == [1, 1, 1, 2]


def test_a_number_that_was_told_is_left_alone(tmp_path: Path) -> None:
    assert run(Attempts(tmp_path), 0, one("received", attempt=7), one("completed", attempt=7)) == [7, 7]


def test_an_end_of_which_no_beginning_is_known_stays_unnumbered(tmp_path: Path) -> None:
    assert run(Attempts(tmp_path), 0, one("expired"), one("completed", "n")) == [None, None]


def test_a_message_that_ended_begins_anew(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    assert run(attempts, 0, one("received"), one("completed")) == [1, 1]
    assert run(attempts, 1, one("received")) == [1]


def test_beyond_the_bound_the_message_received_longest_ago_is_forgotten(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path, most=2)
    assert run(attempts, 0, *(one("received", name) for name in ("a", "b", "a", "c"))) == [1, 1, 2, 1]
    assert run(attempts, 1, one("received", "a"), one("received", "b")) == [3, 1]


def test_a_batch_that_is_done_again_begins_where_it_began_before(tmp_path: Path) -> None:
    first = Attempts(tmp_path)
    assert run(first, 0, one("received")) == [1]
    assert run(first, 1, one("received")) == [2]
    for _ in range(2):  # killed between its note and gold, twice
        assert run(Attempts(tmp_path), 1, one("received")) == [2]
    assert run(Attempts(tmp_path), 2, one("received")) == [3]


@settings(max_examples=examples(10, 30), deadline=None)
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["received", "failed", "completed"])))),
    restarts=st.sets(st.integers(0, 20)),
)
def test_restarts_change_no_number(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, str]]], restarts: set[int]
) -> None:
    steady, restarted = (Attempts(tmp_path_factory.mktemp("attempts")) for _ in range(2))
    for batch_id, batch in enumerate(batches):
        if batch_id in restarts:
            restarted = Attempts(restarted.folder)
        events = [one(kind, message) for message, kind in batch]
        assert run(steady, batch_id, *events) == run(restarted, batch_id, *events)


def test_notes_do_not_pile_up(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    for batch_id in range(5 * CHANGES):
        run(attempts, batch_id, one("received"), one("received", f"m{batch_id}"), one("completed", f"m{batch_id}"))
    assert len(list(tmp_path.iterdir())) <= 2 * CHANGES + 2
    assert run(Attempts(tmp_path), 5 * CHANGES, one("received")) == [5 * CHANGES + 1]


def test_sources_that_number_their_attempts_leave_no_note(tmp_path: Path) -> None:
    run(Attempts(tmp_path / "none"), 0, one("enqueued"), one("received", attempt=1), one("completed", attempt=1))
    assert not (tmp_path / "none").exists()


def test_a_damaged_note_is_one_clear_line(tmp_path: Path) -> None:
    run(Attempts(tmp_path), 0, one("received"))
    (tmp_path / "0.json").write_text("{")
    with pytest.raises(UserError, match=r"0\.json cannot be read"):
        Attempts(tmp_path).begin(1)
