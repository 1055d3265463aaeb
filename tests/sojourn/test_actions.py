"""``sojourn actions`` and ``sojourn limits``: what was decided, as sentences for people and as rows for programs."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake.store import Lake
from lake.tables import ACTIONS
from sojourn.cli.main import run

NOW = datetime.now(UTC).replace(microsecond=0)


def row(decision: str, ago: float, before: float | None, after: float | None, **changes: Any) -> dict[str, Any]:
    at = NOW - timedelta(seconds=ago)
    base: dict[str, Any] = {
        "at": at, "action_id": "a1", "idempotency_key": f"{decision}/{ago}", "rule": "NoisyTenant",
        "policy": "throttle-noisy", "actuator": "limits_api", "broker": "nats", "queue": "ORDERS", "tenant": "grove",
        "decision": decision, "dry_run": False, "before": before, "after": after,
        "valid_until": at + timedelta(days=1), "inputs": [("quiet_age_seconds", "1.945049")],
        "reason": "quiet tenants wait 1.52 s", "outcome": "applied",
    }  # fmt: skip
    return base | changes


JOURNAL = [
    row("throttle", 20, None, 29.3245),
    row("relax", 10, 29.3245, 48.65, reason="next to nothing waits\x1b[2J"),
    row("skip", 5, None, None, action_id="a2", tenant="acme", outcome="refused", valid_until=None),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    Lake(root).append("actions", pa.Table.from_pylist(JOURNAL, schema=ACTIONS.schema))
    return root


@pytest.fixture
def said(root: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def said(*arguments: str) -> str:
        assert run([*arguments, "--lake", str(root)]) == 0
        return capsys.readouterr().out

    return said


def test_the_journal_is_told_as_sentences_the_newest_first(said: Any) -> None:
    skipped, why, relaxed, calm, throttled, harm = said("actions", "list").splitlines()
    assert skipped.endswith("UTC  skip acme on ORDERS (refused)") and why.endswith(
        " · throttle-noisy, by NoisyTenant · a2"
    )
    assert relaxed.endswith("relax grove on ORDERS: 29.3/s → 48.6/s, for 1 d")
    assert r"next to nothing waits\x1b[2J · " in calm, "what is quoted commands no terminal"
    assert throttled.endswith("throttle grove on ORDERS: no limit → 29.3/s, for 1 d")
    assert harm.startswith("    quiet tenants wait 1.52 s · ") and harm.endswith(" · a1")
    assert said("actions", "list", "--last", "1").splitlines() == [skipped, why]


def test_one_action_is_told_from_its_beginning_with_what_each_decision_saw(said: Any) -> None:
    throttled, _, saw, relaxed, *_ = said("actions", "show", "a1").splitlines()
    assert "throttle grove" in throttled and "relax grove" in relaxed
    assert saw == "    through limits_api; saw quiet_age_seconds 1.95"
    first, _ = map(json.loads, said("actions", "show", "a1", "--json").splitlines())
    assert first["inputs"] == {"quiet_age_seconds": "1.945049"} and first["after"] == 29.3245


def test_what_is_in_force_is_told_with_its_reason_and_its_end(said: Any) -> None:
    limit, why = said("limits").splitlines()
    assert limit.startswith("grove on ORDERS: 48.6/s at most, expires in 23 h ")
    assert why.endswith(" · by NoisyTenant · a1")


@pytest.mark.parametrize("command", [("actions", "list"), ("limits",)])
def test_programs_get_rows(said: Any, command: tuple[str, ...]) -> None:
    rows = list(csv.DictReader(io.StringIO(said(*command, "--format", "csv"))))
    assert {row["tenant"] for row in rows} <= {"grove", "acme"} and rows[0]["action_id"]
    assert [json.loads(line)["action_id"] for line in said(*command, "--json").splitlines()] == [
        row["action_id"] for row in rows
    ]
    assert "action_id" in said(*command, "--format", "table").splitlines()[1]
