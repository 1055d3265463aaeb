"""Forecasts in words: never a figure where there is none, never one figure where it is an interval."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.services.forecast import as_json, facts, in_short, interval, middle
from lake.forecast import Forecast
from lake.foretell import Asked, Foretold, foretell, foretell_all, waiting_throughout
from lake.reader import Reader
from lake.why.law import Bin
from tests.dashboard.conftest import STORY_END

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
#: Of what is not reached.
NEVER = "not at the rates of the last minutes"


@pytest.mark.parametrize(
    ("forecast", "said", "between"),
    [
        (Forecast(60, 90, 150, 1), "in 1 min 30 s", "1 min to 2 min 30 s, by 03:02 UTC at the latest"),
        (Forecast(60, 90, math.inf, 0.8), "in 1 min 30 s", "1 min at the earliest, perhaps never"),
        (Forecast(60, math.inf, math.inf, 0.3), NEVER, "1 min at the earliest, perhaps never"),
        (Forecast(math.inf, math.inf, math.inf, 0.0), NEVER, "nor is it likely"),
        (Forecast(0, 0.2, 0.4, 1), "now", "1 s to 1 s, by 03:00 UTC at the latest"),
        (None, "unknown", ""),
    ],
)
def test_a_forecast_is_said_as_an_interval(forecast: Forecast | None, said: str, between: str) -> None:
    assert (middle(forecast), interval(forecast, NOW)) == (said, between)


def test_what_is_passed_already_is_not_foretold() -> None:
    assert [fact.label for fact in facts(Foretold(Forecast(1, 2, 3, 1), None, 90), NOW, 30)] == ["Drained"]


def test_all_that_comes_is_one_line_and_nothing_where_nothing_is_foretold() -> None:
    told = Foretold(Forecast(60, math.inf, math.inf, 0.3), None, 90, retention=Forecast(60, 90, 150, 1))
    assert in_short(told, NOW, 30) == (
        "Drained: not at the rates of the last minutes (1 min at the earliest, perhaps never); retention deletes "
        "unread messages in 1 min 30 s (1 min to 2 min 30 s, by 03:02 UTC at the latest)"
    )
    assert as_json(told, 30)["retention_in_seconds"] == {"p10": 60, "p50": 90, "p90": 150}
    assert in_short(Foretold(None, None, 0, "nothing waits"), NOW, 30) == ""


def test_a_queue_that_grows_is_foretold_not_to_drain_and_when_its_target_is_passed(story: Path) -> None:
    with Reader(story) as reader:

        def query(sql: str) -> list[dict[str, object]]:
            return reader.query(sql).to_pylist()

        (row,) = query("SELECT SUM(ready) AS ready FROM tenant_backlog_now WHERE queue = 'orders'")
        asked = Asked("nats", "orders", "", STORY_END, int(str(row["ready"])))
        told = foretell(query, asked, 60.0)
        kept = foretell(query, replace(asked, margin=4000), 60.0)
        calm = foretell(query, replace(asked, queue="emails", ready=0), 60.0)
    assert told.drained is not None and math.isinf(told.drained.middle) and told.known == 90
    assert told.breached is not None and 60 < told.breached.middle < 400  # 40/s go, 8/s more come, 1,060 more fit
    assert kept.retention is not None and 100 < kept.retention.middle < 2000 and told.retention is None
    assert calm.reason == "nothing waits"


def test_only_a_time_in_which_some_waited_throughout_is_a_basis() -> None:
    bins = [Bin(end, 5, arrivals=10, starts=starts) for end, starts in ((5, 10), (10, 0), (15, 8), (20, 8))]
    assert [one.end for one in waiting_throughout(bins, 14)] == [15, 20]
    assert waiting_throughout(bins, 0) == []


def test_many_queues_are_foretold_by_one_statement_as_each_is_alone(story: Path) -> None:
    asked: list[str] = []
    with Reader(story) as reader:

        def query(sql: str) -> list[dict[str, object]]:
            asked.append(sql)
            return reader.query(sql).to_pylist()

        rows = query("SELECT queue, CAST(SUM(ready) AS BIGINT) AS ready FROM tenant_backlog_now GROUP BY queue")
        ready = {str(row["queue"]): int(str(row["ready"])) for row in rows}
        queues = [Asked("nats", queue, "", STORY_END, waits) for queue, waits in ready.items()]
        asked.clear()
        told = foretell_all(query, [*queues, Asked("nats", "a\x00b", "", STORY_END, 5)], 60.0)
        assert len(asked) == 1
        for one in queues:
            assert told[one.name] == foretell(query, one, 60.0)
    assert told["nats", "orders", ""].drained is not None
    assert told["nats", "a\x00b", ""].reason, "one that nobody can name spoils none of the others"
