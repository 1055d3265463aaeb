"""What viewers choose by, each bound to the address so that a link shows the same: queue, range, page."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.pages import markup
from dashboard.services import series
from dashboard.services.keys import QueueKey, resolve

#: The choice that is no one queue.
ALL = "all queues"
#: Under which key a session has the queue that its address named and that is not there.
_MISSING = "missing-queue"


def forget_missing() -> None:
    """A page is opened anew, or a queue was chosen: what an earlier address asked for is over."""
    st.session_state.pop(_MISSING, None)


def queue(names: Mapping[QueueKey, str], *, all_of_them: bool = False) -> QueueKey | None:
    """The queue that is looked at; None: none is chosen, or all of them."""
    asked = st.query_params.get("queue")
    options = sorted(names.values())
    if all_of_them:
        options.insert(0, ALL)
    found = resolve(asked, names) if asked else None
    if found is not None and asked != names[found]:
        st.session_state["queue"] = names[found]  # the box below has read the address already
    if asked and found is None and asked not in options:
        st.session_state[_MISSING] = asked
        del st.query_params["queue"]
    if missing := st.session_state.get(_MISSING):  # said until another is chosen: whoever followed a link looks at it
        st.html(
            markup.banner(f"No queue is called {missing!r} here.", f"Choose one of these {len(names)}.", quiet=True)
        )
    by_name = {name: key for key, name in names.items()}
    name = st.selectbox("Queue", options, key="queue", bind="query-params", width=420, on_change=forget_missing)
    return by_name.get(name) if name else None


def stretch() -> str:
    """The name of the range that is looked at."""
    options = list(series.RANGES)
    chosen = st.segmented_control(
        "Range, up to the newest data",
        options,
        default=series.DEFAULT_RANGE,
        key="range",
        bind="query-params",
        required=True,
    )
    return chosen or series.DEFAULT_RANGE


def one_of(label: str, options: Mapping[str, str], key: str, first: str | None = None) -> str:
    """One of ``options`` (what the address may say → what viewers read), ``first`` where nothing was chosen.

    Streamlit writes into the address what viewers read, and reads that alone: what is short is taken here.
    """
    first = first or next(iter(options))
    asked = st.query_params.get(key) or ""
    if (read := options.get(asked, asked)) != asked:
        st.query_params[key] = read
        st.rerun()
    chosen = st.segmented_control(
        markup.plain(label),
        list(options),
        default=first,
        format_func=options.__getitem__,
        key=key,
        bind="query-params",
        required=True,
    )
    return chosen or first


def text(label: str, key: str) -> str:
    """Part of a name to look for; empty: all."""
    found = st.text_input(
        label, key=key, bind="query-params", max_chars=120, placeholder="part of a name", width=260, type="search"
    )
    return (found or "").strip()


def page_of(items: int, rows: int) -> int:
    """The number, from 1, of the page of ``rows`` out of ``items`` that is looked at; a widget where there are more."""
    pages = max(1, -(-items // rows))
    if pages == 1:
        return 1
    if (asked := st.query_params.get("page")) and not (asked.isdecimal() and 1 <= int(asked) <= pages):
        del st.query_params["page"]
    return int(st.pagination(pages, key="page", bind="query-params"))
