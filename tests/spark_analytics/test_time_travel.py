"""Time travel: the lake as it was, and a clear word where that is gone."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake.errors import UserError
from lake.store import Lake, LakeError
from lake.tables import PARTIALS
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.vacuum import vacuum
from spark_analytics.retained_versions import retain_versions, retained_versions
from spark_analytics.sql import Engine, SqlSession
from spark_analytics.time_travel import NOT_YET, AsOf, resolve_as_of
from tests.reference.partials import partials_of
from tests.spark_analytics.events import event
from tests.support.deep import CHOSEN
from tests.support.finishing import finish

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
STATE = ("age_state", "tenant_state", "queue_state")
BACKLOG = "SELECT sum(backlog) AS n FROM tenant_backlog_now"


def arrive(lake: Lake, number: int, at: datetime) -> None:
    """One message, in a commit that says that it was made at ``at``."""
    rows = partials_of([event("enqueued", float(number), message_id=f"m{number}")])
    lake.append("partials", pa.Table.from_pylist(rows, PARTIALS.schema))
    finish(lake.root)
    for name in ("partials", *STATE):
        stamp(lake, name, lake.version(name), at)


def stamp(lake: Lake, name: str, version: int, at: datetime) -> None:
    """Let a commit have been made at ``at``: by its own word, as deltalake writes it, and by the file's date."""
    path = log_file(lake, name, version)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = int(at.timestamp() * 1000)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def log_file(lake: Lake, name: str, version: int) -> Path:
    return lake.path(name) / "_delta_log" / f"{version:020}.json"


@pytest.fixture(scope="module")
def grown_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables made at ten o'clock, a message at eleven, another at half past; to be copied."""
    lake = Lake(tmp_path_factory.mktemp("grown") / "lake")
    lake.create()
    for name in ("partials", "marks", "queue_samples", "message_events", *STATE):
        stamp(lake, name, 0, NOW - timedelta(hours=2))
    arrive(lake, 1, NOW - timedelta(hours=1))
    arrive(lake, 2, NOW - timedelta(minutes=30))
    return lake.root


@pytest.fixture
def grown(grown_once: Path, tmp_path: Path) -> Lake:
    """Such a lake for one test alone."""
    return Lake(shutil.copytree(grown_once, tmp_path / "lake"))


@pytest.mark.parametrize(
    ("words", "version"),
    [
        (["-10m"], 2),
        (["-0.5h"], 2),
        (["-45m"], 1),
        (["2026-11-20T11:00:00Z"], 1),
        (["2026-11-20T11:59:59+01:00"], 0),
        (["2026-11-20 10:30"], 0),
        (["-3h"], NOT_YET),
        (["partials@1"], 1),
        (["-10m", "partials@0"], 0),
    ],
)
def test_a_time_or_a_version_finds_the_tables_version(grown: Lake, words: list[str], version: int) -> None:
    then = resolve_as_of(words, grown, NOW)
    assert then is not None
    assert then.version(grown, "partials") == version


