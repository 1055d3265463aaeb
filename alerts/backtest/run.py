"""Rules over history: at each instant the evaluation that the alert process runs, over the views as they stood then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from alerts.answer import Identities
from alerts.backtest.history import DeadLetters, History, freshness_table, why_not
from alerts.evaluate import Freshness, RuleMemory, evaluate
from alerts.models import AlertState
from alerts.rules.expression import ENGINE_VIEWS
from alerts.rules.model import Rule
from alerts.rules.prepared import Prepared
from alerts.state import Transition
from lake.definitions import Definitions
from lake.errors import UserError, first_line
from lake.planned import Planned
from lake.reader import Reader, connect
from lake.state import require_finished

#: More instants than these are asked for by mistake.
MOST_INSTANTS = 100_000
#: An alert that fires again so soon after it was over has flapped.
FLAP = timedelta(minutes=10)
#: Reading the history of a view may take so long, a rule at one instant so long (seconds).
READ_SECONDS, RULE_SECONDS = 1800.0, 10.0
_MEMORY_MB = 2000
WEEK = timedelta(days=7)


def newest(root: Path) -> datetime:
    """Data time of the lake at ``root``: its newest event or sample; UserError where it holds none."""
    require_finished(root, ("queue_health_now",))
    with Reader(root, timeout_seconds=READ_SECONDS) as reader:
        [row] = reader.query("SELECT MAX(as_of) AS at FROM queue_health_now").to_pylist()
    if row["at"] is None:
        raise UserError("the lake holds no data", "collect some, or name another lake")
    at: datetime = row["at"]
    return at.astimezone(UTC)


@dataclass(slots=True)
class Episode:
    """One alert's firing, from when it would have paged; ``over`` is None where it still fired at the end."""

    rule: Rule
    fingerprint: str
    labels: Mapping[str, str]
    began: datetime
    over: datetime | None = None
    peak: float | None = None
    flap: bool = False

    def lasted(self, end: datetime) -> timedelta:
        """How long it fired, up to ``end``."""
        return (self.over or end) - self.began


@dataclass(slots=True)
class Outcome:
    """What one rule would have done. ``skipped`` says why it was not run, ``error`` what went wrong first."""

    rule: Rule
    episodes: list[Episode] = field(default_factory=list)
    pending: int = 0
    errors: int = 0
    error: str | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Backtest:
    """All rules over [``begin``, ``end``], evaluated each ``step``; ``stale`` instants had no fresh data.

    ``dead_letters``: when messages began to be dead-lettered, whatever rules said.
    """

    begin: datetime
    end: datetime
    step: timedelta
    instants: int
    stale: int
    outcomes: tuple[Outcome, ...]
    dead_letters: tuple[DeadLetters, ...] = ()

    def leads(self, outcome: Outcome) -> list[timedelta]:
        """How early an alert on the same queue had fired, for each time that its messages began to be dead-lettered.

        It counts if it fired then, or had been over for no longer than :data:`FLAP`; times that it missed are left out.
        """
        found = []
        for dead in self.dead_letters:
            began = [
                one.began
                for one in outcome.episodes
                if one.labels.get("queue") == dead.queue
                and one.labels.get("broker", dead.broker) == dead.broker
                and one.began <= dead.at
                and (one.over is None or one.over >= dead.at - FLAP)
            ]
            if began:
                found.append(dead.at - max(began))
        return found

    def pages_a_week(self, outcome: Outcome) -> float:
        """How often it would have begun to fire in a week like this."""
        span = self.end - self.begin
        return len(outcome.episodes) * (WEEK / span) if span else 0.0


def backtest(
    rules: Sequence[Rule],
    root: Path,
    begin: datetime,
    end: datetime,
    step: timedelta,
    *,
    stale_after: timedelta,
    target_seconds: float | None = None,
    unused: Callable[[Rule], str | None] = lambda _rule: None,
    progress: Callable[[str, float], None] = lambda _what, _share: None,
) -> Backtest:
    """Run ``rules`` over the lake at ``root`` as it stood each ``step`` from ``begin`` to ``end``.

    ``target_seconds`` is what ``:target_seconds`` means in expressions; None = the lake's own. ``unused`` says why a
    rule is not evaluated by those who run it, None where it is.

    UserError for a time that has too many instants or rows.
    """
    if step <= timedelta(0) or begin >= end:
        raise UserError("there is nothing between the two instants", "give --from before --to, and a step above 0")
    instants = (end - begin) // step + 1
    if instants > MOST_INSTANTS:
        raise UserError(f"{instants:,} instants are more than {MOST_INSTANTS:,}", "choose a longer --step")
    outcomes = {rule.key: Outcome(rule, skipped=why_not(rule.tables) or unused(rule)) for rule in rules}
    running = [rule for rule in rules if outcomes[rule.key].skipped is None]
    definitions = Definitions.load(root)
    told = definitions if target_seconds is None else definitions.model_copy(update={"target_seconds": target_seconds})
    tables = {name for rule in running for name in rule.tables}
    with (
        TemporaryDirectory(prefix="sojourn-backtest-") as spill,
        Reader(root, timeout_seconds=READ_SECONDS, memory_mb=_MEMORY_MB, spill=Path(spill)) as reader,
    ):
        history = History(reader.query, tables, begin, end, definitions, lambda name: progress(f"reading {name}", 0.0))
    play = _Play(running, outcomes, told)
    stale = 0
    try:
        for number in range(instants):
            instant = begin + number * step
            stale += play.at(instant, history, stale_after)
            progress(f"{instant:%Y-%m-%d %H:%M}", (number + 1) / instants)
    finally:
        play.close()
    dead = tuple(history.dead_letters(begin, end))
    return Backtest(begin, end, step, instants, stale, tuple(outcomes.values()), dead)


