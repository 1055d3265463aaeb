"""What a view is: a name, documented columns, and SQL in Spark's dialect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a public view: its Spark SQL type, its unit ('' for none), and what it says."""

    name: str
    type: str
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class View:
    """One view. ``sql`` still holds ``$placeholders`` for the lake's definitions; see :func:`lake.views.render`.

    A view without columns is a stage: a step that other views share, not part of the public surface.
    """

    name: str
    sql: str
    columns: tuple[Column, ...] = ()

    @property
    def public(self) -> bool:
        """Whether users, rules and dashboards may rely on this view."""
        return bool(self.columns)
