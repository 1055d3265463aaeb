"""Buckets of ages are added up by code, whatever the order and the shape in which they come."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from spark_analytics.state.buckets import Buckets, added_up, code_of, empty, starts_of
from spark_analytics.state.recent import Recent
from tests.support.deep import examples

#: (second, slot) → n, total, most, skewed, cells by index
Sums = dict[tuple[int, int], tuple[int, float, float, int, dict[int, int]]]


def some(rng: random.Random, seconds: range, *, ordered: bool) -> Buckets:
    """A few buckets, codes that repeat among them; unless ``ordered``, histograms as others may write them."""
    codes, columns, cells = [], [], list[list[tuple[int, int]]]()
    for _ in range(rng.randrange(8)):
        codes.append(int(code_of([rng.choice(seconds)], [rng.randrange(4)])[0]))
        indices = rng.sample(range(6), rng.randrange(4))
        if ordered:
            indices.sort()
        else:
            indices += indices[:1]
        cells.append([(index, rng.randrange(1, 5)) for index in indices])
        columns.append((1, rng.randrange(1, 9), float(rng.randrange(9)), float(rng.randrange(9)), rng.randrange(2)))
    if not codes:
        return empty()
    width, n, total, most, skewed = (np.array(column) for column in zip(*columns, strict=True))
    flat = [cell for each in cells for cell in each]
    indices_, counts = (np.array([cell[place] for cell in flat], np.int64) for place in (0, 1))
    lengths = np.array([len(each) for each in cells], np.int64)
    return Buckets(np.array(codes), width, n, total, most, skewed, lengths, indices_, counts)


def sums(*parts: Buckets) -> Sums:
    found: Sums = {}
    for part in parts:
        ends = np.cumsum(part.cells)
        for place, code in enumerate(part.code.tolist()):
            key = code >> 27, code & ((1 << 27) - 1)
            n, total, most, skewed, cells = found.get(key, (0, 0.0, 0.0, 0, {}))
            own = range(int(ends[place] - part.cells[place]), int(ends[place]))
            both = Counter(cells)
            for cell in own:
                both[int(part.indices[cell])] += int(part.counts[cell])
            found[key] = (
                n + int(part.n[place]),
                total + float(part.total[place]),
                max(most, float(part.most[place])),
                skewed + int(part.skewed[place]),
                dict(both),
            )
    return found


@pytest.mark.parametrize("seed", range(examples(30, 300)))
def test_sums_are_in_order_each_code_once_and_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    parts = [some(rng, range(100, 103), ordered=seed % 3 > 0) for _ in range(rng.randrange(1, 4))]
    told = added_up(parts)
    assert sums(told) == sums(*parts)
    assert (np.diff(told.code) > 0).all()
    ends = np.cumsum(told.cells)
    for place in range(len(told.code)):
        own = told.indices[ends[place] - told.cells[place] : ends[place]]
        assert (np.diff(own) > 0).all(), "a histogram has each index once, in order"


@pytest.mark.parametrize("seed", range(examples(20, 100)))
def test_recent_seconds_are_the_sums_of_all_that_came_for_them(seed: int) -> None:
    rng = random.Random(seed)
    recent, came = Recent(99), list[Buckets]()
    for _ in range(rng.randrange(1, 5)):
        came.append(some(rng, range(100, 106), ordered=True))
        recent.add(came[-1])
    wanted = added_up(came)
    assert len(recent) == len(wanted.code)
    asked = wanted.code[sorted(rng.sample(range(len(wanted.code)), rng.randrange(len(wanted.code) + 1)))]
    assert sums(recent.at(asked)) == {key: sums(wanted)[key] for key in sums(wanted) if code_of(*key) in asked}
    if len(wanted.code):
        last = int(starts_of(wanted.code).max())
        assert recent.newest(int(wanted.code[-1]) & ((1 << 27) - 1), last + 1) == last
    recent.prune(0)
    assert len(recent) == 0
