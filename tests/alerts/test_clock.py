"""A wall clock that is set delays and hastens nothing; an event from the future moves no data time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.answer import Identities
from alerts.evaluate import Freshness, RuleMemory, evaluate, is_due
from alerts.freshness import FreshnessProbe
from alerts.models import AlertState
from alerts.rules.model import NoData, Rule
from alerts.store import Outbox, OutboxMessage, States, connect
from alerts.store.database import transaction
from alerts.store.translate import translate
from lake.clock import TOLERANCE, Clock, age
from lake.store import Lake
from tests.alerts.helpers import GoldLake
from tests.alerts.test_engine import DEAD, World
from tests.support.deep import examples

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
ZERO = timedelta(0)
STEPS = pytest.mark.parametrize("step", [-HOUR, HOUR, ZERO], ids=["set back", "set forward", "not set"])


@dataclass
class Machine:
    """A machine whose wall clock somebody sets; ``broker`` is a clock elsewhere, which is right."""

    seconds: float = 1000.0
    set_by: timedelta = ZERO
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.wall, lambda: self.seconds)

    def broker(self) -> datetime:
        return START + timedelta(seconds=self.seconds - 1000)

    def wall(self) -> datetime:
        return self.broker() + self.set_by


def test_a_clock_that_is_set_runs_on() -> None:
    machine = Machine()
    machine.seconds += 10
    assert (machine.clock.now(), machine.clock.ahead) == (START + 10 * SECOND, ZERO)
    machine.set_by = -HOUR
    assert (machine.clock.now(), machine.clock.wall()) == (START + 10 * SECOND, START + 10 * SECOND - HOUR)
    assert machine.clock.ahead == -HOUR


@given(st.integers(-7200, 7200), st.integers(-7200, 7200))
def test_the_age_of_an_event_is_by_one_of_both_clocks_and_negative_only_if_both_say_so(old: int, ahead: int) -> None:
    found = age(START - old * SECOND, START, ahead * SECOND)
    ages = (old * SECOND, (old + ahead) * SECOND)
    assert found in ages
    assert (found < -TOLERANCE) == all(known < -TOLERANCE for known in ages)


RULE = Rule("g", "Behind", "…", hold=timedelta(seconds=30), tables=frozenset({"queue_health_now"}))


class Lakeless:
    """A probe over rows that a test gives, as ``stage_newest`` has them."""

    def __init__(self, lake: Lake) -> None:
        self.probe = FreshnessProbe(lake, timedelta(seconds=60))
        self.rows: list[dict[str, object]] = []

    def read(self, now: datetime, ahead: timedelta, **as_of: datetime | None) -> tuple[Freshness, dict[str, bool]]:
        rows = [{"broker": name, "as_of": at} for name, at in as_of.items()]
        instants = [(name, pa.timestamp("us", "UTC")) for name in ("as_of", "sampled_at")]
        schema = pa.schema([("broker", pa.string()), *instants, ("sample_interval_seconds", pa.float64())])

        def query(sql: str) -> pa.Table:
            return pa.table({"complete": [True]}) if "complete" in sql else pa.Table.from_pylist(rows, schema=schema)

        freshness, table = self.probe.read(query, now, ahead)
        return freshness, {row["broker"]: row["stale"] for row in table.to_pylist()}


@pytest.fixture
def lakeless(tmp_path: Path) -> Lakeless:
    lake = Lake(tmp_path / "lake")
    lake.create()
    return Lakeless(lake)


@STEPS
@pytest.mark.parametrize("wrong_at_first", [False, True], ids=["was right", "is put right"])
def test_for_is_counted_in_spite_of_a_clock_that_is_set(
    lakeless: Lakeless, step: timedelta, wrong_at_first: bool
) -> None:
    machine = Machine(set_by=-step if wrong_at_first else ZERO)
    memory, fired_at = RuleMemory(), None
    for second in range(60):
        machine.seconds = 1000 + second
        if second == 10:
            machine.set_by += step
        now = machine.clock.now()
        freshness, _ = lakeless.read(now, machine.clock.ahead, nats=machine.broker() - SECOND)
        rows = pa.table({"queue": ["orders"], "value": [1]})
        if freshness.stale:
            assert wrong_at_first and second < 10, "data that is a second old is fresh"
            continue
        memory = evaluate(RULE, memory, lambda _, rows=rows: rows, freshness, now, Identities()).memory
        (tracked,) = memory.alerts.values()
        if fired_at is None and tracked.alert.state is AlertState.FIRING:
            fired_at = second
    assert fired_at == (40 if wrong_at_first and step != ZERO else 30), "it counts from when its data could be trusted"


@STEPS
def test_an_interval_is_counted_in_spite_of_a_clock_that_is_set(step: timedelta) -> None:
    machine, due = Machine(), []
    rule, last = replace(RULE, interval=timedelta(seconds=10)), None
    for second in range(41):
        machine.seconds = 1000 + second
        machine.set_by = step if second >= 15 else ZERO
        if is_due(rule, last, machine.clock.now()):
            due.append(second)
            last = machine.clock.now()
    assert due == [0, 10, 20, 30, 40]


def test_an_event_dated_a_day_ahead_makes_no_old_data_fresh(lakeless: Lakeless) -> None:
    future = START + DAY
    freshness, stale = lakeless.read(START, ZERO, nats=future, kafka=START - 2 * HOUR)
    assert (freshness.stale, stale) == (True, {"nats": True, "kafka": True})
    assert freshness.watermark == freshness.as_of == START - 2 * HOUR
    freshness, stale = lakeless.read(START, ZERO, nats=future, kafka=START - SECOND)
    assert (freshness.stale, stale) == (False, {"nats": True, "kafka": False})
    assert freshness.watermark == START - SECOND
    freshness, _ = lakeless.read(START, ZERO, nats=future)
    assert (freshness.stale, freshness.watermark) == (True, None)


def test_an_event_a_little_ahead_is_of_now(lakeless: Lakeless) -> None:
    freshness, stale = lakeless.read(START, ZERO, nats=START + TOLERANCE)
    assert (freshness.stale, stale, freshness.reached) == (False, {"nats": False}, START)
    freshness, stale = lakeless.read(START, ZERO, nats=START + TOLERANCE + SECOND / 10)
    assert (freshness.stale, stale) == (True, {"nats": True})


def test_data_that_stands_still_grows_stale_whatever_is_set(lakeless: Lakeless) -> None:
    for second in range(0, 4000, 10):
        now = START + second * SECOND
        freshness, _ = lakeless.read(now, -HOUR if second >= 20 else ZERO, nats=START)
        assert freshness.stale == (second > 60)


@pytest.mark.parametrize("no_data", list(NoData))
def test_stale_time_counts_towards_for_no_more_than_downtime_does(no_data: NoData) -> None:
    rule = replace(RULE, no_data=no_data)
    rows = pa.table({"queue": ["orders"], "value": [1]})
    memory = RuleMemory()

    def at(second: int, stale_since: int | None = None) -> list[AlertState]:
        nonlocal memory
        reach = START + (second if stale_since is None else stale_since) * SECOND
        freshness = Freshness(reach, reach, stale=stale_since is not None)
        memory = evaluate(rule, memory, lambda _: rows, freshness, START + second * SECOND, Identities()).memory
        return [t.alert.state for t in memory.alerts.values() if "no_data" not in t.alert.labels]

    assert at(0) == at(10) == [AlertState.PENDING]
    for second in range(71, 600, 50):
        assert at(second, stale_since=10) in ([], [AlertState.PENDING])
    assert at(600) == [AlertState.PENDING]
    begun = 600 if no_data is NoData.OK else 590
    assert at(begun + 29) == [AlertState.PENDING]
    assert at(begun + 31) == [AlertState.FIRING]


@pytest.mark.parametrize("step", [-HOUR, HOUR, ZERO][: examples(1, 3)])
def test_a_restart_takes_over_what_was_remembered_before_the_clock_was_set(gold: GoldLake, step: timedelta) -> None:
    rule = replace(DEAD, hold=timedelta(seconds=30))
    world = World(gold, [rule])
    for second in range(21):
        at = START + second * SECOND
        if second % 5 == 0:
            gold.partial(at=at + step, dead_lettered=1)
            world.engine.round(at, new_data=True, everything=True, ahead=step)
    back = START + 21 * SECOND + step
    assert abs(translate(world.db, back) - step) < SECOND
    assert translate(world.db, back) == ZERO, "once"
    world.start()
    fired = None
    for second in range(21, 45):
        gold.partial(at=START + second * SECOND + step, dead_lettered=1)
        if world.round(START + second * SECOND + step)["Dead"] == [AlertState.FIRING]:
            fired = second
            break
    assert fired in (30, 31, 32), "the hold is neither lost nor lengthened by more than the downtime"


def test_a_clock_set_back_while_nobody_ran_delays_no_page(tmp_path: Path) -> None:
    db = connect(tmp_path / "alerts.sqlite")
    with transaction(db):
        OutboxMessage("msg_1", "pager", "g", "firing", 1, "{}", START, None).insert(db)
    States(db).commit(START + SECOND, None)
    now = START - HOUR
    assert translate(db, now) == -HOUR - SECOND
    assert [message.id for message in Outbox(db).due(now, "pager")] == ["msg_1"]


@STEPS
def test_a_clock_set_while_nobody_ran_is_no_time_that_passed(tmp_path: Path, step: timedelta) -> None:
    db, machine = connect(tmp_path / "alerts.sqlite"), Machine()
    before = machine.clock
    translate(db, before.now(), before.epoch)
    with transaction(db):
        OutboxMessage("msg_1", "pager", "g", "firing", 1, "{}", before.now() + 5 * SECOND, None).insert(db)
    States(db).commit(before.now(), None)
    machine.seconds, machine.set_by = machine.seconds + 3, step
    after = Clock(machine.wall, lambda: machine.seconds)
    assert translate(db, after.now(), after.epoch) == step
    assert translate(db, after.now(), after.epoch) == ZERO, "once"
    assert not Outbox(db).due(after.now(), "pager"), "three seconds have passed, not an hour"
    machine.seconds += 2
    assert [message.id for message in Outbox(db).due(after.now(), "pager")] == ["msg_1"]


def test_after_a_boot_the_wall_clock_alone_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db, machine = connect(tmp_path / "alerts.sqlite"), Machine()
    for boot, step in (("one", ZERO), ("two", HOUR), ("", 2 * HOUR), ("two", 3 * HOUR)):
        monkeypatch.setattr("lake.clock._boot", partial({0: boot}.get, 0))
        machine.set_by = step
        clock = Clock(machine.wall, lambda: machine.seconds)
        assert translate(db, clock.now(), clock.epoch) == ZERO, "an hour may have passed"


def test_people_read_the_wall_clock(gold: GoldLake) -> None:
    world = World(gold, [DEAD])
    gold.partial(at=START - HOUR, dead_lettered=1)
    world.engine.round(START, new_data=True, everything=True, ahead=-HOUR)
    row: tuple[str, int] = world.db.execute("SELECT body, created_at FROM outbox").fetchone()
    assert '"startsAt":"2026-01-01T11:00:00.000000Z"' in row[0]
    shown = world.db.execute("SELECT at FROM transitions").fetchone()[0]
    assert abs(shown - (row[1] - 3_600_000_000)) < 60_000_000
