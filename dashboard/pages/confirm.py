"""Buttons that change something: each asks once more, goes through :mod:`dashboard.writes`, says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import streamlit as st

from dashboard.pages import markup
from dashboard.people import Person
from dashboard.writes import write
from lake.errors import SojournError

_SAID = "what came of it"
#: For how long that is told, from when it is first shown: a page renews itself sooner than somebody reads, and on a
#: busy machine it comes later than somebody clicked.
TOLD_SECONDS = 15.0


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
    # A click may come twice, with a renewal that was under way meanwhile: each answer has a button of its own, in a
    # place of its own, which is closed.
    answered = st.session_state.get(f"answered {key}", 0)
    why = "" if may else "Operators may. You can look."
    with st.popover(
        markup.plain(label), icon=icon, disabled=not may, help=markup.plain(why), key=f"ask {key} {answered}"
    ):
        st.html(markup.note(question))
        if st.button(markup.plain(f"Yes, {label[:1].lower()}{label[1:]}"), type="primary", key=f"do {key} {answered}"):
            st.session_state[f"answered {key}"] = answered + 1
            try:
                write(root, what, about, act)
            except SojournError as error:
                _tell(f"Not done: {label}", str(error), well=False)
            else:
                _tell(f"Done: {label}", "It is in the journal, under your name.", well=True)
            st.rerun()


def outcome() -> None:
    """What came of the last button, for a while."""
    title, reason, well, until = st.session_state.get(_SAID, ("", "", True, 0.0))
    if until is None:
        until = monotonic() + TOLD_SECONDS
        st.session_state[_SAID] = (title, reason, well, until)
    if monotonic() < until:
        st.html(markup.done(title, reason) if well else markup.banner(title, reason, quiet=False))


def _tell(title: str, reason: str, *, well: bool) -> None:
    st.session_state[_SAID] = (title, reason, well, None)
