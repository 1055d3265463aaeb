"""Files of lifecycle events reach bronze once, whatever happens on the way; what is no event is kept apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors import replay as module
from collectors.replay import Progress, ReplayReport, replay
from collectors.validate import RAW_LIMIT
from lake.errors import UserError
from lake.files import only_one
from lake.store import Lake
from lake.tables import MESSAGE_EVENTS

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
REPOSITORY = Path(__file__).parents[2]


def event(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A valid event; each ``number`` gives another one."""
    return {
        "event_type": "enqueued",
        "broker": "nats",
        "queue": "orders",
        "message_id": f"m{number}",
        "occurred_at": (START + timedelta(milliseconds=number)).isoformat(),
        **changes,
    }


def write(path: Path, records: list[Any]) -> Path:
    """The records as JSONL; a string or bytes stand as they are."""
    lines = [r if isinstance(r, bytes) else (r if isinstance(r, str) else json.dumps(r)).encode() for r in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def bronze(root: Path, table: str = "message_events") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Lake(root).read(table).to_pylist()
    return rows


def counts(report: ReplayReport) -> tuple[int, int, int, int]:
    return report.read, report.written, report.duplicates, report.rejected


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_a_record_with_every_column_arrives_as_it_was(tmp_path: Path, root: Path) -> None:
    full = {
        "event_id": "e1",
        "event_type": "failed",
        "broker": "redis",
        "queue": "mail",
        "subscriber": "billing",
        "tenant": "acme",
        "message_id": "m1",
        "attempt": 2,
        "enqueued_at": "2026-03-01T11:59:00.123456+00:00",
        "occurred_at": "2026-03-01T13:00:00.5+01:00",
        "processing_seconds": 0.25,
        "priority": -3,
        "worker": "w1",
        "trace_id": "t1",
        "reason": "boom",
        "clock": "broker",
        "source": "tap",
        "ingested_at": "2026-03-02T00:00:00Z",
        "ingest_date": "1999-01-01",
    }
    report = replay([write(tmp_path / "log.jsonl", [full])], root)
    assert report.ignored == ()
    assert bronze(root) == [
        full
        | {
            "enqueued_at": datetime(2026, 3, 1, 11, 59, 0, 123456, tzinfo=UTC),
            "occurred_at": datetime(2026, 3, 1, 12, 0, 0, 500000, tzinfo=UTC),
            "ingested_at": datetime(2026, 3, 2, tzinfo=UTC),
            "ingest_date": date(2026, 3, 2),
        }
    ]


def test_what_a_record_leaves_out_is_filled_in(tmp_path: Path, root: Path) -> None:
    moment = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    replay([write(tmp_path / "log.jsonl", [event(tenant="", message_id=17)])], root, now=lambda: moment)
    [row] = bronze(root)
    assert len(row.pop("event_id")) == 32
    assert row == dict.fromkeys(MESSAGE_EVENTS.schema.names[1:]) | {
        "event_type": "enqueued",
        "broker": "nats",
        "queue": "orders",
        "message_id": "17",
        "occurred_at": START,
        "clock": "producer",
        "source": "replay:log.jsonl",
        "ingested_at": moment,
        "ingest_date": moment.date(),
    }


@pytest.mark.parametrize(
    "written",
    ["2026-03-01T12:00:00", "2026-03-01 12:00:00Z", "2026-03-01T14:00:00+02:00", 1772366400, 1772366400.0],
)
def test_a_timestamp_is_iso_or_seconds_since_1970_and_naive_means_utc(
    tmp_path: Path, root: Path, written: object
) -> None:
    replay([write(tmp_path / "log.jsonl", [event(occurred_at=written)])], root)
    assert bronze(root)[0]["occurred_at"] == START


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_equal_ids_are_written_once_within_a_file_across_files_and_across_runs(
    tmp_path: Path, root: Path, kind: str
) -> None:
    records = [event(number) for number in range(10)]
    if kind == "jsonl":
        first = write(tmp_path / "a.jsonl", [*records[:6], *records[:3]])
        second = write(tmp_path / "b.jsonl", records[4:])
    else:
        first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
        pq.write_table(pa.Table.from_pylist([*records[:6], *records[:3]]), first)
        pq.write_table(pa.Table.from_pylist(records[4:]), second)
    assert counts(replay([first, second], root)) == (15, 10, 5, 0)
    assert counts(replay([second, first], root)) == (15, 0, 15, 0)
    assert sorted(row["message_id"] for row in bronze(root)) == sorted(f"m{number}" for number in range(10))


def test_the_same_event_has_the_same_id_from_jsonl_and_from_parquet(tmp_path: Path, root: Path) -> None:
    records = [event(n, attempt=n or None, subscriber="s" if n % 2 else None) for n in range(5)]
    typed = [r | {"occurred_at": datetime.fromisoformat(r["occurred_at"])} for r in records]
    pq.write_table(pa.Table.from_pylist(typed), tmp_path / "a.parquet")
    assert counts(replay([write(tmp_path / "a.jsonl", records)], root)) == (5, 5, 0, 0)
    assert counts(replay([tmp_path / "a.parquet"], root)) == (5, 0, 5, 0)


def test_two_events_that_differ_in_one_part_of_the_id_are_two_events(tmp_path: Path, root: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"broker": "redis"},
        {"queue": "mail"},
        {"subscriber": "s"},
        {"message_id": "other"},
        {"event_type": "expired"},
        {"attempt": 1},
        {"occurred_at": "2026-03-01T12:00:00.000001Z"},
    ]
    report = replay([write(tmp_path / "a.jsonl", [event(**change) for change in changes])], root)
    assert report.written == len(changes)


