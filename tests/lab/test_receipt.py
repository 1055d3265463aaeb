"""What an action saved and cost: a window that was limited, run again as it came and as it would have come."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lab.receipt import action, main, unheld, without, worked_out
from lab.scenario import Arrival
from lake.errors import UserError
from lake.store import Lake
from lake.tables import ACTIONS
from sojourn.cli.main import app
from sojourn.demo import receipt
from tests.lab.test_replay import START, arrivals, events, lake_of

NOW = datetime(2026, 5, 2, tzinfo=UTC)
#: The flood of test_replay comes from second 10 to 40; the limit holds from 14 on.
SINCE, RATE = 14.0, 60.0


def held(limit: float) -> list[tuple[float, str, list[float]]]:
    """The same arrivals, of which the noisy tenant's are held back to ``limit``/s from :data:`SINCE` on."""
    found, free = [], SINCE
    for at, name, work in arrivals():
        if name == "noisy" and at >= SINCE:
            free = max(free + 1 / limit, at)
            at = free
        found.append((at, name, work))
    return sorted(found)


def row(decision: str, second: float, after: float | None, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "at": START + timedelta(seconds=second), "action_id": "a1", "idempotency_key": f"{decision}/{second}",
        "rule": "NoisyTenant", "policy": "throttle-noisy", "actuator": "limits_api", "broker": "nats",
        "queue": "orders", "tenant": "noisy", "decision": decision, "dry_run": False, "before": None, "after": after,
        "valid_until": None, "inputs": [("arrival_rate", f"{RATE:g}")], "reason": "why", "outcome": "applied",
    }  # fmt: skip
    return base | changes


JOURNAL = [row("throttle", SINCE, 15.0), row("hold", 40, 15.0), row("release", 120, None, inputs=[])]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = lake_of(tmp_path_factory.mktemp("lake"), events(held(15.0)))
    Lake(root).append("actions", pa.Table.from_pylist(JOURNAL, schema=ACTIONS.schema))
    return root


def test_a_limit_that_helped_is_told_with_whom_it_cost_and_kept_in_the_journal_once(root: Path) -> None:
    told = main(root, "a1", NOW, seeds=3)
    assert told.startswith("saved 4 tenants ") and ", cost noisy " in told and "95 %: " in told
    main(root, "a1", NOW + timedelta(hours=1), seeds=3)
    (kept,) = [one for one in Lake(root).read("actions").to_pylist() if one["decision"] == "receipt"]
    assert (kept["outcome"], kept["reason"], kept["at"]) == ("told", told, NOW)
    figures = {name: float(value) for name, value in kept["inputs"]}
    # Without it 80/s come upon 40/s of capacity for 26 s and more: half of that is what the quiet would have waited.
    assert 10 < figures["saved_mean"] < 40 and figures["cost_mean"] > 10
    assert figures["saved_half_width"] < figures["saved_mean"]
    found = receipt.told(root, JOURNAL)  # as the demo tells it
    assert found is not None and (found.reason, found.quiet_with) == (told, figures["others"])
    assert found.quiet_with < found.quiet_without_low < found.quiet_without < found.quiet_without_high
    assert receipt.told(root, []) is None and receipt.told(root, [row("throttle", 1, 9.0, action_id="other")]) is None


def test_what_producers_gave_up_counts_where_it_is_known(root: Path) -> None:
    (_, bare), (_, more) = (worked_out(root, JOURNAL, "a1", 3, shed=shed) for shed in (0, 800))
    assert more.others == bare.others < bare.others_without.mean
    # 800 more at 60/s, with 20/s of others, upon 40/s of capacity: the last of them is served 20 s later than before.
    assert more.others_without.mean == pytest.approx(bare.others_without.mean + 13, abs=6)


def test_a_rate_over_seconds_in_which_the_flood_had_not_begun_is_not_what_it_would_have_sent(root: Path) -> None:
    early = [row("throttle", SINCE, 15.0, inputs=[("arrival_rate", "24")]), *JOURNAL[1:]]
    (_, whole), (_, mean) = (worked_out(root, rows, "a1", 3, shed=800) for rows in (JOURNAL, early))
    assert mean.others_without.mean == pytest.approx(whole.others_without.mean, rel=0.25)


def test_the_command_tells_it(root: Path) -> None:
    done = CliRunner().invoke(app, ["actions", "receipt", "a1", "--lake", str(root)])
    assert done.exit_code == 0, done.output
    assert "saved 4 tenants" in done.output
    more = CliRunner().invoke(app, ["actions", "receipt", "a1", "--shed", "800", "--lake", str(root)])
    assert more.exit_code == 0 and "with 800 messages that its producers gave up" in more.output
    again = CliRunner().invoke(app, ["actions", "receipt", "a1", "--shed", "800", "--lake", str(root)])
    assert again.output == more.output
    receipts = [one for one in Lake(root).read("actions").to_pylist() if one["decision"] == "receipt"]
    kept = [dict(one["inputs"]) for one in receipts]
    assert [one["shed"] for one in kept if "shed" in one] == ["800"], "told apart from the one without, and kept once"


def test_what_was_held_back_comes_when_its_producer_had_it_and_nothing_else_moves() -> None:
    trace = tuple(
        Arrival(at, name, (0.1,)) for at, name in [(1, "n"), (5, "n"), (6, "q"), (7, "n"), (9, "n"), (9.2, "n")]
    )
    moved = unheld(trace, "n", 4.0, 9.1, 1.0)
    assert [one.offered for one in moved] == [None, 5, None, 6, 7, None]
    assert [(one.at, one.tenant) for one in without(moved)] == [
        (1, "n"),
        (5, "n"),
        (6, "q"),
        (6, "n"),
        (7, "n"),
        (9.2, "n"),
    ], "what came once nobody was limited any more came when its producer had it"
    later = unheld(trace, "n", 4.0, 9.1, 0.1)
    assert [one.offered for one in later if one.tenant == "n"] == [None, 5, 7, 9, None], "never later than it came"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "limited a tenant"),
        ([row("throttle", 1, 5.0, outcome="dry_run")], "limited a tenant"),
        ([row("throttle", 1, 5.0)], "has not ended"),
        ([row("throttle", 1, 5.0, inputs=[]), row("release", 2, None, inputs=[])], "does not say what"),
    ],
)
def test_an_action_without_a_receipt_says_why(rows: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        action(rows, "a1")


def test_the_alert_process_reads_it_from_a_command_of_its_own(root: Path) -> None:
    command = [sys.executable, "-m", "lab.receipt", str(root)]
    done = subprocess.run([*command, "a1"], capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout)
    assert told["reason"].startswith("saved 4 tenants") and float(told["inputs"]["saved_mean"]) > 10
    none = subprocess.run([*command, "a2"], capture_output=True, text=True, timeout=120)
    assert none.returncode == 1 and "limited a tenant" in none.stderr
