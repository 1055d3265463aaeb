"""Alerts in columns are the alerts that walking all rows gives, whatever comes, goes, repeats or fails."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.answer import Answer, Identities
from alerts.columns import Columns, Instances, advance, firing, unread
from alerts.models import AlertState
from alerts.rules.model import Rule
from alerts.state import RuleError, Tracked, pending_since, resume, step
from tests.support.deep import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = pa.schema(
    [
        ("Queue", pa.string()),
        ("tenant", pa.string()),
        ("severity", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.decimal128(9, 2)),
        ("as_of", pa.timestamp("us", "UTC")),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "Queue": st.sampled_from(["a", "b", "c", "d\0", None, ""]),
        "tenant": st.sampled_from(["x", "\0y", None]),
        "severity": st.sampled_from(["page", "page", "page", "other"]),  # the rule has one of its own
        "value": st.sampled_from([1.0, 2.0, float("nan"), None]),
        "threshold": st.sampled_from([Decimal("1.50"), Decimal("2.00"), None]),
        "as_of": st.just(NOW),
    }
)
TABLES = st.lists(ROWS, max_size=8, unique_by=lambda row: (row["Queue"] or "", row["tenant"]))
ANY_TABLES = st.one_of(TABLES, TABLES, TABLES, st.lists(ROWS, max_size=8))
STEPS = st.lists(
    st.tuples(
        ANY_TABLES,
        st.sampled_from([0, 0, 1, 2, 5, -1]),  # seconds since the step before
        st.sampled_from(["again", "again", "new", "new", "new", "shuffled", "paused", "doubled"]),
        st.booleans(),
        st.sampled_from([None, None, 0, 1]),  # of every two alerts, which one `resolve` says is over
    ),
    min_size=2,
    max_size=10,
)
RULES = st.builds(
    lambda hold, keep, limit: Rule(
        "g",
        "Deep",
        "…",
        hold * SECOND,
        keep * SECOND,
        labels={"severity": "critical"},
        annotations={"summary": "{{ value }} of {{ row.threshold }} at {{ row.as_of }}: {{ labels.queue }}"},
        limit=limit,
    ),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0, 2]),
    st.sampled_from([0, 0, 6]),
)


def by_fingerprint(transitions: list[Any]) -> list[Any]:
    return sorted(transitions, key=lambda one: one.alert.fingerprint)


@settings(max_examples=examples(100, 400))
@given(RULES, STEPS)
def test_they_are_what_walking_all_rows_gives(rule: Rule, steps: list[Any]) -> None:
    walked: Mapping[str, Tracked] = {}
    kept: Mapping[str, Tracked] = {}
    now, rows, identities = NOW, [], Identities()
    for number, (new, seconds, how, keep_firing, half) in enumerate(steps):
        now += seconds * SECOND
        match how:
            case "new":
                rows = new
            case "shuffled":
                rows = rows[::-1]
            case "paused":
                walked, kept = resume(walked, 7 * SECOND), resume(kept, 7 * SECOND)
        given = rows + rows[:1] if how == "doubled" else rows
        given = [row | {"value": row["value"] and row["value"] + number} for row in given]
        answer = Answer(pa.Table.from_pylist(given, schema=SCHEMA))
        results: list[Any] = []
        over = {one for one in {*walked, *kept} if half is not None and int(one, 16) % 2 == half}
        how_to: Any = {"keep_firing": keep_firing, "resolved": None if half is None else lambda over=over: over}
        for name in ("walked", "kept"):
            try:
                if name == "walked":
                    walked, moved = step(walked, answer.rows(rule, Identities()), rule, now, **how_to)
                else:
                    kept, moved = advance(kept, answer, rule, identities, now, **how_to)
                results.append(by_fingerprint(moved))
            except RuleError as error:
                results.append(str(error).partition("{")[0])
        assert results[0] == results[1]
        assert dict(kept) == dict(walked)
        if isinstance(kept, Columns):
            alerts = Instances(kept)
            assert {one.fingerprint: one.state for one in unread(alerts)} == {
                one.fingerprint: one.state for one in alerts
            }
            assert [*firing(alerts)] == [one for one in alerts if one.state.is_firing]
            first = pending_since(walked.values())
            assert first is None or (kept.pending_since is not None and kept.pending_since <= first)


@given(st.lists(ROWS.filter(lambda row: row["value"] in (1.0, 2.0)), max_size=8), RULES)
def test_columns_at_hand_say_what_a_table_of_them_says(rows: list[dict[str, Any]], rule: Rule) -> None:
    read = Answer(pa.Table.from_pylist(rows, schema=SCHEMA))
    labels = {name: pa.array([row[name] for row in rows], pa.string()) for name in ("Queue", "tenant", "severity")}
    texts = {name.lower(): column for name, column in labels.items()}
    exact = {"threshold": [row["threshold"] and float(row["threshold"]) for row in rows]}
    given = Answer.of(texts, [row["value"] for row in rows], exact | {"as_of": [row["as_of"] for row in rows]})
    known = Identities()
    assert known.answer(given) is given
    assert given.rows(rule, known) == read.rows(rule, known)
    assert [given.row(place, rule, known) for place in range(given.count)] == read.rows(rule, known)
    assert given.has_labels_of(read) and read.has_labels_of(given)
    assert given.places_in(read).tolist() == read.places_in(given).tolist()


def table(values: list[float], **columns: list[Any]) -> pa.Table:
    return pa.table({"queue": ["a", "b"], "value": values, **columns})


def test_only_numbers_that_changed_make_no_alert_anew() -> None:
    rule, identities = Rule("g", "Deep", "…"), Identities()
    first, moved = advance({}, Answer(table([1, 2])), rule, identities, NOW)
    assert [one.to_state for one in moved] == [AlertState.FIRING] * 2
    second, moved = advance(first, Answer(table([3, 4])), rule, identities, NOW + SECOND)
    assert moved == []
    assert second.unread is first.unread
    assert [one.value for one in Instances(second)] == [3, 4]
    assert [one.value for one in Instances(first)] == [1, 2], "who has the earlier ones keeps them"
    assert [one.value for one in unread(Instances(second))] == [1, 2]


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (pa.array([1 << 62, 0], pa.timestamp("us", "UTC")), "cannot be read"),
        (pa.array([[1], [2]]), None),
        (pa.array([1, 2], pa.duration("us")), None),
        (pa.array([1500, None], pa.timestamp("ns")), None),
        (pa.array([Decimal("1.5"), None]), None),
    ],
)
def test_any_column_may_feed_annotations_unless_it_cannot_be_read(extra: pa.Array, told: str | None) -> None:
    rows = table([1, 2]).append_column("seen", extra)
    if told:
        with pytest.raises(RuleError, match=told):
            Answer(rows)
        return
    answer, rule = Answer(rows), Rule("g", "Deep", "…")
    assert answer.rows(rule, Identities()) == [answer.row(place, rule, Identities()) for place in range(2)]
