"""What Streamlit runs, once for each session and rerun: the frame and the chosen page."""

from __future__ import annotations

import streamlit as st

from dashboard.pages import overview, queue

st.set_page_config(page_title="Sojourn", page_icon=":material/hourglass_top:", layout="wide")
home = st.Page(overview.render, title="Overview", icon=":material/visibility:", default=True)
st.navigation([home, queue.page()], position="top").run()
