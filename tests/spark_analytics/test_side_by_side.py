"""Queues that are folded side by side have the rows that one process gives them, whoever folds which."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pytest

from lake.reader import Reader
from lake.store import Lake
from spark_analytics.fold.shares import shares_of
from spark_analytics.run import rebuild_state
from spark_analytics.state.side_by_side import Told, Work, lay_down, tell_anew
from tests.reference.generate import generate
from tests.reference.replaying import Committed, batches_of, newest, roll_up
from tests.support.deep import examples
from tests.support.finishing import finish

TABLES = ("tenant_state", "queue_state", "age_state")
#: What differs between two times of telling the same: who counted first.
_NUMBERING = ("epoch", "revision", "key", "queue_key")


def told(lake: Lake, since: int) -> dict[str, Counter[str]]:
    """The rows of finished state that have been told since revision ``since``, as often as each is there."""
    found = {}
    for name in TABLES:
        rows = lake.ensure(name).to_pyarrow_table()
        rows = rows.filter(pc.greater(rows.column("revision"), since))
        rows = rows.drop_columns([column for column in _NUMBERING if column in rows.column_names])
        found[name] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist())
    return found


def revision(lake: Lake) -> int:
    return int(pc.max(lake.read("queue_state", columns=["revision"]).column(0)).as_py())


def here(work: Work) -> Sequence[Told]:
    """All shares one after the other, in this process."""
    return [one for number in range(len(work.shares)) for one in lay_down(work, number)]


def lived(root: Path, seed: int) -> Committed:
    """A lake with named subscribers, two brokers, pauses, samples; of every second seed the past is rolled up."""
    log = Committed(root)
    events, samples = generate(seed, messages=80, seconds=150, burst=20)
    for number, batch in enumerate(batches_of(events, random.Random(seed), 4, 5.0)):
        log.append(batch, samples if number == 0 else [])
    if seed % 2:
        ends = newest(log.lake) // 60 * 60
        roll_up(log.lake, ends - 60, 60)
    return log


@pytest.mark.parametrize("seed", range(examples(1, 100)))
def test_shares_have_together_the_rows_that_one_process_tells(tmp_path: Path, seed: int) -> None:
    log = lived(tmp_path, seed)
    finish(tmp_path)
    since = revision(log.lake)
    rebuild_state(tmp_path)
    wanted = told(log.lake, since)
    assert wanted["tenant_state"] and wanted["queue_state"] and wanted["age_state"]
    for shares in (lambda: 2, lambda: 3, lambda: 100):
        since = revision(log.lake)
        assert tell_anew(tmp_path, here, shares) == sum(map(Counter.total, wanted.values()))
        found = told(log.lake, since)
        for name in TABLES:
            assert found[name] == wanted[name], (name, shares(), found[name] - wanted[name], wanted[name] - found[name])
    if not seed % 2:  # what was rolled up is judged as of the ends of minutes, which the reference does not
        with Reader(tmp_path) as reader:
            log.compare(reader)
            log.compare_history(reader)


def test_queues_are_shared_out_by_what_there_is_to_fold() -> None:
    weights = {("nats", "a"): 10, ("nats", "b"): 6, ("redis", "a"): 5, ("redis", "b"): 1}
    assert shares_of(weights, 2) == [
        {"nats": frozenset("a"), "redis": frozenset("b")},
        {"nats": frozenset("b"), "redis": frozenset("a")},
    ]
    assert len(shares_of(weights, 100)) == 4
    assert shares_of({}, 2) == []
