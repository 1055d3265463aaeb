"""The stages below the `…_now` views, over finished state: thin, and the same text for Spark and DuckDB.

They rest on `tenant_state_now`, `queue_state_now` and `age_state_now`: of the tables of these names the newest row of
each key. `queue_state_now` has one column more, `now_us`: its broker's data time.
"""

from __future__ import annotations

from importlib import resources

from lake.views.catalogue import complete
from lake.views.model import View

HELD = ("tenant_state_now", "queue_state_now", "age_state_now")


def _stage(name: str, file: str) -> View:
    return View(name, complete(resources.files("lake.state").joinpath(f"{file}.sql").read_text("utf-8")))


STAGES: dict[str, View] = {
    stage.name: stage
    for stage in (
        _stage("stage_newest", "newest"),
        _stage("stage_tenants_now", "tenants"),
        _stage("stage_concurrency_now", "concurrency"),
        _stage("stage_queues_now", "queues"),
        _stage("stage_age_rows_now", "ages"),
    )
}
