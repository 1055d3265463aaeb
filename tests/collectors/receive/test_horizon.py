"""A repeated event is known as such for as long as is promised, and none that is new is taken for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.receive.horizon import Horizon
from collectors.receive.identity import BATCHED, ENDED, ENQUEUED, RECEIVED, key_of, made, read
from collectors.receive.memory import Memory
from collectors.receive.refill import refill
from lake.schema import TIMESTAMP
from lake.store import Lake
from tests.collectors.rows import event_rows

_KEYS = st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=40)


@settings(deadline=None)
@given(_KEYS)
def test_what_is_new_is_what_a_set_would_say(groups: list[list[int]]) -> None:
    horizon, seen = Horizon(10_000, 1e9), set()
    for group in groups:
        fresh = horizon.new(np.array(group, dtype=np.uint64))
        expected = []
        for key in group:
            expected.append(key not in seen)
            seen.add(key)
        assert fresh.tolist() == expected
        horizon.add(np.array(group, dtype=np.uint64)[fresh], 0.0)


def test_the_newest_are_remembered_and_memory_is_bounded() -> None:
    horizon = Horizon(1000, 1e9)
    for group in range(100):
        horizon.add(np.arange(group * 100, group * 100 + 100, dtype=np.uint64), float(group))
    assert len(horizon) <= 1000
    assert not horizon.new(np.arange(9300, 10_000, dtype=np.uint64)).any()


def test_what_is_older_than_the_horizon_is_forgotten() -> None:
    horizon = Horizon(1000, 60.0)
    horizon.add(np.array([1], dtype=np.uint64), 0.0)
    assert not horizon.new(np.array([1], dtype=np.uint64)).any()
    for second in range(1, 200):
        horizon.add(np.array([1000 + second], dtype=np.uint64), float(second))
    assert horizon.new(np.array([1], dtype=np.uint64)).all()


def _with(rows: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def test_of_more_than_it_holds_a_restarted_receiver_knows_the_newest_and_minds_no_stranger(tmp_path: Path) -> None:
    lake, now = Lake(tmp_path), datetime.now(UTC)
    lake.create()
    for commit in range(8):
        rows = event_rows("q", [None] * 500)
        ids = pa.array([f"{commit}-{number}" for number in range(500)])
        ingested = pa.array([now - timedelta(seconds=60 * (7 - commit))] * 500, TIMESTAMP)
        told = {"event_id": ids, "source": pa.repeat("client", 500), "ingested_at": ingested}
        lake.append("message_events", _with(rows, told))
    lake.append("message_events", _with(event_rows("q", [None]), {"source": pa.array(["otlp"])}))
    horizon = Horizon(2000, 900)
    refill(lake, horizon, Memory(100), round(now.timestamp() * 1e6), seconds=900, most=100)
    newest = np.array([key_of(f"7-{number}") for number in range(500)], np.uint64)
    assert not horizon.new(newest).any()


_IDS = st.tuples(st.binary(min_size=24, max_size=24), st.sampled_from([BATCHED, ENDED, ENQUEUED, RECEIVED]))


@settings(deadline=None)
@given(st.lists(st.tuples(_IDS, st.binary(min_size=8, max_size=8)), min_size=1, max_size=20))
def test_an_id_read_from_the_lake_has_the_key_that_it_was_made_with(
    rows: list[tuple[tuple[bytes, bytes], bytes]],
) -> None:
    contexts, letters, salts = [row[0][0] for row in rows], [row[0][1] for row in rows], [row[1] for row in rows]
    ids, traces, keys = made(contexts, letters, salts)
    assert read(ids).tolist() == keys.tolist()
    first = contexts[0]
    expected = first[16:].hex() + first[8:16].hex() + letters[0].decode() + salts[0].hex()
    assert (ids[0].as_py(), traces[0].as_py()) == (expected, first[:16].hex())


def test_the_parent_of_a_send_span_makes_no_other_event_of_it() -> None:
    keys = [made([b"c" * 24], [letter], [salt])[2][0] for letter in (ENQUEUED, ENDED) for salt in (b"a" * 8, b"b" * 8)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
