"""The lab: what another order, entitlements or a policy would have made of it. Bound to ``?what=…&scenario=…``."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import streamlit as st

from dashboard import lab_figures
from dashboard.labs import LONGEST_SECONDS, MOST_MESSAGES, Question, Trial, laboratory, scenarios
from dashboard.pages import choose, download, frame, lists, markup
from dashboard.pages.charts import CHART
from dashboard.questions import lab as questions
from dashboard.repository import Repository
from dashboard.services import lab
from dashboard.services.freshness import newest
from dashboard.services.keys import QueueKey, short_names
from dashboard.services.say import clock, count, duration, instant
from lake.errors import SojournError

_WHAT = {"scenario": "a scenario", "lake": "what this lake saw last"}
_MINUTES = {"5": "5 min", "15": "15 min", "60": "1 h"}
_RUNS = {"1": "1, quick", "3": "3", "5": "5"}
_FIRST = "noisy-neighbour"
_POLL_SECONDS = 0.7


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Lab", url_path="lab", icon=":material/science:")


def render() -> None:
    """Show the page: what is to be run, what is running, and what was found."""
    st.html(markup.style_sheet())
    top = st.container(gap="small")
    frame.trust()
    lake = frame.repository()
    question = _wanted(lake)
    trial: Trial | None = st.session_state.get("trial")
    _buttons(lake, question, trial)
    if trial is not None and not trial.done:
        with top:
            st.html(markup.title("Lab"))
        st.fragment(run_every=_POLL_SECONDS)(_running)()
    elif trial is not None and trial.found is not None:
        with top:
            st.html(markup.title(lab.headline(trial.found)))
        _shown(trial)
    else:
        with top:
            st.html(markup.title("Lab"))
            st.html(markup.note(_ABOUT))
        if trial is not None:
            st.html(markup.banner("The simulation has no answer", trial.error, quiet=True))
        elif st.session_state.get("lab-refused"):
            st.html(markup.banner("The simulation was not begun", st.session_state["lab-refused"], quiet=True))


_ABOUT = (
    "The same messages again under every order and policy, beside doing nothing, by the very laws that act here: "
    f"`sojourn lab`, in a process of its own, for {LONGEST_SECONDS / 60:.0f} min at most. It touches nothing."
)


def _wanted(lake: Repository) -> Question | None:
    """What the boxes say; None where that cannot be run, which is said."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        what = choose.one_of("Run again", _WHAT, "what")
        runs = choose.one_of("Runs of each way", _RUNS, "runs", "3")
    return _scenario(int(runs)) if what == "scenario" else _last(lake, int(runs))


def _scenario(runs: int) -> Question | None:
    try:
        titles = scenarios()
    except SojournError as error:
        st.html(markup.banner("The lab is not here", str(error), quiet=True))
        return None
    if (asked := st.query_params.get("scenario")) and asked not in titles:
        del st.query_params["scenario"]
    names = sorted(titles, key=lambda name: (name != _FIRST, name))
    name = st.selectbox("Scenario", names, key="scenario", bind="query-params", width=420) or names[0]
    st.html(markup.note(titles[name]))
    return Question(scenario=name, seeds=runs)


def _last(lake: Repository, runs: int) -> Question | None:
    try:
        lake = lake.at_one_instant()
        health = lake.health()
        names = short_names(QueueKey.of(row) for row in health)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
            chosen = choose.queue(names)
            minutes = choose.one_of("The last", _MINUTES, "minutes")
        if chosen is None:
            st.html(markup.note("No queue has been seen yet." if not health else "Choose a queue."))
            return None
        until = max(newest(health).values()).astimezone(UTC).replace(microsecond=0)
        since = until - timedelta(minutes=int(minutes))
        (row,) = lake.past(questions.counted(chosen, since, until))
    except SojournError as error:
        st.html(markup.banner("The lake could not be read", str(error), quiet=True))
        return None
    came = row["messages"] or 0
    now = frame.viewers_now()
    span = f"{clock(since, now, seconds=True)} to {instant(until, now, seconds=True)}"
    if not came:
        st.html(markup.note(f"No message of it was seen from {span}: events make this possible, samples alone do not."))
        return None
    if came > MOST_MESSAGES:
        st.html(
            markup.note(
                f"{count(came)} messages came from {span}, and {count(MOST_MESSAGES)} are run again from here at most: "
                "choose less time, or run `sojourn lab --from-lake`."
            )
        )
        return None
    st.html(markup.note(f"{count(came)} messages came from {span}."))
    return Question(place=chosen, since=since, until=until, seeds=runs)


def _buttons(lake: Repository, question: Question | None, trial: Trial | None) -> None:
    busy = trial is not None and not trial.done
    if st.button("Run", type="primary", disabled=busy or question is None, icon=":material/play_arrow:") and question:
        for name in ("trial", "lab-refused"):
            st.session_state.pop(name, None)
        try:
            st.session_state["trial"] = laboratory(str(lake.root)).start(question)
        except SojournError as error:
            st.session_state["lab-refused"] = str(error)
        st.rerun()


def _running() -> None:
    trial: Trial = st.session_state["trial"]
    if trial.done:
        st.rerun()
    said = f"{trial.ended} of {trial.runs} runs, the last was “{trial.way}”" if trial.runs else "reading what came"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.note(f"Simulating for {duration(max(1, round(trial.seconds)))}: {said} …"), width="content")
        if st.button("Cancel", icon=":material/stop:", key="cancel"):
            trial.cancel()
    st.progress(trial.ended / trial.runs if trial.runs else 0.0)


def _shown(trial: Trial) -> None:
    found, now = trial.found, frame.viewers_now()
    assert found is not None
    st.html(markup.note(lab.sentence(found)))
    ways = lab.rows(found)
    st.html(lists.ways(ways))
    download.csv("lab", ("Way", *lab.COLUMNS), lambda: lab.csv_rows(found))
    over_time, compared = st.columns([1.6, 1], gap="large")
    with over_time:
        said = "The oldest message of the quiet tenants above, what waits below, in one run of each way."
        st.html(markup.section("What each way looked like", f"{said} Shaded: the time that the figures are of."))
        figure = lab_figures.over_time(lab.courses(found), found["target_seconds"], tuple(found["measured"]))
        st.plotly_chart(figure, config=CHART, key="lab course", alt=said)
    with compared:
        said = "The p99 of first-attempt age with its 95 % interval, the best at the top."
        st.html(markup.section("How they compare", said))
        figure = lab_figures.compared(lab.spreads(found), found["nothing"])
        st.plotly_chart(figure, config=CHART, key="lab compared", alt=f"{said} {lab.headline(found)}.")
    st.html(markup.note(f"Simulated in {duration(trial.seconds)}, {instant(now, now)}. Nothing was touched."))
