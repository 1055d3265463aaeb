"""What there is to ask, told at the prompt: views and tables, and the columns of each."""

from __future__ import annotations

import difflib
import io
from functools import cache

from rich import box
from rich.console import Console
from rich.table import Table

from lake.tables import TABLES
from lake.views import VIEWS


@cache
def columns_of() -> dict[str, tuple[str, ...]]:
    """Public view or table → its columns."""
    views = {view.name: tuple(column.name for column in view.columns) for view in VIEWS.values() if view.public}
    return views | {name: tuple(spec.schema.names) for name, spec in TABLES.items()}


def listed() -> str:
    """The views and tables."""
    table = _table("name", "kind", "holds")
    for view in (view for view in VIEWS.values() if view.public):
        holds = "the newest row of each key" if view.name.endswith("_now") else "history"
        table.add_row(view.name, "view", holds if f"{view.name}_now" in VIEWS or view.name.endswith("_now") else "")
    for spec in TABLES.values():
        table.add_row(spec.name, "table", f"{spec.layer}, as it is stored")
    return _drawn(table) + "\\d NAME describes one."


def described(name: str) -> str:
    """The columns of one view or table, with units and what they mean."""
    if name in TABLES:
        table = _table("column", "type", "may be null")
        for field in TABLES[name].schema:
            table.add_row(field.name, str(field.type), "yes" if field.nullable else "no")
        return _drawn(table)
    if name in VIEWS and VIEWS[name].public:
        table = _table("column", "type", "unit", "meaning")
        for column in VIEWS[name].columns:
            table.add_row(column.name, column.type, column.unit, column.description.replace("[", r"\["))
        return _drawn(table)
    near = difflib.get_close_matches(name, columns_of(), n=1)
    return f"there is no {name}" + (f": did you mean {near[0]}?" if near else ": \\d lists what there is")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place == 0)  # a name is to be copied
    return table


def _drawn(table: Table) -> str:
    text = io.StringIO()
    Console(file=text, width=Console().width, no_color=True).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
