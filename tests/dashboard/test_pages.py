"""The pages as Streamlit runs them, over a real lake; charts are drawn, though AppTest cannot read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from alerts.rules.loader import BUILTIN, rule_files
from collectors.receive.sampled import reported
from dashboard.run import API_VARIABLE, RULES_VARIABLE
from lake.reader import Reader
from lake.store import Lake
from lake.tables import ACTIONS, ALERT_TRANSITIONS, DELIVERIES, EVENT_TYPES, GAPS, REJECTED_RECORDS
from tests.alerts.test_v2 import firing_as, serving
from tests.dashboard.scene import actions_of, alerts_of, write_samples, write_story
from tests.lake.test_reader import append, enqueued
from tests.support.finishing import finish
from tests.support.waiting import wait_until

APP = str(Path(__file__).parents[2] / "dashboard" / "entry" / "app.py")
#: Long enough that the story of last spring is not stale.
AGES = 1e9


def one_page() -> None:
    import importlib

    import streamlit as st

    importlib.import_module(f"dashboard.pages.{st.session_state['page']}").render()


def opened(page: str, /, session: Mapping[str, object] | None = None, **params: str) -> AppTest:
    app = AppTest.from_function(one_page, default_timeout=120)
    for name, value in {"page": page, **(session or {})}.items():
        app.session_state[name] = value
    for name, value in params.items():
        app.query_params[name] = value
    return app.run()


def opened_until(page: str, title: str) -> AppTest:
    """The page once its heading is ``title``: pages are read anew at a pace that leaves the machine to others."""
    seen: list[AppTest] = []

    def there() -> bool:
        seen[:] = [opened(page)]
        return heading(seen[0]) == title

    wait_until(there, title)
    return seen[0]


def words(app: AppTest) -> str:
    """Everything that a page says, as text."""
    assert not app.exception, app.exception
    html = " ".join(element.proto.body for element in app.get("html") if "<style>" not in element.proto.body)
    said = [*(element.value for element in (*app.title, *app.markdown)), html]
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", " ".join(said)))).replace("\\", "")


def heading(app: AppTest) -> str:
    """The page's first heading."""
    bodies = "".join(element.proto.body for element in app.get("html"))
    return unescape(re.search(r"<h1>(.*?)</h1>", bodies, re.DOTALL)[1])  # type: ignore[index]


def overview() -> AppTest:
    return AppTest.from_file(APP, default_timeout=120).run()


def test_one_glance_tells_what_is_wrong_who_since_when_and_whether_it_drains(
    story: Path, show: Callable[..., None]
) -> None:
    show(story, stale_after_seconds=AGES)
    app = overview()
    assert heading(app) == "orders needs you"
    said = words(app)
    assert "Tenant acme-7 holds the shared queue orders while others wait" in said
    assert re.search(r"Tenant acme-7 holds \d\d % of in flight since 1 Mar 03:0\d; backlog 1,\d\d\d, growing", said)
    assert "will not drain" in said
    assert "Data are" not in said


def test_old_data_are_shouted_with_their_age(story: Path, show: Callable[..., None]) -> None:
    show(story)
    app = overview()
    assert re.search(r"Data are \d+ d \d+ h old|Data are \d+ d old", words(app))
    assert "At 1 Mar 03:06:59 UTC: orders needs you" in words(app)


def test_while_earlier_events_are_read_levels_are_unknown_and_the_page_says_why(
    tmp_path: Path, show: Callable[..., None]
) -> None:
    lake = write_story(tmp_path, end=datetime.now(UTC), seconds=90, noisy_from=30)
    row = {"gap_id": "a", "at": datetime.now(UTC), "open": True, "first_version": 1, "last_version": 9, "events": 5200}
    lake.append("gaps", pa.Table.from_pylist([row], GAPS.schema))
    show(tmp_path)
    glance, page = words(overview()), words(opened("queue", queue="orders"))
    for said in (glance, page):
        assert "5,200 earlier events are still being read: backlogs are unknown until then." in said
        assert "arlier events are still being read, so backlog and drain are unknown; by the broker's own count" in said
        assert "none waits and 30 are in flight" in said and "none waiting" not in said
    assert "Backlog by tenant Unknown until the events of before are read." in page
    lake.append("gaps", pa.Table.from_pylist([{**row, "open": False}], GAPS.schema))
    wait_until(lambda: "earlier events" not in words(overview()), "the overview once they are read")


