"""Who looks, said at the foot of each page; and what is shown instead of pages to those who may not."""

from __future__ import annotations

import streamlit as st

from dashboard.pages import markup
from dashboard.people import Person
from dashboard.settings import DashboardSettings


def ask(settings: DashboardSettings) -> None:
    """What somebody sees who may not look, or has not said yet who they are."""
    st.html(markup.style_sheet())
    st.html(markup.title("Who is there?"))
    if settings.oidc is None:
        st.html(
            markup.note(
                "The proxy in front of this dashboard has to say who you are, and that you may look; it did not."
            )
        )
        return
    if st.user.is_logged_in:
        st.html(
            markup.note(
                "You are signed in, but not as somebody who may look; or it was too long ago. Sign in once more."
            )
        )
    st.button("Sign in", type="primary", on_click=st.login, icon=":material/login:")


def foot(who: Person, settings: DashboardSettings) -> None:
    """Who looks and what they may do; nothing where nobody is asked."""
    if not settings.signs_in:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.html(markup.note(f"{who.name}, {who.role.value}"), width="content")
        if settings.oidc is not None:
            st.button("Sign out", type="tertiary", on_click=st.logout)