class _Play:
    """The rules' memories while history goes by."""

    def __init__(
        self, rules: Sequence[Rule], outcomes: Mapping[tuple[str, str], Outcome], definitions: Definitions
    ) -> None:
        self._rules = rules
        self._outcomes = outcomes
        self._memories = {rule.key: RuleMemory() for rule in rules}
        self._identities = {rule.key: Identities() for rule in rules}
        self._firing: dict[tuple[tuple[str, str], str], Episode] = {}
        self._last: dict[tuple[tuple[str, str], str], datetime] = {}
        self._database = Planned(connect(_MEMORY_MB))
        self._deadline: float | None = None
        self._ended = threading.Event()
        self._statements = {
            expr: Prepared(expr, rule.tables, definitions)
            for rule in rules
            for expr in (rule.expr, rule.resolve)
            if expr is not None
        }
        self._watcher = threading.Thread(target=self._watch, name="backtest-watch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Let go of everything."""
        self._ended.set()
        self._watcher.join()
        self._database.close()

    def at(self, instant: datetime, history: History, stale_after: timedelta) -> bool:
        """Evaluate every rule as of ``instant``; whether there was no fresh data."""
        tables, reached = history.at(instant)
        newest = max((to.at for to in reached.values()), default=None)
        tables["tenant_groups"] = ENGINE_VIEWS["tenant_groups"].empty_table()
        tables["data_freshness"] = known = freshness_table(reached, instant, stale_after)
        stale = all(known["stale"].to_pylist())
        freshness = Freshness(newest, newest, stale)
        for name, rows in tables.items():
            self._database.put(name, rows)

        def query(expr: str) -> pa.Table:
            return self._answer(self._statements[expr].at(newest or instant))

        for rule in self._rules:
            outcome = evaluate(rule, self._memories[rule.key], query, freshness, instant, self._identities[rule.key])
            self._memories[rule.key] = outcome.memory
            self._note(rule, instant, outcome.transitions, outcome.evaluation.error)
        return stale

    def _answer(self, sql: str) -> pa.Table:
        self._deadline = time.monotonic() + RULE_SECONDS
        try:
            return self._database.answer(sql)
        except duckdb.InterruptException:
            raise UserError(f"it took longer than {RULE_SECONDS:g} s", "narrow it") from None
        except duckdb.Error as error:
            raise UserError(f"the query failed: {first_line(error)}", "correct the SQL") from error
        finally:
            self._deadline = None

    def _watch(self) -> None:
        """End what takes too long; one thread for all statements, as starting one for each costs more than most."""
        while not self._ended.wait(RULE_SECONDS / 20):
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                self._database.interrupt()

    def _note(self, rule: Rule, instant: datetime, transitions: Sequence[Transition], error: str | None) -> None:
        outcome = self._outcomes[rule.key]
        if error is not None:
            outcome.errors += 1
            outcome.error = outcome.error or error
        for one in transitions:
            key = (rule.key, one.alert.fingerprint)
            if one.to_state is AlertState.PENDING:
                outcome.pending += 1
            if one.to_state.is_firing and not one.from_state.is_firing:
                flap = key in self._last and instant - self._last[key] <= FLAP
                episode = Episode(rule, one.alert.fingerprint, one.alert.labels, instant, flap=flap)
                self._firing[key] = episode
                outcome.episodes.append(episode)
            elif one.to_state is AlertState.INACTIVE and key in self._firing:
                self._firing.pop(key).over = instant
                self._last[key] = instant
        for tracked in self._memories[rule.key].alerts.values():
            held = self._firing.get((rule.key, tracked.alert.fingerprint))
            if held is not None and tracked.alert.value is not None:
                held.peak = max(held.peak if held.peak is not None else tracked.alert.value, tracked.alert.value)
