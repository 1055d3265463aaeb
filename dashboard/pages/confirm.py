"""Buttons that change something: each asks once more, goes through :mod:`dashboard.writes`, says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from dashboard.pages import markup
from dashboard.people import Person
from dashboard.writes import write
from lake.errors import SojournError

_SAID = "what came of it"


def button(
    who: Person | None,
    root: Path,
    label: str,
    question: str,
    what: str,
    about: str,
    act: Callable[[str], object],
    *,
    icon: str | None = None,
) -> None:
    """A button ``label`` for operators; what it opens asks ``question``, and ``act`` is done once that is answered.

    Viewers see it, but cannot press it. ``what`` and ``about`` are for the journal; together they name the button.
    """
    may = who is not None and who.may_write
    key = f"{what} {about}"
    why = "" if may else "Operators may. You can look."
    with st.popover(markup.plain(label), icon=icon, disabled=not may, help=markup.plain(why), key=f"ask {key}"):
        st.html(markup.note(question))
        if st.button(markup.plain(f"Yes, {label[:1].lower()}{label[1:]}"), type="primary", key=f"do {key}"):
            try:
                write(root, what, about, act)
            except SojournError as error:
                st.session_state[_SAID] = (f"Not done: {label}", str(error), False)
            else:
                st.session_state[_SAID] = (f"Done: {label}", "It is in the journal, under your name.", True)
            st.rerun()


def outcome() -> None:
    """What came of the last button, once."""
    if (said := st.session_state.pop(_SAID, None)) is not None:
        title, reason, quiet = said
        st.html(markup.banner(title, reason, quiet=quiet))
