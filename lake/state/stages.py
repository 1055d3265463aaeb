"""The stages below the views, over finished state: thin, and the same text for Spark and DuckDB.

Those below the `…_now` views rest on `tenant_state_now`, `queue_state_now` and `age_state_now`: of the tables of these
names the newest row of each key. `queue_state_now` has one column more, `now_us`: its broker's data time. Those below
history rest on `tenant_state_past`, `queue_state_past` and `age_state_past`: every row in whose second something
happened, or every bucket.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import sqlglot
from sqlglot import exp

from lake.definitions import Definitions
from lake.select import tables_of
from lake.views import render
from lake.views.catalogue import complete
from lake.views.model import View

HELD = ("tenant_state_now", "queue_state_now", "age_state_now")
_KEYS = {"queue_state": "s.broker, s.queue, s.subscriber", "tenant_state": "s.broker, s.queue, s.subscriber, s.tenant"}


def _stage(name: str, file: str, **parts: str) -> View:
    return View(name, complete(resources.files("lake.state").joinpath(f"{file}.sql").read_text("utf-8"), **parts))


#: By which columns the newest row of a key is told, the first one first. Two seconds can end at one data time; of ages
#: the newest revision has the newest bucket, which may be older than one of which nothing is left.
NEWEST_BY = {"age_state": ("revision", "second")}
NEWEST_BY_DEFAULT = ("as_of", "second", "revision")

#: The rows of HELD for who does not follow the tables commit by commit.
NEWEST: dict[str, View] = {
    name: _stage(
        name,
        "held",
        table=table,
        newest_first=", ".join(f"{column} DESC" for column in NEWEST_BY.get(table, NEWEST_BY_DEFAULT)),
    )
    for name in HELD
    for table in (name.removesuffix("_now"),)
}

#: The rows of history.
PAST: dict[str, View] = {
    f"{table}_past": _stage(f"{table}_past", "past", table=table, names=names) for table, names in _KEYS.items()
}
PAST["age_state_past"] = _stage("age_state_past", "past_ages")


STAGES: dict[str, View] = {
    stage.name: stage
    for stage in (
        _stage("stage_newest", "newest"),
        _stage("stage_tenants_now", "tenants"),
        _stage("stage_concurrency_now", "concurrency"),
        _stage("stage_queues_now", "queues", rows="queue_state_now"),
        _stage("stage_tenants_past", "past_tenants"),
        _stage("stage_concurrency_past", "past_concurrency"),
        _stage("stage_queues_past", "queues", rows="queue_state_past"),
        _stage("stage_age_rows_past", "ages", rows="age_state_past"),
        _stage("stage_age_rows_now", "ages", rows="age_state_now"),
    )
}


@cache
def tables_of_stage(name: str) -> frozenset[str]:
    """What of finished state stage ``name`` rests on."""
    return frozenset(tables_of(_parsed(name))) & {*HELD, *PAST}


def table_of(name: str) -> str:
    """The table of finished state whose rows ``name``, one of HELD or PAST, has."""
    return name.removesuffix("_now").removesuffix("_past")


def columns_read(held: str) -> frozenset[str] | None:
    """The columns, and maybe more, that stages read of ``held``; None: all."""
    stages = [_parsed(name) for name in STAGES if held in tables_of_stage(name)]
    if any(stage.find(exp.Star) for stage in stages):
        return None
    return frozenset(column.name for stage in stages for column in stage.find_all(exp.Column))


@cache
def _parsed(name: str) -> Any:
    return sqlglot.parse_one(render(STAGES[name], Definitions()), read="spark")
