"""A worker hangs and jobs die; the page says so with the queue's numbers; a new release and a redrive end it.

The libraries are the unmodified ones, the rules those that are shipped, asked to hold for a second instead of minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.settings import CollectSettings
from lake.definitions import Definitions
from lake.reader import Reader
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.collectors.support import running
from tests.support import bullmq, sidekiq
from tests.support.alerting import PROGRAM
from tests.support.deep import examples
from tests.support.finishing import finishing
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "alerts" / "rules" / "builtin"
ALERTS = {"QueueBacklogged": "backlog.yml", "DeadLetterQueueNotEmpty": "delivery.yml"}


@dataclass(frozen=True)
class Library:
    """How one library's jobs are pushed, worked on and sent back."""

    layout: str
    dead: str  # the row of its dead letters
    worker: Callable[..., AbstractContextManager[Any]]
    push: Callable[..., list[dict[str, Any]]]
    broken: dict[str, Any]
    job: Callable[[float], dict[str, Any]]  # that takes so many seconds
    redrive: Callable[[RedisServer], Any]


LIBRARIES = {
    "sidekiq": Library(
        "sidekiq",
        "sidekiq.dead",
        sidekiq.sidekiq,
        sidekiq.push,
        {"class": "Broken", "args": [{}], "queue": "orders", "retry": 0},
        lambda seconds: {"class": "Work", "args": [{}, seconds], "queue": "orders"},
        sidekiq.redrive,
    ),
    "bullmq": Library(
        "bullmq",
        "orders.failed",
        bullmq.worker,
        bullmq.produce,
        {"queue": "orders", "name": "broken"},
        lambda seconds: {"queue": "orders", "name": "work", "data": {"seconds": seconds}},
        lambda server: bullmq.redrive(server, "orders"),
    ),
}


def rules(path: Path, names: Mapping[str, str]) -> Path:
    """The shipped rules ``names``, by which a story is told, each after a second."""
    chosen = []
    for name, file in names.items():
        groups = yaml.safe_load((SHIPPED / file).read_text())["groups"]
        (rule,) = [rule for group in groups for rule in group["rules"] if rule.get("alert") == name]
        rule.pop("keep_firing_for", None)
        if name == "SampledTenantStuck":
            rule["thresholds"] = {"threshold": "1s"}
        chosen.append(
            rule | {"for": "1s", "annotations": rule["annotations"] | {"runbook": str(SHIPPED / "backlog.md")}}
        )
    path.write_text(yaml.safe_dump({"groups": [{"name": "story", "rules": chosen}]}))
    return path