def test_what_acts_now_is_shown_with_its_expiry_and_reason(tmp_path: Path, show: Callable[..., None]) -> None:
    write_story(tmp_path, end=datetime.now(UTC), seconds=90, noisy_from=30)
    show(tmp_path)
    said = words(overview())
    assert re.search(r"acme-7 on orders: 9.5/s expires in \d+ s acme-7 holds 63 % of in flight", said)


def test_an_empty_lake_shows_the_first_steps(tmp_path: Path, show: Callable[..., None]) -> None:
    show(tmp_path / "nothing")
    app = overview()
    assert app.title[0].value == "No queue has been seen yet"
    assert "sojourn demo" in words(app) and str(tmp_path) in words(app)
    assert not (tmp_path / "nothing").exists()


def test_a_lake_with_tables_but_no_rows_is_empty_too(tmp_path: Path, show: Callable[..., None]) -> None:
    Lake(tmp_path).create()
    show(tmp_path)
    assert overview().title[0].value == "No queue has been seen yet"


def test_a_lake_that_no_analysis_has_finished_is_unknown_and_says_what_to_run(
    tmp_path: Path, show: Callable[..., None]
) -> None:
    lake = Lake(tmp_path)
    append(lake, enqueued(0, 3))
    show(tmp_path)
    app = overview()
    assert app.title[0].value == "Nothing is known of the queues yet"
    assert "nothing has finished this lake's state yet: run sojourn analyze --once" in words(app)
    finish(tmp_path)
    wait_until(lambda: "orders" in words(overview()), "the queue")


def test_a_broken_lake_is_one_line_without_a_traceback(tmp_path: Path, show: Callable[..., None]) -> None:
    write_story(tmp_path, end=datetime.now(UTC), seconds=5, noisy_from=5)
    for log in (tmp_path / "gold/queue_state/_delta_log").glob("*.json"):
        log.write_text("not json")
    show(tmp_path)
    app = overview()
    assert not app.exception
    assert "The lake could not be read" in words(app)


