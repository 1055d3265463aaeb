from __future__ import annotations

from typing import Any

from dashboard.services import story
from dashboard.services.queue import tenant_lines
from dashboard.services.series import Curve, Span

SPAN = Span(start=1000, end=1040, step=20)


def tenant(name: str, backlog: int, *, noisy: bool = False) -> dict[str, Any]:
    return {
        "tenant": name,
        "backlog": backlog,
        "in_flight": backlog // 10,
        "ready": backlog - backlog // 10,
        "oldest_age_seconds": 12.0 if backlog else None,
        "arrival_rate": 2.0,
        "completion_rate": 1.0,
        "share": backlog / 1000,
        "noisy": noisy,
        "drain_state": "growing",
        "drain_eta_seconds": None,
        "coverage": 1.0,
        "reconciled_backlog": backlog,
    }


TOTAL = {
    "tenants": 100_000,
    "backlog": 1000,
    "in_flight": 100,
    "ready": 900,
    "arrival_rate": 9.0,
    "completion_rate": 6.0,
}


def test_noisy_tenants_come_first_and_all_that_are_not_shown_are_one_line() -> None:
    rows = [tenant("big", 500), tenant("loud", 200, noisy=True), tenant("small", 10)]
    lines = tenant_lines(rows, TOTAL, top=2)
    assert [line.tenant for line in lines] == ["loud", "big", "99,998 other tenants"]
    assert (lines[-1].backlog, lines[-1].share_text, lines[-1].flow) == ("300", "30 %", "5/s → 4/s")


def test_a_queue_whose_tenants_are_all_shown_has_no_others() -> None:
    assert len(tenant_lines([tenant("a", 1)], {**TOTAL, "tenants": 1}, top=5)) == 1


def test_a_tenant_of_a_queue_that_flows_says_what_its_queue_says() -> None:
    stalled = {**tenant("b", 1), "drain_state": "stalled"}
    said = [tenant_lines([tenant("a", 1), stalled], None, top=2, flows=flows) for flows in (True, False)]
    assert [[line.drained for line in lines] for lines in said] == [
        ["flows", "not: nothing leaves"],
        ["not at this rate", "not: nothing leaves"],
    ]


def test_a_limit_of_all_tenants_is_everybodys() -> None:
    lines = tenant_lines([tenant("a", 1), tenant("b", 2)], None, [{"tenant": None, "rate": 5.0}], top=5)
    assert [line.limit for line in lines] == ["5/s", "5/s"]


def test_where_events_cover_too_little_the_brokers_count_stands_beside_the_backlog() -> None:
    poor = {**tenant("a", 400), "coverage": 0.5, "reconciled_backlog": 800}
    fair = {**tenant("b", 400), "coverage": 0.98, "reconciled_backlog": 408}
    unknown = {**tenant("c", 400), "coverage": None, "reconciled_backlog": None}
    assert [line.backlog for line in tenant_lines([poor, fair, unknown], None, top=3)] == ["400 (≈ 800)", "400", "400"]


def test_levels_that_are_unknown_are_no_zeros() -> None:
    levels = ("backlog", "in_flight", "ready", "share", "noisy", "oldest_age_seconds", "drain_state")
    row = {**tenant("a", 1), **dict.fromkeys(levels)}
    total = {**TOTAL, **dict.fromkeys(("backlog", "in_flight", "ready"))}
    for line in tenant_lines([row], total, top=1):
        assert (line.backlog, line.in_flight, line.ready) == ("unknown", "unknown", "unknown")
        assert line.share_text == "–"
        assert line.oldest in ("unknown", "–")


def test_the_backlogs_story_says_now_then_and_who() -> None:
    curves = [Curve("acme-7", (None, 10.0, 80.0)), Curve("elm", (None, 10.0, 20.0))]
    said = story.backlog(curves, SPAN, ["acme-7"])
    assert said == "Now 100; 20 at 00:17, at most 100. acme-7 (noisy) holds 80 % of it."
    assert story.backlog([], SPAN, []) == "No message was waiting in this range."


def test_the_ages_story_keeps_quiet_and_noisy_apart() -> None:
    said = story.ages([Curve("quiet", (0.04, None))], [Curve("quiet", (0.12, None))])
    assert said == "Newest first attempts: quiet tenants 40 ms at the median, 120 ms at p99."
    assert story.ages([], []) == "No first attempt in this range."


def test_the_rates_story_says_by_how_much_the_backlog_grows() -> None:
    assert story.rates(Curve("in", (20.0,)), Curve("out", (12.0,))).endswith("the backlog grows by 8/s.")
    assert story.rates(Curve("in", (20.0,)), Curve("out", (20.1,))).endswith("they keep pace.")
    assert story.rates(None, None) == "Rates are unknown."


def test_a_gap_between_littles_law_and_the_measurement_is_explained() -> None:
    assert "stuck messages" in story.concurrency(10.0, 90.0, 100.0)
    assert story.concurrency(40.0, 41.0, 1000.0).endswith("the limit is 1,000, 4 % used.")
    assert "unknown" in story.concurrency(None, 3.0, None)
