"""Whether somebody evaluates the rules, and what alerts say now: the alert process is asked, beside the pages, every
few seconds."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import streamlit as st

from dashboard.operations import known_api
from dashboard.renewed import Renewed
from dashboard.services.freshness import Evaluation
from lake import alert_api

#: It is asked so often, and for so long; a page waits for its answer no longer than for a blink.
EVERY_SECONDS, TIMEOUT_SECONDS, PATIENCE_SECONDS = 5.0, 2.0, 0.1
#: What alerts say is asked as often as they may say something new, and of so many that fire at most.
SAID_SECONDS, MOST_FIRING = 2.0, 1_000
Said = dict[str, dict[str, str]]


def evaluation(root: Path) -> Evaluation:
    """Of the alert process that works on the lake at ``root``, as of a few seconds ago."""
    return _newest(str(root)).answer(int(monotonic() / EVERY_SECONDS), lambda: _asked(root), PATIENCE_SECONDS)


def said_now(root: Path, firing: int) -> Said:
    """By fingerprint the annotations of the ``firing`` alerts as of a moment ago; empty where they cannot be had."""
    if not 0 < firing <= MOST_FIRING:
        return {}
    ask = _said(str(root))
    return ask.answer(int(monotonic() / SAID_SECONDS), lambda: alert_api.said_now(*known_api(root)), PATIENCE_SECONDS)


def _asked(root: Path) -> Evaluation:
    bases, _ = known_api(root)
    return Evaluation.of(alert_api.found(bases, TIMEOUT_SECONDS)[1]) if bases else Evaluation.UNTOLD


@st.cache_resource(max_entries=4, show_spinner=False)
def _newest(root: str) -> Renewed[Evaluation]:
    return Renewed()


@st.cache_resource(max_entries=4, show_spinner=False)
def _said(root: str) -> Renewed[Said]:
    return Renewed()
