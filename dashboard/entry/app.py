"""What Streamlit runs, once for each session and rerun: the frame and the chosen page."""

from __future__ import annotations

import streamlit as st

from dashboard.pages import (
    actions,
    alerts,
    consumers,
    dead_letters,
    frame,
    lab,
    overview,
    pipeline,
    queue,
    sign_in,
    slo,
    sql,
    tenants,
)
from dashboard.people import present
from dashboard.theme import MARK

st.set_page_config(page_title="Sojourn", page_icon=MARK, layout="wide")
st.logo(MARK, size="small")
settings = frame.settings()
if (who := present()) is None:
    sign_in.ask(settings)
    st.stop()
home = st.Page(overview.render, title="Overview", icon=":material/visibility:", default=True)
pages = [
    home,
    *(page.page() for page in (queue, tenants, consumers, dead_letters, slo, alerts, actions, lab, sql, pipeline)),
]
st.navigation(pages, position="top").run()
sign_in.foot(who, settings)
