"""What views rest on is found without parsing those that cannot matter: a cold reader's first question waits for it."""

from __future__ import annotations

import pytest
from sqlglot import exp

from lake.definitions import Definitions
from lake.select import tables_of
from lake.tables import TABLES
from lake.views import VIEWS, columns_read, render
from lake.views.depend import parsed


@pytest.mark.parametrize("name", [*TABLES, *VIEWS])
def test_of_a_table_those_columns_are_read_that_any_view_names(name: str) -> None:
    trees = [parsed(render(view, Definitions())) for view in VIEWS.values()]
    readers = [tree for tree in trees if name in tables_of(tree)]
    starred = any(tree.find(exp.Star) for tree in readers)
    named = {column.name for tree in readers for column in tree.find_all(exp.Column)}
    assert columns_read(name) == (None if starred else named)


def test_no_view_is_parsed_for_the_columns_of_a_table_that_it_does_not_name() -> None:
    parsed.cache_clear()
    columns_read("tenant_state_now")
    assert 0 < parsed.cache_info().currsize < len(VIEWS) / 4
