"""Whether somebody evaluates the rules: the alert process is asked, beside the pages, every few seconds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import monotonic

import streamlit as st

from dashboard.renewed import Renewed
from dashboard.run import API_VARIABLE
from dashboard.services.freshness import Evaluation
from lake import alert_api

#: It is asked so often, and for so long; a page waits for its answer no longer than for a blink.
EVERY_SECONDS, TIMEOUT_SECONDS, PATIENCE_SECONDS = 5.0, 2.0, 0.1


def evaluation(root: Path) -> Evaluation:
    """Of the alert process that works on the lake at ``root``, as of a few seconds ago."""
    return _newest(str(root)).answer(int(monotonic() / EVERY_SECONDS), lambda: _asked(root), PATIENCE_SECONDS)


def _asked(root: Path) -> Evaluation:
    bases = alert_api.addresses(root, json.loads(os.environ.get(API_VARIABLE) or "{}").get("url"))
    return Evaluation.of(alert_api.found(bases, TIMEOUT_SECONDS)[1]) if bases else Evaluation.UNTOLD


@st.cache_resource(max_entries=4, show_spinner=False)
def _newest(root: str) -> Renewed[Evaluation]:
    return Renewed()
