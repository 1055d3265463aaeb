"""What is done to columns of numbers everywhere: room for more, runs of equal values, sums by code, look-ups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lake.ordered import distinct as distinct
from lake.ordered import run_starts as run_starts

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


def padded(array: Array, size: int) -> Array:
    """``array`` with zeros up to ``size``."""
    if len(array) >= size:
        return array
    more = np.zeros((size, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more


def with_room(array: Array, size: int) -> Array:
    """``array`` with zeros up to ``size`` at least: to so many more that it seldom has to grow."""
    return array if len(array) >= size else padded(array, max(1024, 2 * size))


def null_where(mask: Array, values: Array) -> Array:
    """``values`` as floats, NaN where ``mask``."""
    return np.where(mask, np.nan, values.astype(np.float64))


def summed(codes: Integers, amounts: Integers) -> tuple[Integers, Integers]:
    """Amounts added up by code: the distinct codes in order, and their sums."""
    if len(codes) == 0:
        return codes, amounts
    order = np.argsort(codes, kind="stable")
    codes, amounts = codes[order], amounts[order]
    starts = run_starts(codes)
    return codes[starts], np.add.reduceat(amounts, starts)


def located(codes: Integers, ordered: Integers) -> tuple[Array, Array]:
    """Of each of ``codes`` its place in ``ordered``, where each code stands once, or the place that it would have
    there; and whether it is there."""
    places = np.searchsorted(ordered, codes)
    there = places < len(ordered)
    there[there] = ordered[places[there]] == codes[there]
    return places, there


def entries_of(firsts: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """Runs of entries, each from its first on, one after the other: of each entry its run's number and its place."""
    run = np.repeat(np.arange(len(lengths)), lengths)
    return run, np.arange(len(run)) + (firsts - np.cumsum(lengths) + lengths)[run]