def test_a_queue_is_chosen_by_the_address(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    said = words(opened("queue", queue="nats/emails"))
    assert "emails" in said and "birch" in said and "acme-7" not in said
    assert "No alert fired and nothing acted on this queue." in said


def test_the_queue_page_names_its_tenants_and_tells_each_charts_story(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("queue", queue="orders", range="5 min")
    said = words(app)
    assert re.search(r"acme-7 ▲ noisy \d\d\d 6\d %", said)
    for chart in ("Backlog by tenant", "Age of first attempt", "Arrivals and departures", "Concurrency"):
        assert chart in said
    assert "acme-7 (noisy) holds 6" in said
    assert "Little's law expects" in said and "the limit is 1,000, 4 % used" in said
    assert re.search(r"throttle acme-7 → 9.5/s", said)
    assert "Ready, in flight, delayed" in said and "Empty polls" not in said  # nobody tells of polls here
    assert re.search(r"What comes From the last 1 min 30 s .* Drained not at the rates of the last minutes", said)
    assert len(app.get("plotly_chart")) == 5
    assert app.segmented_control(key="range").value == "5 min"


def test_a_queue_that_is_not_there_is_said_and_another_is_offered(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("queue", queue="ordres")
    assert "No queue is called 'ordres' here" in words(app)
    assert app.selectbox(key="queue").options == ["emails", "orders", "orders.dlq"]


def test_a_queues_longer_name_leads_to_its_page_too(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("queue", queue="nats/orders")
    assert (heading(app), app.selectbox(key="queue").value) == ("orders", "orders")


def test_where_no_message_is_seen_the_brokers_own_reading_tells_what_waits_for_whom(
    tmp_path: Path, show: Callable[..., None]
) -> None:
    shares = [
        {"tenant": "<b>grove", "depth": 12, "in_flight": 1, "delayed": 0, "oldest_age_seconds": 3.0},
        {"tenant": "acme", "depth": 340, "in_flight": None, "delayed": 7, "oldest_age_seconds": 61.0},
    ]
    write_samples(tmp_path, end=datetime.now(UTC), tenants=shares)
    show(tmp_path, stale_after_seconds=AGES)
    said = words(opened("queue", queue="orders"))
    assert "By the broker's own count, read at" in said
    assert re.search(r"acme 340 unknown 7 1 min 1 s .*grove 12 1 0 3 s", said), "the largest first"
    assert "Unknown: no message event of this queue has been seen." in words(opened("queue", queue="emails"))


def test_a_queue_without_events_says_unknown_and_draws_what_its_broker_counts(
    story: Path, show: Callable[..., None]
) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("queue", queue="orders.dlq")
    said = words(app)
    assert "Unknown: no message event of this queue has been seen." in said
    assert (
        "Unknown: oldest message, backlog, in → out, drained – no message event of a dead-letter queue is seen" in said
    )
    assert "The broker counts 0 now; at most 0 in this range." in said
    assert len(app.get("plotly_chart")) == 1


def test_the_overview_draws_the_worst_queue_and_the_last_hour_of_each(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = overview()
    assert re.search(r"orders: how it came to this .* acme-7 \(noisy\) holds 6\d %", words(app))
    assert len(app.get("plotly_chart")) == 1
    html = " ".join(element.proto.body for element in app.get("html"))
    assert html.count('<div class="sj-strip') == 1  # the card's
    assert re.search(r'class="l[01]" title="03:0\d UTC: p99 ', html)
    assert html.count('<img class="sj-spark hour"') == 2  # the table's, of both queues with events
    assert html.count('<img class="sj-spark "') == 5  # backlog and flow of both, and the third's depth
    assert "reading the last hour" not in html


def test_a_lake_of_samples_alone_draws_what_the_broker_counts(tmp_path: Path, show: Callable[..., None]) -> None:
    write_samples(tmp_path, end=datetime.now(UTC))
    show(tmp_path, stale_after_seconds=AGES)
    app = overview()
    said = words(app)
    assert "orders: how it came to this" in said and "The broker counts" in said
    assert len(app.get("plotly_chart")) == 1


def test_counts_that_stand_for_traces_that_were_not_sampled_are_said_to_be_estimates(
    tmp_path: Path, show: Callable[..., None]
) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=30, noisy_from=30)
    report = reported([{"broker": "nats", "queue": "orders", "subscriber": "", **dict.fromkeys(EVENT_TYPES, 4)}], 0)
    at = pa.array([end], report.schema.field("sampled_at").type)
    lake.append("queue_samples", report.set_column(0, report.schema.field(0), at))
    finish(tmp_path)
    show(tmp_path, stale_after_seconds=AGES)
    assert "Estimates: sampled traces stand for those that were not" in words(opened("queue", queue="orders"))
    assert "Estimates" not in words(opened("queue", queue="emails"))


def test_a_queue_says_why_it_waits_and_who_sends_more(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("queue", queue="orders")
    said = words(app)
    assert re.search(r"Why it waits First attempts wait \d\d s, \d\d s longer than \d+ min", said)
    assert re.search(r"arrivals \+\d\d s .{5,30}, acme-7 \d[\d.]*/s → \d\d[\d.]*/s", said)
    assert "slots" in said and "service time" in said and "FROM partials" in app.code[0].value
    assert "limits hold back waits before the queue" in said
    bodies = "".join(element.proto.body for element in app.get("html"))
    links = re.findall(r'href="sql\?sql=([^"]+)" target="_self" aria-label="The SQL behind ([a-z ]+)"', bodies)
    assert {cause for _, cause in links} == {"arrivals", "slots", "service time", "retries", "unknown"}
    [statement] = {unquote(sql) for sql, _ in links}
    assert statement in app.code[0].value and Reader(story).query(statement).num_rows > 100
    assert "Why it waits" not in words(opened("queue", queue="emails"))


def test_an_alert_says_how_it_came_who_was_told_and_what_to_do(tmp_path: Path, show: Callable[..., None]) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=90, noisy_from=30)
    group = '{}:{broker="nats", queue="orders"}'
    told = [
        {
            "delivery_id": "1",
            "receiver": "oncall",
            "group_key": group,
            "attempt": 1,
            "outcome": "retry",
            "error": "HTTP 503",
        },
        {"delivery_id": "1", "receiver": "oncall", "group_key": group, "attempt": 2, "outcome": "delivered"},
        {
            "delivery_id": "2",
            "receiver": "chat",
            "group_key": '{}:{queue="emails"}',
            "attempt": 1,
            "outcome": "delivered",
        },
    ]
    rows = [{"at": end, "status": "firing", "alerts": 1, "duration_seconds": 0.04, **row} for row in told]
    lake.append("deliveries", pa.Table.from_pylist(rows, schema=DELIVERIES.schema))
    show(tmp_path, stale_after_seconds=AGES)
    app = opened("alerts")
    assert heading(app) == "1 alert fires"
    said = words(app)
    assert "TenantHoldsSharedQueue" in said and "Tenant acme-7 holds the shared queue orders" in said
    assert "pending → firing, value 0.63" in said and "true for 10 s" in said
    assert (
        "oncall: firing failed, tried again in 40 ms" in said and "oncall: firing delivered in 40 ms, attempt 2" in said
    )
    assert "chat" not in said
    assert "Watchdog" not in said
    assert "sojourn alerts acknowledge" in said
    assert "That alert is not here" in words(opened("alerts", alert="<b>'; DROP"))


def test_an_alert_says_what_is_the_case_now_where_the_alert_process_tells(
    tmp_path: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    write_story(lake, end=datetime.now(UTC), seconds=60, noisy_from=30)
    show(lake, stale_after_seconds=AGES)
    assert "holds the shared queue orders" in words(overview()) and "value then 0.63" in words(overview())
    fired = Reader(lake).query("SELECT * FROM alert_states WHERE rule <> 'Watchdog'").to_pylist()[0]
    with serving(tmp_path / "alerts.sqlite", firing_as(fired, "Tenant acme-7 holds all of it", 0.97)) as http:
        monkeypatch.setenv(API_VARIABLE, json.dumps({"url": str(http.base_url)}))
        for page in ("overview", "queue", "alerts"):
            seen: list[str] = []

            def says_so(page: str = page, seen: list[str] = seen) -> bool:
                seen[:] = [words(opened(page, queue="orders"))]
                return "Tenant acme-7 holds all of it" in seen[0]

            wait_until(says_so, f"{page} to have what the alert says now")  # it is asked every other second
            (said,) = seen
            assert "value 0.97" in said or page == "alerts", page
    assert "pending → firing, value 0.63" in said, "of what was, the journal tells"


def test_an_alert_s_value_stands_beside_its_threshold_and_each_condition_beside_what_it_saw(
    tmp_path: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=60, noisy_from=30)
    fired = alerts_of(end - timedelta(seconds=20))[-1]
    labels = {"severity": "warning", "broker": "nats", "queue": "orders"}
    row = {**fired, "rule": "InFlightLimitNear", "fingerprint": "f" * 16, "labels": [*labels.items()], "value": 0.95}
    row["inputs"] = [("threshold", "0.9"), ("in_flight", "950"), ("in_flight_limit", None)]
    loud = row | {"rule": "NoisyTenant", "fingerprint": "e" * 16, "value": 0.8, "inputs": [("backlog", "99")]}
    loud["labels"] = [*labels.items(), ("tenant", "acme-7")]
    lake.append("alert_transitions", pa.Table.from_pylist([row, loud], schema=ALERT_TRANSITIONS.schema))
    monkeypatch.setenv(RULES_VARIABLE, json.dumps([str(file) for file in rule_files([BUILTIN])]))
    show(tmp_path, stale_after_seconds=AGES)
    said = words(opened("alerts", alert="f" * 16))
    assert re.search(r"Value\s*95 %.*Threshold\s*90 %", said, re.DOTALL)
    assert "Why it fires" in said and "in_flight >= 0.9 * in_flight_limit" in said
    assert "in_flight 950; unknown, as the rule does not select it: in_flight_limit" in said
    assert "How it stands now" not in said
    noisy = words(opened("alerts", alert="e" * 16))
    assert "it held 80 % of the backlog; 99 messages of its own in the queue" in noisy
    assert re.search(r"How it stands now\s*Share of the work\s*\d+ %: .* noisy is more than \d+ %", noisy)
    assert re.search(r"Who waits for it\s*\d+ messages of other tenants, the oldest of quiet tenants for ", noisy)
    # The scene's own rule is in no file: its threshold is unknown, and its page says why.
    assert "Unknown: threshold – the rule is not in the rule files" in words(opened("alerts"))


def test_where_no_rule_ran_the_alerts_page_says_so(tmp_path: Path, show: Callable[..., None]) -> None:
    write_samples(tmp_path, end=datetime.now(UTC))
    show(tmp_path)
    assert "No alert rule has been evaluated on this lake yet" in words(opened("alerts"))


def test_the_pipeline_says_whether_the_pages_can_be_trusted(tmp_path: Path, show: Callable[..., None]) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=90, noisy_from=30)
    show(tmp_path, stale_after_seconds=AGES)
    assert "can be trusted" in heading(opened("pipeline"))
    refused = {"received_at": end, "source": "otlp", "reason": "no tenant", "raw": "{}", "count": 3}
    rows = [{**refused, "ingested_at": end, "ingest_date": end.date()}]
    lake.append("rejected_records", pa.Table.from_pylist(rows, schema=REJECTED_RECORDS.schema))
    app = opened_until("pipeline", "Look at refused rows")
    assert "3 of otlp: no tenant" in words(app)
    show(tmp_path, stale_after_seconds=0.001)
    assert heading(opened("pipeline")) == "Do not trust what the pages say of now"


def test_actions_tell_limits_proposals_dry_runs_and_the_journal(tmp_path: Path, show: Callable[..., None]) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=90, noisy_from=30)
    show(tmp_path, stale_after_seconds=AGES)
    app = opened("actions")
    said = words(app)
    assert heading(app) == "1 limit is in force"
    assert "throttle acme-7 on orders: 15/s → 9.5/s, for " in said and "backlog 410" in said
    assert "Waits for a yes" not in said
    [row, _] = actions_of(end - timedelta(seconds=20), end)
    others = [{"tenant": "birch", "outcome": "proposed", "action_id": "act-7"}, {"tenant": "elm", "outcome": "dry_run"}]
    rows = [{**row, **other} for other in others]
    lake.append("actions", pa.Table.from_pylist(rows, schema=ACTIONS.schema))
    said = words(opened_until("actions", "1 limit is in force, 1 waits for a yes"))
    assert "birch on orders: 15/s" in said and "sojourn actions approve act-7" in said
    assert "Dry runs" in said and "elm on orders: 15/s" in said
