"""The lab's tables fit in a terminal, and lose nothing there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lab.table import aligned

_CELL = st.text("abc.0", min_size=1, max_size=12)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=1, max_size=5)))
def test_without_a_width_each_line_is_a_row(lines: list[list[str]]) -> None:
    assert [row.split() for row in aligned(lines).splitlines()] == lines


@given(
    st.integers(2, 6).flatmap(lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=1, max_size=5)),
    st.integers(26, 60),
)
def test_what_is_too_wide_comes_as_several_tables_with_the_first_column_in_each(
    lines: list[list[str]], width: int
) -> None:
    tables = [[row.split() for row in table.splitlines()] for table in aligned(lines, width).split("\n\n")]
    assert all(len(row) <= width for row in aligned(lines, width).splitlines())
    assert all([row[0] for row in table] == [line[0] for line in lines] for table in tables)
    told = [[cell for table in tables for cell in table[number][1:]] for number in range(len(lines))]
    assert told == [line[1:] for line in lines]
    for one, other in pairwise(tables):
        first = max(len(line[0]) for line in lines)
        column = max(len(row[1]) for row in other)
        taken = first + sum(2 + max(len(row[at]) for row in one) for at in range(1, len(one[0])))
        assert taken + 2 + column > width, "one more column would have fitted"