@contextmanager
def alerting(root: Path, folder: Path, receiver: WebhookReceiver, names: Mapping[str, str] = ALERTS) -> Iterator[None]:
    """The alert process with the shipped rules ``names``, whose pager is ``receiver``."""
    pager = {"name": "pager", "url": receiver.url, "secret_env": "HOOK_SECRET", "allow_private": True}
    settings = {"rules": [str(rules(folder / "rules.yml", names))], "builtin": False, "port": 0, "receivers": [pager]}
    environment = {**os.environ, "HOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    with (folder / "alerts.log").open("ab") as log:
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(root), json.dumps(settings)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def told(receiver: WebhookReceiver, name: str, status: str) -> dict[str, Any] | None:
    """The newest alert ``name`` that the pager was told with ``status``."""
    alerts = [alert for request in receiver.received for alert in request.payload["alerts"]]
    found = [one for one in alerts if one["labels"]["alertname"] == name and one["status"] == status]
    return found[-1] if found else None


def received(receiver: WebhookReceiver) -> list[tuple[str, str, str, str]]:
    """All that the pager was told, in its order."""
    alerts = [alert for request in receiver.received for alert in request.payload["alerts"]]
    return [(one["labels"]["alertname"], one["status"], one["startsAt"], one["endsAt"]) for one in alerts]


def health(root: Path) -> dict[str, dict[str, Any]]:
    """What is known of each queue."""
    return {row["queue"]: row for row in Reader(root).query("SELECT * FROM queue_health_now").to_pylist()}


@pytest.mark.parametrize("name", [*LIBRARIES][: examples(1, len(LIBRARIES))])
def test_a_stuck_worker_is_paged_with_the_queues_numbers_and_a_redrive_ends_it(
    name: str, tmp_path: Path, receiver: WebhookReceiver
) -> None:
    library, root = LIBRARIES[name], tmp_path / "lake"
    Definitions(target_seconds=1).save(root)
    with RedisServer(tmp_path / "redis") as server, ExitStack() as stack:
        broker = {"kind": "redis", "name": "jobs", "url": server.url, library.layout: {}}
        chosen = {"brokers": [broker], "sample_interval": 0.3, "flush_interval": 0.1}
        with library.worker(server, "orders", concurrency=1):
            library.push(server, library.broken)
            stack.enter_context(running(CollectSettings.model_validate(chosen), root))
            stack.enter_context(finishing(root))
            stack.enter_context(alerting(root, tmp_path, receiver))
            (hung, *_) = library.push(server, library.job(600), library.job(0), library.job(0))
            page = wait_until(lambda: told(receiver, "QueueBacklogged", "firing"), "the page", seconds=60)
            dead = wait_until(lambda: told(receiver, "DeadLetterQueueNotEmpty", "firing"), "of dead jobs", seconds=60)
        assert page["labels"]["queue"] == "orders"
        assert page["annotations"]["summary"].startswith("orders is behind: its oldest message waits ")
        assert page["annotations"]["being_done"] == "nothing: no action is in force"
        assert 0 < float(page["annotations"]["value"]) <= time.time() - hung["before"]
        assert dead["labels"]["queue"] == library.dead
        assert health(root)["orders"]["depth"] == 2
        with library.worker(server, "orders", concurrency=2, fixed=True):
            library.redrive(server)
            wait_until(lambda: told(receiver, "QueueBacklogged", "resolved"), "the queue to be well", seconds=60)
            wait_until(lambda: told(receiver, "DeadLetterQueueNotEmpty", "resolved"), "no dead jobs", seconds=60)
            after = health(root)
    assert (after["orders"]["depth"], after[library.dead]["depth"]) == (0, 0), received(receiver)


def test_a_tenant_that_others_always_overtake_is_paged_until_a_worker_takes_its_job(
    tmp_path: Path, receiver: WebhookReceiver
) -> None:
    """BullMQ takes jobs without a priority first: one with a priority waits for as long as such come fast enough."""
    root = tmp_path / "lake"
    Definitions(target_seconds=1).save(root)
    overtaken = {"data": {"tenant": "acme"}, "opts": {"priority": 1}}
    flood = [{"data": {"tenant": "flood", "seconds": 1}, "opts": {"delay": 1 + 800 * place}} for place in range(300)]
    with RedisServer(tmp_path / "redis") as server, ExitStack() as stack:
        layout = {"tenant": "json:tenant", "read_at_most": 1000}
        broker = {"kind": "redis", "name": "jobs", "url": server.url, "bullmq": layout}
        chosen = {"brokers": [broker], "sample_interval": 0.3, "flush_interval": 0.1}
        stack.enter_context(running(CollectSettings.model_validate(chosen), root))
        stack.enter_context(finishing(root))
        stack.enter_context(alerting(root, tmp_path, receiver, {"SampledTenantStuck": "backlog.yml"}))
        bullmq.produce(server, *({"queue": "orders", "name": "work"} | job for job in (overtaken, *flood)))
        with bullmq.worker(server, "orders", concurrency=1):
            page = wait_until(lambda: told(receiver, "SampledTenantStuck", "firing"), "the page", seconds=60)
            assert (page["labels"]["queue"], page["labels"]["tenant"]) == ("orders", "acme")
            assert page["annotations"]["summary"] == "Nobody takes messages of acme from orders: 1 wait"
            assert "consumers work on 1 messages of others" in page["annotations"]["description"]
            with bullmq.worker(server, "orders", concurrency=20):
                wait_until(lambda: told(receiver, "SampledTenantStuck", "resolved"), "its job to be taken", seconds=60)
    tenants = {alert["labels"]["tenant"] for one in receiver.received for alert in one.payload["alerts"]}
    assert tenants == {"acme"}, "who is served is not stuck"
