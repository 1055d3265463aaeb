from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.models import AlertState, fingerprint
from alerts.rules.model import Rule
from alerts.state import Row, RuleError, Tracked, Transition, resume, step

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rule(*, hold: timedelta = MINUTE, keep: timedelta = MINUTE, limit: int = 0) -> Rule:
    return Rule(
        "g",
        "HighAge",
        "SELECT 1 AS value",
        hold,
        keep,
        annotations={"summary": "{{ value }} of {{ labels.tenant }}"},
        limit=limit,
    )


def row(value: float = 1.0, tenant: str = "a") -> Row:
    labels = {"alertname": "HighAge", "tenant": tenant}
    return Row(labels, fingerprint(labels), value)


def run(
    series: list[float], threshold: float, using: Rule, every: timedelta = MINUTE
) -> list[tuple[AlertState | None, list[Transition]]]:
    """The state and the transitions after each value of ``series``, evaluated ``every`` so often."""
    alerts: dict[str, Tracked] = {}
    history: list[tuple[AlertState | None, list[Transition]]] = []
    for index, value in enumerate(series):
        rows = [row(value)] if value > threshold else []
        alerts, transitions = step(alerts, rows, using, START + index * every)
        history.append((next((t.alert.state for t in alerts.values()), None), transitions))
    return history


def test_prometheus_worked_series_pends_fires_is_kept_firing_and_is_gone_at_five_minutes() -> None:
    states = [state for state, _ in run([75, 85, 70, 70, 10, 10, 10, 10, 10], 50, rule())]
    firing, keep = AlertState.FIRING, AlertState.KEEP_FIRING
    assert states == [AlertState.PENDING, firing, firing, firing, keep, None, None, None, None]


def test_what_never_fired_vanishes_without_being_resolved() -> None:
    history = run([75, 10, 10], 50, rule())
    assert [state for state, _ in history] == [AlertState.PENDING, None, None]
    changes = [(t.from_state, t.to_state) for _, transitions in history for t in transitions]
    assert changes == [(AlertState.INACTIVE, AlertState.PENDING), (AlertState.PENDING, AlertState.INACTIVE)]


def test_a_rule_without_for_fires_at_its_first_match_and_resolves_at_its_first_miss() -> None:
    history = run([75, 10], 50, rule(hold=timedelta(0), keep=timedelta(0)))
    assert [state for state, _ in history] == [AlertState.FIRING, None]


def test_an_alert_kept_firing_fires_on_when_it_matches_again_and_keeps_its_start() -> None:
    alerts, _ = step({}, [row()], rule(hold=timedelta(0)), START)
    alerts, _ = step(alerts, [], rule(hold=timedelta(0)), START + timedelta(seconds=30))
    alerts, transitions = step(alerts, [row(7)], rule(hold=timedelta(0)), START + timedelta(seconds=45))
    (tracked,) = alerts.values()
    assert (tracked.alert.state, tracked.alert.fired_at, tracked.alert.value) == (AlertState.FIRING, START, 7)
    assert [t.from_state for t in transitions] == [AlertState.KEEP_FIRING]
    assert tracked.kept_since is None


def test_annotations_show_the_newest_value_while_the_identity_stays() -> None:
    alerts, _ = step({}, [row(1.5)], rule(), START)
    again, _ = step(alerts, [row(2.5)], rule(), START + MINUTE)
    assert again.keys() == alerts.keys()
    assert [t.alert.annotations["summary"] for t in again.values()] == ["2.5 of a"]


def test_what_fires_ends_when_its_resolve_says_so_and_missing_rows_end_nothing() -> None:
    using, asked = rule(hold=timedelta(0), keep=timedelta(0)), []
    over: set[str] = set()

    def resolved() -> set[str]:
        asked.append(1)
        return over

    alerts, _ = step({}, [row()], using, START, resolved=resolved)
    assert asked == [], "it is not asked while nothing could end"
    for minute in (1, 2):
        alerts, transitions = step(alerts, [], using, START + minute * MINUTE, resolved=resolved)
        assert [one.alert.state for one in alerts.values()] == [AlertState.KEEP_FIRING]
        assert len(transitions) == (1 if minute == 1 else 0)
    alerts, transitions = step(alerts, [row(7)], using, START + 3 * MINUTE, resolved=resolved)
    assert [one.to_state for one in transitions] == [AlertState.FIRING]
    over.add(row().fingerprint)
    alerts, transitions = step(alerts, [row(8)], using, START + 4 * MINUTE, resolved=resolved)
    assert transitions == [], "what still matches is not over"
    alerts, transitions = step(alerts, [], using, START + 5 * MINUTE, resolved=resolved)
    assert (alerts, [one.to_state for one in transitions]) == ({}, [AlertState.INACTIVE])


