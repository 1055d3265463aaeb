"""SQL: read-only, limited, cancellable; with the views' columns beside it. Bound to the address ``?sql=…``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboard import saved
from dashboard.asking import MOST_ROWS, Ask, pool
from dashboard.operations import Operation
from dashboard.pages import choose, details, frame, lists, markup
from dashboard.people import present
from dashboard.services.say import duration
from dashboard.writes import write
from lake.errors import SojournError
from lake.texts import csv_text, flat, values_of
from lake.views import VIEWS

#: Rows on one page of an answer.
ROWS = 100
#: How long a cell of an answer is at most; a download has it whole.
_CELL = 200
_POLL_SECONDS = 0.5


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="SQL", url_path="sql", icon=":material/database:")


def render() -> None:
    """Show the page: what is asked, what was answered, and what there is to ask for."""
    st.html(markup.style_sheet())
    root = frame.repository().root
    st.html(markup.title("SQL"))
    st.html(
        markup.note(
            "One SELECT in Spark’s dialect over the views and tables, checked as `sojourn sql` checks it: it reads, "
            f"and does nothing else. At most {MOST_ROWS:,} rows, 20 s and 2 GB. The address keeps the statement, so "
            "that a link shows it to others; it runs when they say so."
        )
    )
    if not root.is_dir():
        st.html(markup.banner("There is no lake yet", f"Nothing is at {root}: `sojourn demo` makes one.", quiet=True))
        return
    frame.trust()
    asking, there = st.columns([2.3, 1], gap="large")
    with asking:
        _kept(root)
        sql = st.text_area("Statement", key="sql", bind="query-params", height=190, max_chars=saved.LONGEST)
        _buttons(root, sql or "")
        ask: Ask | None = st.session_state.get("ask")
        if ask is not None and not ask.done:
            st.fragment(run_every=_POLL_SECONDS)(_running)()
        elif ask is not None:
            _answer(ask)
        elif st.session_state.get("refused"):
            st.html(markup.banner("The statement was not run", st.session_state["refused"], quiet=True))
    with there:
        _views()


def _kept(root: Path) -> None:
    """Statements to begin with: examples, and what viewers kept."""
    kept = saved.load(root)
    options = {**saved.EXAMPLES, **kept}

    def take() -> None:
        if (name := st.session_state.get("kept")) in options:
            st.session_state["sql"] = options[name]

    st.selectbox(
        "Begin with",
        list(options),
        index=None,
        key="kept",
        on_change=take,
        format_func=_plain,
        placeholder="an example, or one that was kept",
    )


def _plain(name: str) -> str:
    """A name as a label that is not read as Markdown; boxes show their options as they are."""
    return name[: saved.LONGEST_NAME]


def _buttons(root: Path, sql: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        busy = (ask := st.session_state.get("ask")) is not None and not ask.done
        if st.button("Run", type="primary", disabled=busy or not sql.strip(), icon=":material/play_arrow:"):
            st.session_state.pop("ask", None)
            st.session_state.pop("refused", None)
            try:
                st.session_state["ask"] = pool(str(root)).ask(sql)
            except SojournError as error:
                st.session_state["refused"] = str(error)
            st.rerun()
        may = (who := present()) is not None and who.may_write
        with st.popover("Keep", icon=":material/bookmark:", disabled=not may):
            name = st.text_input("Name", key="keep-as", max_chars=saved.LONGEST_NAME)
            if st.button("Keep the statement", disabled=not (name and sql.strip())):
                _try(root, "keep a statement", name, lambda _: saved.save(root, name, sql))
            forgettable = list(saved.load(root))
            gone = st.selectbox("Kept already", forgettable, index=None, key="forget", format_func=_plain)
            if st.button("Forget it", disabled=gone is None) and gone:
                _try(root, "forget a statement", gone, lambda _: saved.forget(root, gone))


def _try(root: Path, what: str, about: str, act: Operation) -> None:
    try:
        write(root, what, about, act)
    except SojournError as error:
        st.html(markup.note(str(error)))
    else:
        st.rerun()


def _running() -> None:
    ask: Ask = st.session_state["ask"]
    if ask.done:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.note(f"Running for {duration(max(1, round(ask.seconds)))} …"), width="content")
        if st.button("Cancel", icon=":material/stop:", key="cancel"):
            ask.cancel()


def _answer(ask: Ask) -> None:
    if ask.error or ask.rows is None:
        st.html(markup.banner("The statement was not answered", ask.error, quiet=True))
        return
    whole = ask.rows.num_rows <= MOST_ROWS
    rows = ask.rows if whole else ask.rows.slice(0, MOST_ROWS)
    took = f"{rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'} in {duration(ask.seconds)}"
    st.html(markup.section("Answer", took if whole else f"The first {took}; there are more."))
    if not rows.num_rows:
        return
    place = choose.page_of(rows.num_rows, ROWS)
    numeric = [pa.types.is_integer(one.type) or pa.types.is_floating(one.type) for one in rows.schema]
    st.html(lists.answer(rows.schema.names, _cells(rows.slice((place - 1) * ROWS, ROWS)), numeric))
    st.download_button(
        "Download CSV",
        data="".join(csv_text(rows.schema, rows.to_batches(), for_spreadsheets=True)),
        file_name=f"sojourn-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.csv",
        mime="text/csv",
        on_click="ignore",
        icon=":material/download:",
    )


def _cells(rows: pa.Table) -> list[tuple[str | None, ...]]:
    return [
        tuple(None if value is None else str(flat(value))[:_CELL] for value in values)
        for values in values_of(rows.to_batches())
    ]


def _views() -> None:
    st.html(markup.section("What there is", "The views; each of history has a twin …_now with its newest rows."))
    for view in sorted(
        VIEWS.values(), key=lambda view: f"{view.name}_now" not in VIEWS
    ):  # what is asked for most, first
        if view.public and not view.name.endswith("_now"):
            twin = f" · {view.name}_now" if f"{view.name}_now" in VIEWS else ""
            with st.expander(markup.plain(f"{view.name}{twin}")):
                st.html(
                    details.table(
                        ("Column", "Type", "Meaning"),
                        [
                            (c.name, c.type.lower(), c.description + (f", {c.unit}" if c.unit else ""))
                            for c in view.columns
                        ],
                    )
                )