def test_a_version_of_one_table_is_an_instant_for_the_others(grown: Lake) -> None:
    then = resolve_as_of(["partials@1"], grown, NOW)
    assert then is not None
    assert then.at == NOW - timedelta(hours=1)
    assert then.version(grown, "marks") == 0
    assert resolve_as_of([], grown, NOW) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-1w"], "is no time"),
        (["-99999999999d"], "before all time"),
        (["-1h", "-2h"], "names 2 times"),
        (["nothing@1"], "there is no table nothing"),
        (["partials@9"], "versions in its log: 0 to 2"),
        (["2026-11-20T12:00:01Z"], "in the future"),
    ],
)
def test_an_instant_that_is_none_is_told(grown: Lake, words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve_as_of(words, grown, NOW)


def test_history_that_was_vacuumed_or_cleaned_up_is_told(grown: Lake) -> None:
    table = grown.ensure("partials")
    table.optimize.compact()
    stamp(grown, "partials", 3, NOW - timedelta(minutes=20))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(UserError, match="version 2 of table partials is gone: 2 of its 2 files were vacuumed away"):
        AsOf(NOW - timedelta(minutes=25)).version(grown, "partials")
    table.create_checkpoint()
    newest = grown.version("partials")
    for version in range(newest):
        log_file(grown, "partials", version).unlink()
    stamp(grown, "partials", newest, NOW - timedelta(minutes=10))
    with pytest.raises(UserError, match="the history of table partials begins at 2026-11-20T11:50:00Z"):
        AsOf(NOW - timedelta(minutes=25)).version(grown, "partials")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.deep
def test_views_are_what_they_were(grown: Lake, spark: SparkSession) -> None:
    for words, backlog in ((["-45m"], 1), (["partials@2"], 2)):
        sql_session = SqlSession(grown, as_of=resolve_as_of(words, grown, NOW))
        assert sql_session.answer(BACKLOG).table().to_pylist() == [{"n": backlog}], words
        sql_session.close()
    sql_session = SqlSession(grown, as_of=resolve_as_of(["-90m"], grown, NOW))
    with pytest.raises(UserError, match="at 2026-11-20T10:30:00Z nothing had finished this lake's state yet"):
        sql_session.answer(BACKLOG)
    assert sql_session.answer("SELECT COUNT(*) AS n FROM partials").table().to_pylist() == [{"n": 0}]
    sql_session.close()
    sql_session = SqlSession(grown, engine=Engine.SPARK)
    assert sql_session.answer(BACKLOG).table().to_pylist() == [{"n": 2}]
    sql_session.close()


ENGINES = (Engine.SPARK, Engine.AUTO)
EVERY_TABLE = ("partials", "marks", "queue_samples", *STATE)


def keep_present(lake: Lake, at: datetime) -> None:
    """What a round of maintenance does at ``at``, with every log cut to the present and no replaced file kept."""
    retained = retain_versions(lake, EVERY_TABLE, timedelta(hours=24), at)
    later = datetime.now(UTC) + timedelta(hours=1)
    for name in EVERY_TABLE:
        lake.ensure(name).create_checkpoint()
        vacuum(lake, name, Retention(replaced_for=timedelta(0)), later, retained, dry_run=False)


def compact_until_only_retained_versions_need_files(lake: Lake, at: datetime) -> None:
    for name in STATE:
        table = lake.ensure(name)
        table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
        table.optimize.compact()
        for version in (table.version() - 1, table.version()):
            stamp(lake, name, version, at)


@pytest.mark.spark
@pytest.mark.slow
def test_retained_versions_are_told_when_logs_and_files_of_then_are_gone(grown: Lake, spark: SparkSession) -> None:
    keep_present(grown, NOW - timedelta(minutes=25))
    for number in range(3, 6):
        arrive(grown, number, NOW - timedelta(minutes=20 - number))
    compact_until_only_retained_versions_need_files(grown, NOW - timedelta(minutes=12))
    keep_present(grown, NOW - timedelta(minutes=11))
    arrive(grown, 6, NOW - timedelta(minutes=5))
    compact_until_only_retained_versions_need_files(grown, NOW - timedelta(minutes=1))
    keep_present(grown, NOW)
    versions = sorted(int(path.stem) for path in log_file(grown, "queue_state", 0).parent.glob("*.json"))
    assert len(versions) < versions[-1] - versions[0], "cut between what is kept"
    instants = [one for words in ("-11m", "-6m") if (one := resolve_as_of([words], grown, NOW))]
    assert [(one.at, one.kept) for one in instants[:1]] * 2 == [(one.at, one.kept) for one in instants], "one answer"
    for words, backlog, at in ((["-20m"], 2, 25), (["-11m"], 5, 11)):
        then = resolve_as_of(words, grown, NOW)
        assert then is not None and then.at == NOW - timedelta(minutes=at), words
        for engine in ENGINES if CHOSEN.deep else ENGINES[:1]:
            sql_session = SqlSession(grown, as_of=then, engine=engine)
            assert sql_session.answer(BACKLOG).table().to_pylist() == [{"n": backlog}], words
            sql_session.close()
    with pytest.raises(UserError, match="the history of table queue_state begins at"):
        then = resolve_as_of(["-26m"], grown, NOW)
        assert then is not None
        then.version(grown, "queue_state")


def test_a_version_of_a_table_that_was_recreated_since_is_told(grown: Lake) -> None:
    retain_versions(grown, ("partials",), timedelta(hours=24), NOW - timedelta(minutes=30))
    [kept] = retained_versions(grown)
    then = AsOf(kept.at, kept=kept.versions)
    assert then.version(grown, "partials") == 2
    stamp(grown, "partials", 2, NOW - timedelta(minutes=20))
    with pytest.raises(UserError, match="table partials was recreated since 2026-11-20T11:30:00Z"):
        then.version(grown, "partials")


def test_versions_are_retained_each_ten_minutes_and_forgotten_after_their_time(grown: Lake) -> None:
    for minutes in range(0, 60, 3):
        retain_versions(grown, ("partials",), timedelta(minutes=30), NOW + timedelta(minutes=minutes))
    told = [(one.at - NOW) // timedelta(minutes=1) for one in retained_versions(grown)]
    assert told == [36, 48]
    retain_versions(grown, ("partials",), timedelta(0), NOW + timedelta(hours=1))
    assert retained_versions(grown) == []


def test_a_file_of_retained_versions_that_is_no_such_file_is_told(grown: Lake) -> None:
    grown.tables.joinpath("retained_versions.json").write_text("[1]")
    with pytest.raises(LakeError, match=r"retained_versions\.json cannot be read"):
        retained_versions(grown)
