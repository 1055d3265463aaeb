"""A parameter's value is one literal, whatever it holds."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from functools import cache, partial
from typing import Any

import pytest

from lake.errors import UserError
from lake.reader import connect
from lake.select import canonical, for_duckdb
from lake.sql.parameters import literal, named_values, with_values

database = cache(partial(connect, memory_mb=200))
HOSTILE = ["'", "\\", "\\'", "' OR 1=1 --", "'; DROP TABLE partials; --", "/*", "--\n", ":other", "a\nb\tc", "é☃", ""]


def answer(sql: str, **values: Any) -> Any:
    """What DuckDB answers to the statement as it may run."""
    text = for_duckdb(canonical(with_values(sql, values), frozenset({"partials"})))
    [row] = database().sql(text).fetchall()
    return row


@pytest.mark.parametrize(
    "value",
    [*HOSTILE, 0, -5, 10**18, 1.5, -1e-9, 3e300, True, False, None, date(2026, 1, 2)],
    ids=repr,
)
def test_what_is_given_is_what_is_read(value: Any) -> None:
    assert answer("SELECT :x", x=value) == (value,)


def test_an_instant_keeps_its_microseconds_and_its_zone() -> None:
    instant = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert answer("SELECT :x = TIMESTAMP '2026-01-02 05:04:05.678901+02:00'", x=instant) == (True,)


def test_texts_of_any_letters_stay_one_text() -> None:
    chance = random.Random(11)
    for _ in range(300):
        text = "".join(chance.choice("'\\\"`:-*/;() \n\tab") for _ in range(chance.randrange(12)))
        assert answer("SELECT 1 AS one, :x AS told, ':x' AS bare", x=text) == (1, text, ":x"), f"seed 11: {text!r}"


def test_only_names_outside_of_quotes_and_comments_are_parameters() -> None:
    sql = "SELECT ':x', `a:x`, \"b :x\" -- :x\n, :x /* :x */, c::int"
    assert with_values(sql, {"x": 1}) == sql.replace("\n, :x /*", "\n,  1  /*")


def test_a_minus_before_a_negative_number_makes_no_comment() -> None:
    assert answer("SELECT 3 -:x, 7", x=-5) == (8, 7)


def test_a_name_without_a_value_is_told_with_those_that_have_one() -> None:
    with pytest.raises(UserError, match=":tenat has no value") as raised:
        with_values("SELECT :tenat", {"tenant": "acme"})
    assert ":tenant" in str(raised.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(UserError, match="finite"):
        literal(value)


def test_words_of_the_command_line_are_numbers_where_they_look_so_and_texts_else() -> None:
    given = ["a=7", "b=-1.5", "c=true", "d=NULL", "e=acme=x", "f='7'", "g=", "h=1e5"]
    assert named_values(given) == {
        "a": 7,
        "b": -1.5,
        "c": True,
        "d": None,
        "e": "acme=x",
        "f": "7",
        "g": "",
        "h": "1e5",
    }


@pytest.mark.parametrize("given", [["7"], ["=7"], ["a b=1"], ["1a=1"], ["a=1", "a=2"]], ids=str)
def test_what_is_no_name_and_value_is_refused(given: list[str]) -> None:
    with pytest.raises(UserError):
        named_values(given)