def test_two_rows_with_the_same_labels_are_an_error() -> None:
    with pytest.raises(RuleError, match="same labels"):
        step({}, [row(1), row(2)], rule(), START)


def test_more_alerts_than_the_limit_are_an_error() -> None:
    with pytest.raises(RuleError, match="limit of 1"):
        step({}, [row(tenant="a"), row(tenant="b")], rule(limit=1), START)


def test_downtime_does_not_count_towards_for() -> None:
    alerts, _ = step({}, [row()], rule(), START)
    back = START + timedelta(hours=1)
    alerts, transitions = step(resume(alerts, back - START), [row()], rule(), back)
    assert not transitions
    alerts, transitions = step(alerts, [row()], rule(), back + timedelta(seconds=59))
    assert not transitions
    alerts, transitions = step(alerts, [row()], rule(), back + MINUTE)
    assert [t.to_state for t in transitions] == [AlertState.FIRING]
    assert transitions[0].alert.active_since == START


def test_downtime_does_not_count_towards_keep_firing_for() -> None:
    using = rule(hold=timedelta(0))
    alerts, _ = step({}, [row()], using, START)
    alerts, _ = step(alerts, [], using, START + timedelta(seconds=1))
    back = START + timedelta(hours=1)
    alerts, _ = step(resume(alerts, back - START - timedelta(seconds=1)), [], using, back)
    assert [t.alert.state for t in alerts.values()] == [AlertState.KEEP_FIRING]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rule, list[tuple[timedelta, bool]]]:
    seconds = st.integers(min_value=0, max_value=120).map(lambda s: timedelta(seconds=s))
    steps = draw(
        st.lists(st.tuples(st.integers(1, 90).map(lambda s: timedelta(seconds=s)), st.booleans()), max_size=30)
    )
    return rule(hold=draw(seconds), keep=draw(seconds)), steps


@given(histories())
def test_nothing_fires_before_for_and_nothing_resolves_that_never_fired(
    history: tuple[Rule, list[tuple[timedelta, bool]]],
) -> None:
    using, steps = history
    now, matching_since, fired = START, None, False
    alerts: dict[str, Tracked] = {}
    for pause, matches in steps:
        now += pause
        matching_since = (matching_since or now) if matches else None
        alerts, transitions = step(alerts, [row()] if matches else [], using, now)
        for transition in transitions:
            if transition.to_state is AlertState.FIRING and transition.from_state is not AlertState.KEEP_FIRING:
                assert matching_since is not None and now - matching_since >= using.hold
                fired = True
            if transition.to_state is AlertState.INACTIVE and transition.from_state is not AlertState.PENDING:
                assert fired
                fired = False
        if fired:
            assert [t.alert.state.is_firing for t in alerts.values()] == [True]


@given(histories(), st.integers(min_value=1, max_value=7200))
def test_a_restart_restores_what_fired_and_delays_only_by_the_downtime(
    history: tuple[Rule, list[tuple[timedelta, bool]]], down: int
) -> None:
    """Stopping for a while anywhere yields the same states as never having stopped, each as much later."""
    using, steps = history
    gap = timedelta(seconds=down)
    now = START
    straight: dict[str, Tracked] = {}
    stopped: dict[str, Tracked] = {}
    for index, (pause, matches) in enumerate(steps):
        now += pause
        rows = [row()] if matches else []
        straight, _ = step(straight, rows, using, now)
        if index == len(steps) // 2:
            stopped = resume(stopped, gap)
        late = gap if index >= len(steps) // 2 else timedelta(0)
        stopped, _ = step(stopped, rows, using, now + late)
        assert [t.alert.state for t in stopped.values()] == [t.alert.state for t in straight.values()]
