"""Tenants: who is noisy and who its victim, what each has and waits, and who counts as one.

Bound to ``?queue=…&find=…&order=…&page=…&by=group``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import figures
from dashboard.pages import choose, download, frame, lists, markup
from dashboard.pages.charts import CHART, pending
from dashboard.questions import groups as group_questions
from dashboard.questions import tenants as questions
from dashboard.questions.tenants import Wanted
from dashboard.repository import Repository
from dashboard.services import groups, tenants
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.overview import flowing
from dashboard.services.series import Span, on_the_minute
from dashboard.services.tenants import TenantRow
from dashboard.services.trends import last_hour
from sojourn.client.groups import LEAST_MEMBERS, TOGETHER_SECONDS

#: Tenants on one page.
ROWS = 25
_ORDERS = {
    "harm": "noisy and victims first",
    "wait": "longest wait",
    "backlog": "backlog",
    "work": "work",
    "arrivals": "arrivals",
}
_BY = {"tenant": "tenants", "group": "groups"}
_HEATS = {"wait": "first attempts, p99", "backlog": "backlog"}


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Tenants", url_path="tenants", icon=":material/group:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    top = st.container(gap="small")  # what is wrong stands above what is chosen by
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        queue = choose.queue(names, all_of_them=True)
        by = choose.one_of("Show", _BY, "by")
    if by == "group":
        _groups(lake, queue, names, health, now, top)
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        find = choose.text("Tenant", "find")
        order = choose.one_of("Order", _ORDERS, "order")
    target = lake.definitions.target_seconds
    wanted = Wanted(queue, find, target)
    (total,) = lake.now(questions.counted(wanted))
    known = total["tenants"] or wanted.find
    with top:
        fresh = frame.age_of_data(lake, health, now)
        said = tenants.headline(total, names[queue] if queue else None) if known else "No tenant is known here"
        frame.headed(said, lake, fresh, now)
    if not known:
        st.html(markup.note("No message event has been seen; a tap, the receiver or `sojourn.Recorder` tells them."))
        return
    place = choose.page_of(total["tenants"], ROWS)
    rows = lake.now(questions.ranked(wanted, order, ROWS, place))
    if not rows:
        st.html(markup.note("Nobody’s name holds these letters: shorten them, or choose all queues."))
        return
    pairs = [(QueueKey.of(row), row["tenant"]) for row in rows]
    shown = tenants.tenant_rows(
        rows, lake.now(questions.ages(pairs)), lake.limits(), total["work"], flowing(health, lake.totals())
    )
    caption = (
        f"{tenants.sentence(total)} A victim waits beyond the target of {target:g} s where somebody is noisy. "
        "Work: attempts at work at once by Little’s law, and the part of all work."
    )
    several = queue is None and len(names) > 1
    st.html(markup.note(caption) + lists.tenants(shown, names if several else None))
    download.csv(
        "tenants",
        ("Tenant", "Queue", "Part", *tenants.COLUMNS),
        lambda: [(row.tenant, row.key.full, tenants.PARTS[row.part][2], *row.cells) for row in shown],
    )
    _heat(lake, (wanted, order, place), shown, health, names if several else None, now.tzinfo or UTC)


def _groups(
    lake: Repository,
    queue: QueueKey | None,
    names: dict[QueueKey, str],
    health: list[Row],
    now: datetime,
    top: DeltaGenerator,
) -> None:
    """Tenants that count as one, and what they have together."""
    as_of = max(row["as_of"] for row in health)
    found = groups.declared(frame.groups(), queue)
    begun = lake.behind(
        ("begun", queue), lambda past: past.past(group_questions.beginnings(queue, on_the_minute(as_of)))
    )
    found += groups.together(begun or [], lake.now(group_questions.sending(queue)), as_of)
    shown = groups.group_rows(found, lake.now(group_questions.sums(found[: groups.MOST])) if found else (), now)
    with top:
        fresh = frame.age_of_data(lake, health, now)
        frame.headed(groups.headline(shown, names[queue] if queue else None), lake, fresh, now)
    said = (
        "A group counts as one to entitlements and to `sojourn.FairConsumer`: it has one share, which its members "
        "share. Declared: an entitlement names it (`acme-*`). Began together: many more began to send within "
        f"{TOGETHER_SECONDS:g} s than by chance, {LEAST_MEMBERS} at least, in the last hour, and still do."
    )
    st.html(markup.note(said))
    if shown:
        several = queue is None and len(names) > 1
        st.html(lists.groups(shown, names if several else None))
        download.csv("groups", ("Group", "How", *groups.COLUMNS), lambda: [(r.name, r.how, *r.cells) for r in shown])
    elif begun is not None:
        st.html(markup.note("No entitlement declares one that has tenants, and nobody was seen to begin together."))
    if begun is None:
        st.html(markup.note("Who began together in the last hour is being read."))


def _heat(
    lake: Repository,
    of: Hashable,
    shown: Sequence[TenantRow],
    health: list[Row],
    names: dict[QueueKey, str] | None,
    zone: tzinfo,
) -> None:
    """The last hour of those who stood in the table, the page ``of`` which it is, when it was read."""
    what = choose.one_of("Last hour by the minute", _HEATS, "heat")
    lines = [(row.key, row.tenant, f"{row.tenant} · {names[row.key]}" if names else row.tenant) for row in shown]
    title = "Who waited when" if what == "wait" else "Whose backlog when"
    asked = questions.waits if what == "wait" else questions.backlogs

    def read(past: Repository) -> tuple[Span, list[tuple[QueueKey, str, str]], list[Row]]:
        span = last_hour(max(row["as_of"] for row in health))
        return span, lines, past.past(asked([(key, tenant) for key, tenant, _ in lines], span))

    found = lake.behind(("heat", what, of), read)
    if found is None:  # its place is kept, so that nothing moves when it comes
        pending(title, "The last hour is being read.", figures.heat_height(len(lines)))
        return
    span, then, rows = replace(found[0], zone=zone), *found[1:]  # what was found is everybody's
    if what == "wait":
        target = lake.definitions.target_seconds
        heat = tenants.waits(span, rows, then)
        figure = figures.heat(span, heat.names, heat.values, heat.words, target=target)
        said = f"First attempts of each tenant, p99, against the target of {target:g} s; blank: none began."
    else:
        heat = tenants.backlogs(span, rows, then)
        figure = figures.heat(span, heat.names, heat.values, heat.words)
        said = "The backlog of each tenant at the end of each minute; blank: not known."
    st.html(markup.section(title, f"{span.words}. {said}"))
    st.plotly_chart(figure, config=CHART, key=f"heat {what}", alt=said)
