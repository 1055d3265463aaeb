"""Values that come as JSON from outside, in the types of our columns or not at all."""

from __future__ import annotations

from typing import Any

from collectors.ahead import reason


class Bad(ValueError):
    """One entry of a request that cannot be understood."""


#: The most characters of a text: a row with all its texts fits into a record of Kafka, a megabyte unless configured.
LONGEST = 16_384


def text(value: Any, name: str) -> str:
    """A text that is not empty nor endless, and that every reader takes."""
    if type(value) is not str or not value or len(value) > LONGEST:
        raise Bad(f"{name}: a text of 1 to {LONGEST} characters is expected")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Bad(f"{name}: not Unicode") from None
    return value


def whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number in [``low``, ``high``)."""
    if type(value) is not int or not low <= value < high:
        raise Bad(f"{name}: a whole number in its range is expected")
    return value


def happened(value: Any, name: str, end: int, latest: int) -> int:
    """A time, in microseconds below ``end``, that is not after ``latest``."""
    moment = whole(value, name, 0, end)
    if moment > latest:
        raise Bad(reason(name))
    return moment


#: The most that one entry may count: what adds up many of them still fits into 64 bits.
MOST = 2**40


def count(value: Any, name: str) -> int:
    """A number of things."""
    return whole(value, name, 0, MOST)


#: The most pairs that one entry may hold.
MOST_PAIRS = 100_000
#: The latest instant that is told: 9999-12-31, in microseconds.
LATEST_MICROS = 253_402_214_400_000_000


def pairs(value: Any, name: str) -> list[Any]:
    """A list of pairs."""
    if not isinstance(value, list) or len(value) > MOST_PAIRS:
        raise Bad(f"{name}: a list of pairs is expected")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise Bad(f"{name}: a list of pairs is expected")
    return value


def within(value: int | float, name: str) -> float:
    """A number that is not too large for a float."""
    try:
        return float(value)
    except OverflowError:
        raise Bad(f"{name}: too large") from None