BAD: dict[str, tuple[Any, str]] = {
    "no json": ('{"event_type":', "not a JSON object"),
    "a list": ("[1, 2]", "object"),
    "not utf-8": (b'{"queue": "\xff"}', "not a JSON object"),
    "a lone surrogate": ('{"queue": "\\ud800"}', "not a JSON object"),
    "no queue": ({k: v for k, v in event().items() if k != "queue"}, "queue: Field required"),
    "an empty broker": (event(broker=""), "broker: String should have at least 1 character"),
    "an unknown type": (event(event_type="vanished"), "event_type: one of enqueued, "),
    "no time": (event(occurred_at=None), "occurred_at: a timestamp is"),
    "words for a time": (event(occurred_at="yesterday"), "occurred_at: a timestamp is an ISO 8601 string"),
    "milliseconds": (event(occurred_at=1772366400000), "occurred_at"),
    "a time that is not finite": (json.dumps(event(occurred_at=float("nan"))), "occurred_at"),
    "before 1970": (event(enqueued_at="1969-12-31T23:59:59Z"), "enqueued_at: a timestamp lies between"),
    "a negative attempt": (
        event(attempt=-1),
        "attempt: attempts are numbered from 1; leave out the number that nobody",
    ),
    "an attempt before the first": (event(attempt=0), "attempt: attempts are numbered from 1"),
    "too large an attempt": (event(attempt=2**31), "attempt: Input should be less than"),
    "an infinite duration": (json.dumps(event(processing_seconds=float("inf"))), "processing_seconds"),
    "a negative duration": (event(processing_seconds=-0.1), "processing_seconds"),
    "a clock of its own": (event(clock="sundial"), "clock: Input should be 'broker' or 'producer'"),
    "too long a line": (json.dumps(event(reason="x" * (1024 * 1024))), "longer than 1024 KiB"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_kept_with_its_reason_and_the_others_arrive(tmp_path: Path, root: Path, name: str) -> None:
    bad, reason = BAD[name]
    path = write(tmp_path / "log.jsonl", [event(1), bad, "", event(2)])
    assert counts(replay([path], root)) == (3, 2, 0, 1)
    [rejected] = bronze(root, "rejected_records")
    assert reason in rejected["reason"]
    assert (rejected["source"], rejected["count"]) == ("replay:log.jsonl", 1)
    raw = bad if isinstance(bad, bytes) else (bad if isinstance(bad, str) else json.dumps(bad)).encode()
    assert rejected["raw"] == raw[:RAW_LIMIT].decode("utf-8", "replace")


def test_a_repeated_replay_rejects_nothing_twice_and_a_grown_file_continues(tmp_path: Path, root: Path) -> None:
    records: list[Any] = [event(1), "bad 1", event(2), "bad 2"]
    path = write(tmp_path / "log.jsonl", records)
    replay([path, path], root)
    assert replay([path], root).rejected == 2
    write(path, [*records, "bad 3", event(3)])
    assert counts(replay([path], root)) == (6, 1, 2, 3)
    assert sorted(row["raw"] for row in bronze(root, "rejected_records")) == ["bad 1", "bad 2", "bad 3"]


def test_of_very_many_equal_faults_the_first_are_kept_and_the_others_counted(tmp_path: Path, root: Path) -> None:
    path = write(tmp_path / "log.jsonl", [event(), *(f"bad {number}" for number in range(1000))])
    assert replay([path], root).rejected == 1000
    rows = bronze(root, "rejected_records")
    assert len(rows) == module.EXAMPLES + 1
    assert sum(row["count"] for row in rows) == 1000


def test_fields_that_are_no_columns_are_named_in_the_report(tmp_path: Path, root: Path) -> None:
    report = replay([write(tmp_path / "log.jsonl", [event(colour="red", enqueue_at=1)])], root)
    assert counts(report) == (1, 1, 0, 0)
    assert report.ignored == ("colour", "enqueue_at")
    assert str(report).endswith(": 1 written; fields that are no columns were ignored: colour, enqueue_at")


def test_parquet_columns_of_many_types_are_understood(tmp_path: Path, root: Path) -> None:
    zone = timezone(timedelta(hours=2))
    moments = [START, START + timedelta(seconds=1)]
    base = {
        "event_type": pa.array(["received", "completed"]).dictionary_encode(),
        "broker": pa.array(["nats"] * 2, pa.large_string()),
        "queue": pa.array(["q"] * 2),
        "message_id": pa.array(["1", "2"]),
        "tenant": pa.nulls(2),
        "attempt": pa.array([1, 2], pa.uint8()),
        "processing_seconds": pa.array([1, None], pa.int64()),
        "colour": pa.array(["red"] * 2),
    }
    variants = {
        "ns": pa.array(moments, pa.timestamp("ns", tz="UTC")),
        "naive": pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("ms")),
        "zone": pa.array([m.astimezone(zone) for m in moments], pa.timestamp("us", tz="Europe/Berlin")),
        "text": pa.array([m.isoformat() for m in moments]),
        "epoch": pa.array([m.timestamp() for m in moments]),
    }
    for name, column in variants.items():
        pq.write_table(pa.table(base | {"occurred_at": column}), tmp_path / f"{name}.parquet")
        report = replay([tmp_path / f"{name}.parquet"], root / name)
        assert report.ignored == ("colour",)
        rows = sorted(bronze(root / name), key=lambda row: str(row["message_id"]))
        assert [(r["message_id"], r["attempt"], r["processing_seconds"], r["occurred_at"]) for r in rows] == [
            ("1", 1, 1.0, moments[0]),
            ("2", 2, None, moments[1]),
        ], name


def test_bad_rows_of_parquet_are_kept_with_their_reasons(tmp_path: Path, root: Path) -> None:
    rows = [
        event(1, attempt=1),
        event(2, attempt=-1),
        event(3, event_type="vanished"),
        event(4, queue=None),
        event(5, processing_seconds=float("nan")),
        event(6, attempt=6, tenant=""),
    ]
    typed = [row | {"occurred_at": datetime.fromisoformat(row["occurred_at"])} for row in rows]
    names = [*event(), "attempt", "processing_seconds", "tenant"]
    pq.write_table(pa.Table.from_pylist([{n: r.get(n) for n in names} for r in typed]), tmp_path / "log.parquet")
    assert counts(replay([tmp_path / "log.parquet"], root)) == (6, 2, 0, 4)
    assert {row["message_id"]: row["tenant"] for row in bronze(root)} == {"m1": None, "m6": None}
    rejected = bronze(root, "rejected_records")
    assert [row["reason"].split(":")[0] for row in rejected] == ["attempt", "event_type", "queue", "processing_seconds"]
    assert json.loads(rejected[1]["raw"])["message_id"] == "m3"


def _array(path: Path) -> None:
    path.write_text(json.dumps([event()]))


def _cut(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([event()]), path)
    path.write_bytes(path.read_bytes()[:-5])


USER_ERRORS: dict[str, tuple[str, Any, str]] = {
    "missing": ("none.jsonl", lambda path: None, "there is no file"),
    "a folder": ("folder.jsonl", Path.mkdir, "is a folder"),
    "another kind": ("log.csv", lambda path: path.write_text("a,b\n"), "neither JSONL nor Parquet"),
    "empty": ("log.jsonl", Path.touch, "is empty"),
    "blank": ("log.jsonl", lambda path: path.write_text("\n \n"), "nothing but blank lines"),
    "text": ("log.jsonl", lambda path: path.write_text("Dear diary,\ntoday\n"), "is not JSON Lines"),
    "an array": ("log.jsonl", _array, "is a JSON array"),
    "no parquet": ("log.parquet", lambda path: path.write_text("{}"), "not a readable Parquet file"),
    "a cut parquet": ("log.parquet", _cut, "not a readable Parquet file"),
    "no rows": ("log.parquet", lambda p: pq.write_table(MESSAGE_EVENTS.schema.empty_table(), p), "holds no rows"),
    "columns": ("log.parquet", lambda p: pq.write_table(pa.table({"queue": ["q"]}), p), "lacks the columns event_type"),
}


@pytest.mark.parametrize("name", USER_ERRORS)
def test_a_wrong_file_is_one_clear_line_and_nothing_is_written(tmp_path: Path, root: Path, name: str) -> None:
    file_name, make, text = USER_ERRORS[name]
    make(tmp_path / file_name)
    good = write(tmp_path / "good.jsonl", [event()])
    with pytest.raises(UserError, match=text) as caught:
        replay([good, tmp_path / file_name], root)
    assert "\n" not in str(caught.value)
    assert not root.exists()


def test_two_replays_into_one_lake_at_once_are_refused(tmp_path: Path, root: Path) -> None:
    path = write(tmp_path / "log.jsonl", [event()])
    with only_one(Lake(root).state_path("replay.lock"), "x"), pytest.raises(UserError, match="already running"):
        replay([path], root)
    assert replay([path], root).written == 1


def test_progress_tells_how_far_the_files_are_read(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 10)
    seen: list[Progress] = []
    paths = [write(tmp_path / f"{name}.jsonl", [event(n) for n in range(25)]) for name in "ab"]
    replay(paths, root, progress=seen.append)
    assert [step.read for step in seen] == [10, 20, 25, 35, 45, 50]
    assert [step.share for step in seen] == sorted(step.share for step in seen)
    assert (seen[2].share, seen[-1].share) == (0.5, 1.0)
    assert (seen[-1].written, seen[-1].duplicates) == (25, 25)


KILLED = """
import os, signal, sys
from pathlib import Path
from collectors import replay as module
from lake.store import Lake

after, where, path, root = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
module.BATCH_ROWS = 50
calls = 0
append = Lake.append

def killing(self, name, rows, **options):
    global calls
    calls += name == "message_events"
    if calls == after and where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = append(self, name, rows, **options)
    if calls == after and where == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result

Lake.append = killing
module.replay([path], root)
"""


@pytest.mark.parametrize(("after", "where"), [(1, "before"), (2, "after"), (4, "before")])
def test_a_replay_killed_in_the_middle_and_repeated_neither_loses_nor_doubles(
    tmp_path: Path, root: Path, after: int, where: str
) -> None:
    records: list[Any] = [f"bad {n}" if n % 10 == 3 else event(n) for n in range(200)]
    path = write(tmp_path / "log.jsonl", records)
    command = [sys.executable, "-c", KILLED, str(after), where, str(path), str(root)]
    killed = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    already = len(bronze(root))
    assert already < 180
    report = replay([path], root)
    assert (report.written, report.duplicates) == (180 - already, already)
    ids = [row["message_id"] for row in bronze(root)]
    assert len(ids) == len(set(ids)) == 180
    assert sorted(row["raw"] for row in bronze(root, "rejected_records")) == sorted(
        r for r in records if type(r) is str
    )


def test_texts_that_are_no_unicode_are_kept_apart_in_jsonl_and_parquet(tmp_path: Path, root: Path) -> None:
    lines = [event(1), '{"event_type": "enqueued", "broker": "nats", "queue": "\\ud800", "message_id": "m", ...']
    lines += [json.dumps(event(2, queue="q\ud800")), json.dumps(event(3)).encode().replace(b"orders", b"\xed\xa0\x80")]
    report = replay([write(tmp_path / "a.jsonl", [*lines, event(4, **{"k\ud800": "x"}), event(5)])], root)
    assert (report.read, report.rejected) == (6, 6 - report.written) and report.written >= 2
    reasons = {row["reason"] for row in bronze(root, "rejected_records")}
    assert len(reasons) >= 1 and all("\ud800" not in row["queue"] for row in bronze(root))
    rows = pa.Table.from_pylist([event(number, event_id=str(number)) for number in range(10, 15)])
    texts = {
        "queue": pa.array([b"a", b"\xff\xfe", b"b", b"c", b"d"], pa.binary()).view(pa.string()),
        "event_id": pa.array([b"1", b"2", b"\xed\xa0\x80", b"4", b"5"], pa.binary()).view(pa.string()),
    }
    for name, column in texts.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    pq.write_table(rows, tmp_path / "b.parquet")
    for again in range(2):
        told = counts(replay([tmp_path / "b.parquet"], root))
        assert told == ((5, 3, 0, 2) if not again else (5, 0, 3, 2))
    assert {row["message_id"] for row in bronze(root)} >= {"m10", "m13", "m14"}
    raws = [row["raw"] for row in bronze(root, "rejected_records") if row["reason"] == "a text is not UTF-8"]
    assert len(raws) == 2 and all("\ufffd" in raw for raw in raws)


def test_an_event_that_cannot_be_written_keeps_no_other_out_and_is_refused_once(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Lake.append

    def poisoned(lake: Lake, name: str, rows: pa.Table, **numbered: Any) -> bool:
        if name == "message_events" and "poison" in str(rows.to_pylist()):
            raise ZeroDivisionError("nobody foresaw this")
        return append(lake, name, rows, **numbered)

    monkeypatch.setattr(Lake, "append", poisoned)
    path = write(tmp_path / "a.jsonl", [event(number, queue="poison" if number == 3 else "q") for number in range(8)])
    assert counts(replay([path], root)) == (8, 7, 0, 1)
    assert counts(replay([path], root)) == (8, 0, 7, 1)
    (kept,) = bronze(root, "rejected_records")
    assert "ZeroDivisionError" in kept["reason"] and "poison" in kept["raw"]
