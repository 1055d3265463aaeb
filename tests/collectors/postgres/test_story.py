"""A worker hangs on a job in PostgreSQL: on call is paged, redrives by the library's own means, and it is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import alerts.rules
from collectors.settings import CollectSettings
from lake.definitions import Definitions
from lake.reader import Reader
from lake.store import Lake
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.collectors.postgres.reading import Database, application, finish
from tests.collectors.support import running
from tests.support.alerting import PROGRAM
from tests.support.facts import proves
from tests.support.finishing import finishing
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]


def hurried(folder: Path) -> Path:
    """The built-in rule for a queue that nothing leaves while jobs are in flight, as it is, but for its ten minutes."""
    text = (Path(alerts.rules.__file__).parent / "builtin" / "backlog.yml").read_text(encoding="utf-8")
    rules = [one for group in yaml.safe_load(text)["groups"] for one in group["rules"]]
    (rule,) = [one | {"for": "1s"} for one in rules if one["alert"] == "NothingAcknowledged"]
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "story", "rules": [rule]}]}))
    return path


@contextmanager
def alerting(root: Path, rules: Path, receiver: WebhookReceiver) -> Iterator[Callable[[int], dict[str, Any]]]:
    """The alert process; gives the one alert of its first, second … notification."""
    pager = {"name": "pager", "url": receiver.url, "secret_env": "HOOK_SECRET", "allow_private": True}
    settings = {"rules": [str(rules)], "builtin": False, "port": 0, "receivers": [pager]}
    environment = {**os.environ, "HOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(root), json.dumps(settings)]
    log = root.parent / "alerts.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def told(number: int) -> dict[str, Any]:
        def there() -> bool:
            assert process.poll() is None, log.read_text()
            return len(receiver.received) >= number

        wait_until(there, f"notification {number}", seconds=60)
        (alert,) = receiver.received[number - 1].payload["alerts"]
        return dict(alert)

    try:
        yield told
    finally:
        process.kill()
        process.wait()


@proves("procrastinate", "dead letters", "redriven by the library's own means, from a page to its end")
def test_a_stuck_worker_is_paged_with_what_is_known_and_over_once_its_jobs_are_redriven(
    database: Database, receivers: Callable[..., WebhookReceiver], tmp_path: Path
) -> None:
    root, receiver = tmp_path / "lake", receivers()
    Lake(root).create()
    Definitions(window_seconds=2, target_seconds=1).save(root)
    broker = {"name": "app-db", **database.settings(procrastinate={"tenant": "json:tenant"})}
    settings = CollectSettings.model_validate({"brokers": [broker], "sample_interval": 0.3})
    with running(settings, root), finishing(root), alerting(root, hurried(tmp_path), receiver) as told:
        with application("procrastinate", database):
            firing = told(1)
        assert firing["status"] == "firing"
        assert firing["labels"].items() >= {"broker": "app-db", "queue": "orders"}.items()
        assert firing["annotations"]["summary"].endswith("Nothing of orders is acknowledged, with 3 messages waiting")
        assert firing["annotations"]["description"].strip() == "1 are in flight: long jobs, or stuck ones."
        newest = Reader(root).query(
            "SELECT * FROM queue_samples WHERE queue = 'orders' ORDER BY sampled_at DESC LIMIT 1"
        )
        (sample,) = newest.to_pylist()
        assert (sample["retrying"], sample["delayed"]) == (1, 3)
        assert sample["oldest_in_flight_age_seconds"] > 0
        assert {share["tenant"]: share["depth"] for share in sample["tenants"]} == {"a": 2, "b": 1}
        finish("procrastinate redrive", database)  # the worker is gone: what it held is stalled
        assert told(2)["status"] == "resolved"
    states = dict(database.rows("SELECT status::text, count(*) FROM procrastinate_jobs GROUP BY 1"))
    assert states == {"succeeded": 5, "failed": 1, "todo": 3}, "nothing was lost or done twice"
